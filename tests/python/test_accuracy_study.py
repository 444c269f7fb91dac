"""The accuracy study: its arithmetic, its data, one real run on small data, and the report."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from shade_load import Daemon, Loader, Plan
from shade_load.transforms import CenterCrop
from torchvision.datasets import ImageFolder

from studies.accuracy import data, frontier, recording, report, results, training
from studies.accuracy.cells import CELLS, OF_FIRST_DESIGN, PLAIN, RETIRED, Variant
from studies.accuracy.recipes import RECIPES
from studies.accuracy.registered import TABLES, opened, tables_of
from studies.accuracy.runs import Pool, Run, slot
from studies.accuracy.statistics import Difference, difference, mean, on_line, verdicts
from studies.image_sets import NotAvailable, load
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


def run_of(folder: Path, cell: str, seed: int = 0, **more) -> results.Run:
    recipe = replace(RECIPES[RECIPE], epochs=3, batch_size=32)
    return training.run(recipe, CELLS[cell], seed, folder, **more)


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
        assert verdicts({"cell": found}) == {"cell": verdict}

    def test_equal_runs_are_as_good(self) -> None:
        assert verdicts({"cell": Difference(0.0, 0.0, 4)}) == {"cell": "as good"}

    def test_verdicts_of_a_family_allow_for_one_another(self) -> None:
        found = difference({i: 50.0 + by for i, by in enumerate([0.0, 0.2, 0.3, 0.4] * 2)}, dict.fromkeys(range(8), 50.0))
        none = difference({i: 50.0 + by for i, by in enumerate([-3.0, 3.0] * 4)}, dict.fromkeys(range(8), 50.0))
        assert verdicts({"cell": found})["cell"] == "better"
        # One of many that show nothing must show more.
        said = verdicts({"cell": found, "none": None, **{f"other {nth}": none for nth in range(49)}})
        assert (said["cell"], said["other 7"], said["none"]) == ("as good", "not told", "")

    def test_few_seeds_tell_nothing(self) -> None:
        one = difference({0: 50.0}, {0: 49.0})
        three = difference({0: 40.0, 1: 40.0, 2: 40.0}, dict.fromkeys(range(3), 50.0))
        wide = difference({0: 40.0, 1: 60.0, 2: 40.0, 3: 60.0}, dict.fromkeys(range(4), 50.0))
        said = verdicts({"one": one, "three": three, "wide": wide})
        assert said == {"one": "too few seeds", "three": "too few seeds", "wide": "not told"}
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

    def test_what_is_held_out_is_a_part_of_the_training_images(self, images: ImageSet) -> None:
        kept = images.with_held_out(0.1, seed=0)
        assert (len(kept.train.labels), len(kept.val.labels)) == (360, 40)
        together = np.concatenate([kept.train.images, kept.val.images]).reshape(400, -1)
        assert sorted(map(bytes, together)) == sorted(map(bytes, images.train.images.reshape(400, -1)))
        # Wrong labels are for training only.
        assert (kept.with_label_noise(0.5, seed=0).val.labels == kept.val.labels).all()

    def test_records_are_filled_up_and_show_the_same_image(self, images: ImageSet, tmp_path: Path) -> None:
        replace(images.first(20), record_bytes=20_000).write(tmp_path / "set")
        read = ImageFolder(tmp_path / "set/train")
        assert {Path(path).stat().st_size for path, _ in read.samples} == {20_000}
        packed = tmp_path / "packed"
        subprocess.run([recording.find_daemon().with_name("shade-pack"), "create", tmp_path / "set/train", packed], check=True)
        assert recording.record_bytes(packed) == 20_000
        with Loader(packed, 20, decode=CenterCrop(32), train=False) as loader:
            batch = next(iter(loader))
        for sample, rows in zip(batch.ids.tolist(), batch.images, strict=True):
            assert (rows.permute(1, 2, 0).numpy() == np.asarray(read[sample][0])).all()

    def test_photographs_are_copied_as_they_are(self, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.mkdir()
        paths = [source / f"{name}.JPEG" for name in "abcd"]
        for path in paths:
            path.write_bytes(path.name.encode())
        part = Split(np.array(paths, dtype=object), np.array([0, 1, 0, 1]))
        ImageSet(("x", "y"), part, part).with_label_noise(0.5, seed=0).write(tmp_path / "set")
        written = sorted((tmp_path / "set").glob("*/*/*.JPEG"))
        assert sorted(path.read_text() for path in written) == sorted(2 * [path.name for path in paths])
        with pytest.raises(NotAvailable, match="4 \\+ 0 images"):
            (tmp_path / "set/val").rename(tmp_path / "gone")
            (tmp_path / "set/val/x").mkdir(parents=True)
            load("imagenette", tmp_path / "set")

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

    def test_each_cell_is_of_a_table_and_each_table_is_in_the_design(self) -> None:
        of_tables = {name for table in TABLES for name in table.cells}
        assert of_tables == set(CELLS) and set(RETIRED) <= set(OF_FIRST_DESIGN)
        design = " ".join((results.RESULTS.parent / "DESIGN.md").read_text().split())
        for table in TABLES:
            assert f"| {table.name} | {table.date} |" in design
            assert set(table.primary) <= set(table.cells) and set(table.recipes) <= set(RECIPES)
            assert {CELLS[name].baseline for name in table.cells} <= of_tables

    def test_what_ran_for_a_later_table_is_not_seen_by_the_first(self) -> None:
        old, new = {"seed": 0}, {"seed": 1, "daemon": {}}
        found = opened("cifar10/resnet18", {"echo": [old, new], "pads": [old, new]})
        # "a large network" has `echo`, and is not open; `pads` is the first design's alone.
        assert found == {"echo": [old], "pads": [old, new]}

    def test_a_table_is_opened_when_its_runs_are_there(self) -> None:
        recipe = "imagenette/small-cnn"
        (table,) = tables_of(recipe)
        runs = {name: [{}] * table.seeds for name in (*table.cells, "cis")}
        assert set(opened(recipe, runs)) == set(table.cells)
        runs["pads"] = runs["pads"][1:]
        assert opened(recipe, runs) == {} and not replace(table, opened="").is_open(runs)
        assert replace(table, opened="2026-12-24").is_open(runs)

    def test_a_slot_is_of_runs_that_tables_have(self) -> None:
        assert len(set(slot())) == len(slot())
        assert all(any(run.cell in table.cells for table in tables_of(run.recipe)) for run in slot())

    def test_variants_are_named(self) -> None:
        assert [str(variant) for variant in (PLAIN, Variant(0.1), Variant(0.1, 50))] == [
            "plain",
            "noise-0.1",
            "noise-0.1-imbalance-50",
        ]


class TestRuns:
    def test_a_run_is_recorded_whole(self, folder: Path, tmp_path: Path) -> None:
        path = results.path_of(tmp_path, RECIPE, "pads", 0)
        run = run_of(folder, "pads", kept=results.recording_of(path))
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
        settings = run["daemon"]["settings"]
        assert (settings["policy"], settings["cache"]) == ("lookahead", "20%") and "package_bytes" in settings
        assert re.fullmatch(r"\d+\.\d+\.\d+", run["daemon"]["version"]) and len(run["daemon"]["program_sha256"]) == 64
        assert run["split"] == "test"
        again = recording.played_again(results.recording_of(path), run["dataset_bytes"] / run["dataset_samples"])
        assert again == rows, "what was kept does not make the simulated figures"

    def test_what_is_held_out_is_trained_on_nine_tenths(self, images: ImageSet, folder: Path, tmp_path: Path) -> None:
        images.with_held_out(data.HELD_OUT_SHARE, data.HELD_OUT_SEED).write(folder / "cifar10-plain-held-out")
        command = [sys.executable, "-m", "studies.accuracy", "run", "--dirty", "--recipes", RECIPE, "--cells", "rs2-10"]
        command += ["--split", "held-out", "--learning-rates", "0.2", "--seeds", "1"]
        said = subprocess.run(
            [*command, "--data", folder, "--results", tmp_path / "results"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert "% of what was held out" in said.stdout
        assert results.read(tmp_path / "results", RECIPE) == {}, "a run that holds data out is taken for one of the study"
        held_out = results.read(tmp_path / "results/held-out", RECIPE)
        assert sorted(held_out) == ["rs2-10@0.2"]
        (run,) = held_out["rs2-10@0.2"]
        assert (run["dataset_samples"], run["split"], run["options"]["learning_rate"]) == (360, "held-out", 0.2)
        text = report.write(tmp_path / "results").read_text()
        assert "| `rs2-10` | 1 |" in text and "held-out tenth" in text

    def test_a_test_score_of_a_table_that_is_not_open_is_not_read(self, folder: Path, tmp_path: Path) -> None:
        run = run_of(folder, "pads") | {"test_accuracy": 0.123456}
        results.write(run, results.path_of(tmp_path / "results", "imagenette/small-cnn", "pads", 0))
        text = report.write(tmp_path / "results").read_text()
        assert "`pads` (1)" in text.split("## imagenette/small-cnn")[1] and "not open yet" in text
        assert "12.35" not in text

    def test_rows_of_weight_0_are_no_part_of_the_gradient(self, folder: Path, tmp_path: Path) -> None:
        cell, recipe = CELLS["cis-dropped"], replace(RECIPES[RECIPE], epochs=2, batch_size=32)
        train_set, _ = data.prepared("cifar10", PLAIN, folder)
        with training.loader_of(recipe, cell, 1, 2, train_set, tmp_path / "socket") as loader:
            batch = next(iter(loader))
            for weights in (torch.ones(32), torch.tensor([1.0, 0.0] * 16)):
                kept = weights > 0
                run = training.Training(recipe, cell, loader, 1, 2)
                part = SimpleNamespace(images=batch.images, labels=batch.labels, weights=weights)
                losses = run._losses(part)
                run._mean(losses, weights).backward()
                alone = training.Training(recipe, cell, loader, 1, 2)
                logits = alone._logits(batch.images[kept])
                torch.nn.functional.cross_entropy(logits, batch.labels[kept]).backward()
                assert (losses > 0).all(), "a row that is dropped has no loss to report"
                for mine, theirs in zip(run.network.parameters(), alone.network.parameters(), strict=True):
                    assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)
                for mine, theirs in zip(run.norms, alone.norms, strict=True):
                    assert torch.equal(mine.running_mean, theirs.running_mean)

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
        run = run_of(folder, "infobatch-by-loss", seed=1)
        trained = [row["samples_trained"] for row in run["curve"]]
        # Nothing is left out before losses are known, nor in the last epoch.
        assert trained[0] == trained[2] == 400 > trained[1]


def test_the_study_goes_on_where_it_was_interrupted(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "studies.accuracy", "run", "--dirty", "--recipes", RECIPE, "--cells", "uniform-40"]
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


def test_a_run_that_does_not_fit_is_passed_over_and_named(folder: Path, tmp_path: Path) -> None:
    runs = [Run(RECIPE, "rs2-10", seed) for seed in range(3)]
    pool = Pool(1, ["--data", folder, "--results", tmp_path, "--dirty"], time.monotonic() + 3600)
    pool.train(runs[:1])
    assert runs[0].has_record(tmp_path) and pool.not_run == pool.failed == []
    # As if one took longer than is left.
    pool.longest[RECIPE] = 3600.0
    pool.train(runs[1:2])
    assert pool.not_run == runs[1:2]
    over = Pool(1, ["--data", folder, "--results", tmp_path, "--dirty"], time.monotonic())
    over.train(runs[2:])
    assert over.not_run == runs[2:] and not runs[2].has_record(tmp_path)


def test_a_tree_with_changes_is_refused(tmp_path: Path) -> None:
    """In a repository of its own, with the study and one file that is not committed."""
    shutil.copytree(ROOT / "studies", tmp_path / "studies", ignore=shutil.ignore_patterns("results", "__pycache__"))
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "studies/__init__.py"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "studies/__init__.py").write_text("# changed\n")
    command = [sys.executable, "-m", "studies.accuracy", "run", "--cells", "rs2-10", "--results", tmp_path / "results"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == 1 and "the working tree has changes" in said.stderr


def test_two_commands_do_not_train_into_one_folder(folder: Path, tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "studies.accuracy", "run", "--dirty", "--data", folder, "--results", tmp_path]
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
    assert "| too few seeds |" in text, "a verdict from two seeds"
    assert "No table of it is open" in text, "a recipe without runs is not named"
    plot = written.with_name("cifar10-small-cnn.svg").read_bytes()
    assert report.write(records).read_text() == text
    assert written.with_name("cifar10-small-cnn.svg").read_bytes() == plot


def test_a_live_run_waits_for_its_store_and_is_reported(folder: Path, tmp_path: Path) -> None:
    """On a mounted store where one can be mounted, else on the simulated one; 0.01 samples read for
    each computed."""
    records = tmp_path / "results"
    # Where `make test` builds shade-slow-store.
    programs = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    command = [sys.executable, "-m", "studies.accuracy", "live", "--dirty", "--cells", "echo", "--rates", "0.01", "--epochs", "2"]
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
    assert re.search(r"\| `echo` \| \d\.\d \| 0.01 \| 2 \|", text) and "1 of 1 runs with a limit delivered the ids" in text


def live_run(rate: float | None, simulated: float | None, ids: str = "a") -> results.Run:
    """A record of 1,000 samples that took 10 s to compute, and 3 s more to wait for."""
    return {
        **{"cell": "pads", "seed": 0, "rate": rate, "epochs": 1, "samples_trained": 1000, "ids_sha256": ids},
        **{"compute_seconds": 10.0, "stall_seconds": 3.0, "records_per_read": None, "samples_per_second": 100.0},
        **{"store": {"kind": "simulated"}, "date": "2026-11-24T00:00:00", "machine": "one"},
        **{"bytes_read": 1_600_000, "dataset_bytes": 2_000_000, "dataset_samples": 1000},
        "simulated": None if simulated is None else {"stall_s": simulated},
        "simulated_together": None if simulated is None else {"stall_s": simulated + 1},
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
        "| `pads` | 2.0 | no limit | 1 | simulated | 10.0 | 30.0 |  |  |  |  |  | 0.80 |",
        "| `pads` | 2.0 | 0.3 | 1 | simulated | 10.0 | 30.0 | 40.0 | -10.0 | 50.0 | -20.0 |  | 0.80 |",
        "| `pads` | 2.0 | 1 | 1 | simulated | 10.0 | 30.0 | 20.0 | +10.0 | 30.0 | +0.0 |  | 0.80 |",
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
