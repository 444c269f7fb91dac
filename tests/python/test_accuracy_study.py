"""The accuracy study: its arithmetic, its data, one real run on small data, and the report."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from shade_load import Daemon, Plan
from torchvision.datasets import ImageFolder

from studies.accuracy import data, frontier, report, results, training
from studies.accuracy.cells import CELLS, PLAIN, Variant, in_order_of_runs
from studies.accuracy.recipes import RECIPES
from studies.accuracy.statistics import difference, mean, on_line
from studies.image_sets.image_set import ImageSet, Split

ROOT = Path(__file__).parents[2]
RECIPE = "cifar10/small-cnn"


@pytest.fixture(scope="module")
def images() -> ImageSet:
    """Ten classes, told apart by colour, with 40 training images each."""
    random = np.random.default_rng(1)
    colours = random.integers(0, 256, (10, 1, 1, 3))

    def split(samples: int) -> Split:
        labels = np.arange(samples) % 10
        noisy = colours[labels] + random.normal(0, 20, (samples, 32, 32, 3))
        return Split(np.clip(noisy, 0, 255).astype(np.uint8), labels)

    return ImageSet(tuple(f"class-{label}" for label in range(10)), split(400), split(100))


@pytest.fixture(scope="module")
def folder(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of the study that has the images already."""
    folder = tmp_path_factory.mktemp("study")
    images.write(folder / "cifar10-plain")
    return folder


def run_of(folder: Path, cell: str, seed: int = 0) -> results.Run:
    recipe = replace(RECIPES[RECIPE], epochs=3, batch_size=32)
    return training.run(recipe, CELLS[cell], seed, folder)


class TestStatistics:
    def test_the_interval_is_students(self) -> None:
        found = mean([1.0, 2.0, 3.0, 4.0])
        # s = 1.29099, t(0.975, 3) = 3.18245
        assert found.value == 2.5
        assert found.half_width == pytest.approx(3.18245 * 1.29099 / 2, abs=1e-4)

    def test_differences_are_taken_seed_by_seed(self) -> None:
        found = difference({0: 70.0, 1: 80.0, 2: 90.0, 7: 0.0}, {0: 69.0, 1: 79.1, 2: 88.9, 5: 0.0})
        assert found is not None
        assert (found.count, round(found.mean, 6)) == (3, 1.0)
        # s = 0.1, t(0.95, 2) = 2.91999
        assert found.lower == pytest.approx(1.0 - 2.91999 * 0.1 / 3**0.5, abs=1e-4)

    @pytest.mark.parametrize(
        ("shift", "verdict"),
        [(0.3, "better"), (0.0, "as good"), (-0.3, "worse, within the margin"), (-2.0, "worse"), (-0.45, "worse")],
    )
    def test_a_verdict_follows_from_the_bounds(self, shift: float, verdict: str) -> None:
        spread = [-0.1, 0.0, 0.1] * 3
        found = difference({i: 50 + shift + by for i, by in enumerate(spread)}, dict.fromkeys(range(9), 50.0))
        assert found is not None and found.verdict(1) == verdict

    def test_a_verdict_allows_for_all_comparisons(self) -> None:
        found = difference({i: 50.0 + by for i, by in enumerate([0.0, 0.2, 0.3, 0.4] * 2)}, dict.fromkeys(range(8), 50.0))
        assert found is not None and (found.verdict(1), found.verdict(50)) == ("better", "as good")
        # Bonferroni: one of 50 at 95 % is one at 99.9 %. s = 0.15811, t(0.999, 7) = 4.78529
        assert found.bounds(50)[0] == pytest.approx(0.225 - 4.78529 * 0.15811 / 8**0.5, abs=1e-3)

    def test_few_seeds_tell_nothing(self) -> None:
        one = difference({0: 50.0}, {0: 49.0})
        three = difference({0: 40.0, 1: 40.0, 2: 40.0}, dict.fromkeys(range(3), 50.0))
        wide = difference({0: 40.0, 1: 60.0, 2: 40.0, 3: 60.0}, dict.fromkeys(range(4), 50.0))
        assert one is not None and one.verdict(1) == "too few seeds"
        assert three is not None and three.verdict(1) == "too few seeds"
        assert wide is not None and wide.verdict(1) == "not told"
        assert difference({0: 1.0}, {1: 1.0}) is None

    def test_a_line_ends_at_its_points(self) -> None:
        line = [(1.0, 10.0), (2.0, 20.0), (4.0, 30.0)]
        assert [on_line(line, at) for at in (0.9, 1.0, 1.5, 3.0, 4.0, 4.1)] == [None, 10.0, 15.0, 25.0, 30.0, None]


class TestFrontier:
    def made(self, accuracy: float, bytes_read: int, seed: int = 0) -> results.Run:
        row = {"store_rate": 0.5, "cache": "20%", "policy": "lookahead", "bytes_read": bytes_read, "stall_share": 0.5}
        options = {"daemon": {}}
        return {"seed": seed, "test_accuracy": accuracy, "samples_trained": 1000, "simulated": [row], "options": options}

    def cost(self, runs, policies):
        return frontier.bytes_read(runs, "20%", policies)

    def test_a_cell_is_compared_with_permutations_that_read_as_much(self) -> None:
        cells = {"uniform-50": [self.made(0.60, 500)], "uniform": [self.made(0.70, 1000)]}
        for accuracy, expected in ((0.65, 0.0), (0.66, 1.0)):
            found = frontier.at_equal_cost([self.made(accuracy, 750)], cells, self.cost)
            assert found is not None and found.mean == pytest.approx(expected)
        assert frontier.at_equal_cost([self.made(0.65, 400)], cells, self.cost) is None

    def test_who_costs_more_than_all_permutations_stands_beside_the_dearest(self) -> None:
        cells = {"uniform-50": [self.made(0.60, 500)], "uniform": [self.made(0.70, 1000)]}
        found = frontier.at_equal_cost([self.made(0.71, 1001)], cells, self.cost)
        assert found is not None and found.mean == pytest.approx(1.0)

    def test_a_baseline_that_lacks_a_seed_is_not_on_the_line(self) -> None:
        two = [self.made(0.60, 500), self.made(0.60, 500, seed=1)]
        cells = {"uniform-50": two, "uniform-70": [self.made(0.90, 750)], "uniform": [self.made(0.7, 1000), self.made(0.7, 1000, 1)]}
        found = frontier.at_equal_cost([self.made(0.65, 750), self.made(0.65, 750, seed=1)], cells, self.cost)
        assert found is not None and (found.count, found.mean) == (2, pytest.approx(0.0))

    def test_a_policy_that_substitutes_is_not_compared(self) -> None:
        run = self.made(0.65, 750)
        run["options"] = {"daemon": {"policy": "quiver"}}
        assert frontier.at_equal_cost([run], {"uniform": [self.made(0.7, 1000)]}, self.cost) is None

    def test_time_is_compute_and_waits(self) -> None:
        assert frontier.time_taken([self.made(0.5, 1)], 0.5, "20%", ("lookahead",)) == pytest.approx(1.5)


class TestImageSets:
    def test_noise_changes_its_share_of_labels_and_no_test_label(self, images: ImageSet) -> None:
        noisy = images.with_label_noise(0.1, seed=3)
        assert int((noisy.train.labels != images.train.labels).sum()) == 40
        assert (noisy.val.labels == images.val.labels).all()
        assert set(noisy.train.labels) <= set(range(10))
        assert (images.with_label_noise(0.1, seed=3).train.labels == noisy.train.labels).all()

    def test_imbalance_is_exponential(self, images: ImageSet) -> None:
        counts = np.bincount(images.with_imbalance(20).train.labels)
        assert (counts[0], counts[-1]) == (40, 2)
        assert (np.diff(counts) <= 0).all()
        assert len(images.with_imbalance(1).train.labels) == 400

    def test_what_is_written_is_an_image_folder(self, images: ImageSet, folder: Path) -> None:
        read = ImageFolder(folder / "cifar10-plain/train")
        assert read.classes == list(images.classes)
        picture, label = read[41]
        number = int(Path(read.samples[41][0]).stem)
        assert (np.asarray(picture) == images.train.images[number]).all()
        assert label == images.train.labels[number] == 1


class TestCells:
    @pytest.mark.parametrize("name", CELLS)
    def test_a_cell_has_options_that_there_are(self, name: str) -> None:
        Plan(**CELLS[name].plan)
        Daemon(**CELLS[name].daemon)

    def test_every_cell_is_run_once(self) -> None:
        assert sorted(in_order_of_runs()) == sorted(CELLS)

    def test_variants_are_named(self) -> None:
        assert [str(variant) for variant in (PLAIN, Variant(0.1), Variant(0.1, 50))] == [
            "plain",
            "noise-0.1",
            "noise-0.1-imbalance-50",
        ]


class TestRuns:
    def test_a_run_is_recorded_whole(self, folder: Path, tmp_path: Path) -> None:
        run = run_of(folder, "pads")
        path = results.path_of(tmp_path, RECIPE, "pads", 0)
        results.write(run, path)
        assert results.read(tmp_path, RECIPE) == {"pads": [json.loads(json.dumps(run))]}
        assert (run["dataset"], run["network"], run["sampler"], run["seed"]) == ("cifar10", "small-cnn", "pads", 0)
        assert (run["epochs"], run["samples_trained"], run["dataset_samples"]) == (3, 1200, 400)
        assert [row["epoch"] for row in run["curve"]] == [0, 1, 2]
        assert run["curve"][0]["bytes_read"] == run["dataset_bytes"]
        assert run["bytes_read"] < 3 * run["dataset_bytes"]
        assert run["test_accuracy"] == run["curve"][-1]["test_accuracy"] > 0.2
        rows = run["simulated"]
        assert {(row["store_rate"], row["cache"], row["policy"]) for row in rows} >= {(0.5, "20%", "lookahead"), (1.0, "50%", "lru")}
        assert all(row["accesses"] == 1200 for row in rows)
        plan = run["options"]["plan"]
        assert (plan["sampler"], plan["order"], plan["explore"], plan["cover"]) == ("pads", "shuffled", 0.0, 5)

    def test_a_record_of_other_options_does_not_count(self, folder: Path) -> None:
        cell = CELLS["pads"]
        run = run_of(folder, "pads")
        options = {**cell.options(), **replace(RECIPES[RECIPE], epochs=3, batch_size=32).schedule()}
        assert results.is_of(run, cell.plan, options)
        assert not results.is_of(run, {"sampler": "pads", "explore": 1.0}, options)
        assert not results.is_of(run, cell.plan, {**options, "learning_rate": 0.2})

    def test_a_record_that_is_not_whole_is_named(self, tmp_path: Path) -> None:
        path = results.path_of(tmp_path, RECIPE, "pads", 0)
        path.parent.mkdir(parents=True)
        path.write_text('{"seed": 0,')
        with pytest.raises(results.Damaged, match=re.escape(str(path))):
            results.read(tmp_path, RECIPE)

    def test_a_run_can_be_repeated_and_its_cache_changes_nothing(self, folder: Path) -> None:
        first, again, over_lru, other = (
            run_of(folder, cell, seed) for cell, seed in (("pads", 1), ("pads", 1), ("pads-lru", 1), ("pads", 2))
        )
        assert first["ids_sha256"] == again["ids_sha256"] == over_lru["ids_sha256"] != other["ids_sha256"]
        assert first["test_accuracy"] == again["test_accuracy"] == over_lru["test_accuracy"]
        assert first["simulated"] is None

    def test_each_rank_has_its_strata_and_its_own_batch_norm(self, folder: Path, tmp_path: Path) -> None:
        cell, recipe = CELLS["uniform-ranks-8-strata"], replace(RECIPES[RECIPE], epochs=2, batch_size=32)
        train_set, _ = data.prepared("cifar10", PLAIN, folder)
        of_rank: dict[int, set[int]] = {rank: set() for rank in range(cell.ranks)}
        with training.loader_of(recipe, cell, 1, 2, train_set, tmp_path / "socket") as loader:
            run = training.Training(recipe, cell, loader, 1, 2)
            for epoch in range(2):
                for batch in loader:
                    for rank, ids in of_rank.items():
                        ids.update(batch.ids[rank :: cell.ranks].tolist())
                    loader.report(batch, np.zeros(len(batch.ids), np.float32))
            assert sum(map(len, of_rank.values())) == len(set().union(*of_rank.values())) == 400
            run.network.train()
            batch = next(iter(loader))
            losses = run._losses(batch)
            alone = {norm: norm.running_mean.clone() for norm in run.norms}
            other = training.Training(recipe, replace(cell, ranks=1), loader, 1, 2)
            other.network.train()
            for rank in (0, 3):
                rows = slice(rank, None, cell.ranks)
                logits = other._logits(batch.images[rows])
                expected = torch.nn.functional.cross_entropy(logits, batch.labels[rows], reduction="none")
                assert torch.equal(losses[rows], expected)
                if rank == 0:
                    assert all(map(torch.equal, alone.values(), (norm.running_mean for norm in other.norms)))

    def test_cutout_hides_a_square_elsewhere_in_each_image(self, folder: Path, tmp_path: Path) -> None:
        recipe = replace(RECIPES[RECIPE], batch_size=100, cutout=8)
        train_set, _ = data.prepared("cifar10", PLAIN, folder)
        with training.loader_of(recipe, CELLS["uniform"], 1, 1, train_set, tmp_path / "socket") as loader:
            batch = next(iter(loader))
        hidden = (batch.images == training.MEAN_LEVEL).all(dim=1)
        # Few pixels of the noise have that colour.
        windows = torch.nn.functional.avg_pool2d(hidden.float(), 8, stride=1)
        assert (windows.flatten(1).max(dim=1).values == 1).all()
        assert len(set(windows.flatten(1).argmax(dim=1).tolist())) > 50
        assert recipe.schedule()["cutout"] == 8 and "cutout" not in RECIPES[RECIPE].schedule()

    def test_shorter_epochs_are_the_schedules(self, folder: Path) -> None:
        run = run_of(folder, "infobatch", seed=1)
        trained = [row["samples_trained"] for row in run["curve"]]
        # Nothing is left out before losses are known, nor in the last epoch.
        assert trained[0] == trained[2] == 400 > trained[1]


def test_the_study_goes_on_where_it_was_interrupted(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "studies.accuracy", "run", "--recipes", RECIPE, "--cells", "uniform-40"]
    folders = ["--data", folder, "--results", tmp_path]
    said = [
        subprocess.run([*command, "--seeds", str(seeds), *folders], cwd=ROOT, capture_output=True, text=True, check=True)
        for seeds in (1, 2)
    ]
    assert "0 of 1 runs have a record" in said[0].stdout and "1 of 1 done" in said[0].stdout
    assert "1 of 2 runs have a record" in said[1].stdout and "1 of 1 done" in said[1].stdout
    runs = results.read(tmp_path, RECIPE)["uniform-40"]
    assert [run["seed"] for run in runs] == [0, 1]
    assert {run["epochs"] for run in runs} == {4}


def test_two_commands_do_not_train_into_one_folder(folder: Path, tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "studies.accuracy", "run", "--data", folder, "--results", tmp_path]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 1 and f"another command trains into {tmp_path}" in said.stderr


def test_a_report_needs_the_records_alone(folder: Path, tmp_path: Path) -> None:
    records = tmp_path / "results"
    for cell in ("uniform", "uniform-50", "pads"):
        for seed in (0, 1):
            results.write(run_of(folder, cell, seed), results.path_of(records, RECIPE, cell, seed))
    written = report.write(records)
    text = written.read_text()
    assert "| `pads` | 2 |" in text and "| `uniform-50` | 2 |" in text
    assert "`pads` (2)" in text, "a cell with too few seeds is not named as missing"
    assert "No run yet" in text, "a recipe without runs is not named"
    plot = written.with_name("cifar10-small-cnn.svg").read_bytes()
    assert report.write(records).read_text() == text
    assert written.with_name("cifar10-small-cnn.svg").read_bytes() == plot


def test_a_live_run_waits_for_its_store_and_is_reported(folder: Path, tmp_path: Path) -> None:
    """On a mounted store where one can be mounted, else on the simulated one; 0.01 samples read for
    each computed."""
    records = tmp_path / "results"
    # Where `make test` builds shade-slow-store.
    programs = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    command = [sys.executable, "-m", "studies.accuracy", "live", "--cells", "echo", "--rates", "0.01", "--epochs", "2"]
    folders = ["--data", folder, "--results", records, "--programs", programs]
    # What it reads from other programs does not depend on the user's log.
    environment = {**os.environ, "SHADE_LOG": "warn"}
    said = subprocess.run([*command, *folders], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    free, run = results.read_live(records, RECIPE)["echo"]
    assert results.read(records, RECIPE) == {}, "a live run is taken for a run of the study"
    assert (free["rate"], run["rate"], run["epochs"], run["samples_trained"]) == (None, 0.01, 2, 800)
    is_simulated = run["store"]["kind"] == "simulated"
    assert is_simulated == (run["operations"] is None) == bool(run["store"]["because"])
    assert ("the store is simulated" in said.stdout) == is_simulated
    # The first batch needs a read, which takes the store's latency.
    assert run["stall_seconds"] >= run["store"]["delay_us"] / 1e6
    assert run["wall_seconds"] == pytest.approx(run["compute_seconds"] + run["stall_seconds"], abs=0.01)
    served = run["store"]["at_once"] / run["store"]["delay_us"] * 1e6
    assert served == pytest.approx(0.01 * run["samples_per_second"], rel=0.01)
    assert run["simulated"]["accesses"] == 800
    assert run["ids_sha256"] == free["ids_sha256"]

    results.write(run_of(folder, "echo"), results.path_of(records, RECIPE, "echo", 0))
    text = report.write(records).read_text()
    assert "| `echo` | 0.01 | 2 |" in text and "1 of 1 runs with a limit delivered the ids" in text


def live_run(rate: float | None, simulated: float | None, ids: str = "a") -> results.Run:
    """A record of 1,000 samples that took 10 s to compute, and 3 s more to wait for."""
    return {
        **{"cell": "pads", "seed": 0, "rate": rate, "epochs": 1, "samples_trained": 1000, "ids_sha256": ids},
        **{"compute_seconds": 10.0, "stall_seconds": 3.0, "records_per_read": None, "samples_per_second": 100.0},
        **{"store": {"kind": "simulated"}, "date": "2026-11-24T00:00:00", "machine": "one"},
        "simulated": None if simulated is None else {"stall_s": simulated},
        "simulated_as_served": None,
    }


def test_live_waits_stand_beside_simulated_ones_by_rate(folder: Path, tmp_path: Path) -> None:
    records = tmp_path / "results"
    results.write(run_of(folder, "pads"), results.path_of(records, RECIPE, "pads", 0))
    assert "None yet" in report.write(records).read_text()
    for run in (live_run(1.0, 2.0, ids="b"), live_run(0.3, 4.0), live_run(None, None)):
        results.write(run, results.live_path_of(records, RECIPE, "pads", run["rate"]))
    text = report.write(records).read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `pads`") and "simulated" in line]
    assert rows == [
        "| `pads` | no limit | 1 | simulated | 10.0 | 30.0 |  |  |  |  |  |",
        "| `pads` | 0.3 | 1 | simulated | 10.0 | 30.0 | 40.0 | -10.0 |  |  |  |",
        "| `pads` | 1 | 1 | simulated | 10.0 | 30.0 | 20.0 | +10.0 |  |  |  |",
    ]
    assert "1 of 2 runs with a limit delivered the ids" in text and "None yet" not in text


def test_a_report_without_permutations_says_what_is_missing(folder: Path, tmp_path: Path) -> None:
    for cell in ("pads", "replacement"):
        for seed in (0, 1):
            results.write(run_of(folder, cell, seed), results.path_of(tmp_path / "results", RECIPE, cell, seed))
    text = report.write(tmp_path / "results").read_text()
    assert "`uniform` (0)" in text


def test_the_report_here_is_that_of_the_records_here(tmp_path: Path) -> None:
    shutil.copytree(results.RESULTS, tmp_path / "results")
    assert report.write(tmp_path / "results").read_text() == (results.RESULTS.parent / "REPORT.md").read_text()


def test_each_record_says_what_a_reader_needs() -> None:
    needed = {"dataset", "network", "sampler", "seed", "test_accuracy", "bytes_read", "samples_trained", "epochs"}
    needed |= {"device", "seconds", "options", "versions", "curve", "ids_sha256"}
    records = [run for recipe in RECIPES for runs in results.read(results.RESULTS, recipe).values() for run in runs]
    assert records
    for run in records:
        assert needed <= run.keys()
        assert run["cell"] in CELLS, f"{run['cell']} has records and is no cell any more"
        assert len(run["curve"]) == run["epochs"]
        assert sum(row["samples_trained"] for row in run["curve"]) == run["samples_trained"]


@pytest.mark.parametrize(
    ("page", "count"), [("README.md", 3), ("docs/which-sampler.md", 6), ("docs/decisions/022-the-default-sampler.md", 3)]
)
def test_figures_of_pages_are_those_of_the_report(page: str, count: int) -> None:
    text = (ROOT / page).read_text()
    figures = re.findall(r"\d+\.\d+ ± \d+\.\d+", text)
    assert len(figures) == count
    reported = (results.RESULTS.parent / "REPORT.md").read_text()
    # Differences, where they stand as in the report: +0.15 [-0.04, +0.33].
    figures += re.findall(r"[+-]\d+\.\d+ \[[+-]\d+\.\d+, [+-]\d+\.\d+\]", text)
    assert [figure for figure in figures if figure not in reported] == []
