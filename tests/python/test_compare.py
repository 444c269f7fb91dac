"""`python -m shade_load.compare`: real runs of a script, what interrupts them, and what a table allows to say."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import packed
import pytest
from scipy.stats import t
from shade_load import Plan
from shade_load.compare.cells import Cell, cells_of
from shade_load.compare.paired import CONFIDENCE, Paired, holm, outside, quantile
from shade_load.compare.points import Point, matched, points_of
from shade_load.compare.tables import KINDS, TOO_FEW, Runs, margin_for, table
from shade_load.compare.told import Comparison
from test_in_your_script import patched

SCRIPT = Path(__file__).parent / "compared_train.py"
# A script that trains for two epochs, and a cache that holds less than the data.
SMALL = ("--epochs", "4", "--share", "0.5", "--cache", "20%")
METRIC = ("--metric", "accuracy ([0-9.]+)")
PAIR = ("--cells", "uniform,echo", "--seeds", 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train.shade` and `val.shade`."""
    root = tmp_path_factory.mktemp("compare")
    for split in ("train", "val"):
        packed.image_folder(root / split, "png")
        packed.pack(root / split, root / f"{split}.shade")
    return root


Words = tuple[object, ...]


def given(data: Path, *more: object, epochs: str = "{epochs}") -> Words:
    """Arguments of the script."""
    return (data / "train.shade", data / "val.shade", epochs, "{seed}", *more)


def command(data: Path, out: Path, *options: object, script: object = SCRIPT, arguments: Words = ()) -> list[str]:
    """A comparison on `train.shade`, as a command line."""
    own = (data / "train.shade", "--script", script, "--out", out, *options)
    words = (*own, "--", *(arguments or given(data)))
    return [sys.executable, "-W", "ignore", "-m", "shade_load.compare", *map(str, words)]


def run(words: list[str], code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def whole(words: list[str], code: int = 0) -> Any:
    """The comparison as JSON."""
    return json.loads(run([*words[:5], "--json", *words[5:]], code).stdout)


def same(report: Any) -> Any:
    """What two comparisons must have in common: all but times, and bytes, which depend on them a little."""
    if isinstance(report, dict):
        return {name: same(value) for name, value in report.items() if name not in ("bytes", "seconds", "stall", "verdicts")}
    if isinstance(report, list):
        return [same(part) for part in report if not (isinstance(part, dict) and part.get("at") in ("bytes", "seconds"))]
    return report


def about(out: Path, run_name: str) -> Any:
    """What the Loader of a finished run noted of itself."""
    return json.loads((out / run_name / "record.json").read_text(encoding="utf-8"))["about"]


def starts(file: Path) -> list[int]:
    return [int(pid) for pid in file.read_text(encoding="utf-8").split()] if file.exists() else []


def wait_until(happened: Any) -> None:
    while not happened():
        time.sleep(0.01)


def ends(pid: int) -> bool:
    """Whether a process is gone, or waits for a parent that asks how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class TestPaired:
    def test_students_distribution_is_scipys(self) -> None:
        for degrees, share in product(range(1, 40), (0.9, 0.95, 0.975, 0.99, 0.999, 0.9999)):
            value = quantile(share, degrees)
            assert value == pytest.approx(t.ppf(share, degrees), rel=1e-9)
            assert outside(value, degrees) == pytest.approx(2 * t.sf(value, degrees), rel=1e-9)

    def test_an_interval_and_its_chance_say_the_same(self) -> None:
        random_ = random.Random(3)
        for _ in range(200):
            found = Paired.of([random_.gauss(0.4, 0.5) for _ in range(random_.randint(2, 8))])
            low, high = found.interval()
            assert (found.chance() < 1 - CONFIDENCE) == (low > 0 or high < 0)
            assert (found.chance_of_loss(0.5) < 1 - CONFIDENCE) == (low > -0.5)

    def test_no_difference_at_all_is_as_good(self) -> None:
        found = Paired.of([0.0] * 4)
        assert (found.chance(), found.chance_of_loss(0.5)) == (1.0, 0.0)

    def test_holm_is_monotone_and_between_no_correction_and_bonferroni(self) -> None:
        assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
        random_ = random.Random(4)
        for _ in range(100):
            chances = {str(number): random_.random() ** 3 for number in range(random_.randint(1, 6))}
            adjusted = holm(chances)
            in_order = sorted(chances, key=lambda name: chances[name])
            assert [adjusted[name] for name in in_order] == sorted(adjusted.values())
            for name, chance in chances.items():
                assert chance <= adjusted[name] <= min(1.0, len(chances) * chance)
            more = holm({**chances, "more": random_.random()})
            assert all(more[name] >= adjusted[name] for name in chances)


def made(last: float, epochs: int = 4, an_epoch: int = 100) -> list[Point]:
    """A run whose score rises by 10 an epoch."""
    return [Point(n, n * an_epoch, float(n), 0.1, last - 10 * (epochs - n)) for n in range(1, epochs + 1)]


def runs_of(shift: float, seeds: int = 5, **other: Any) -> Runs:
    """A cell that is `shift` better than the baseline, by a little more or less."""
    spread = [0.0, 0.1, -0.1, 0.2, -0.2, 0.05][:seeds]
    return {
        "uniform": {seed: made(70 + seed) for seed in range(seeds)},
        "echo": {seed: made(70 + seed + shift + by, **other) for seed, by in enumerate(spread)},
    }


class TestTables:
    @pytest.mark.parametrize(
        ("shift", "verdict"),
        [(1.0, "better"), (0.0, "as good"), (-0.25, "worse, within the margin"), (-0.45, "worse"), (-5.0, "worse")],
    )
    def test_a_verdict_follows_from_the_interval(self, shift: float, verdict: str) -> None:
        (row,) = table(KINDS[0], runs_of(shift), 0.5).rows
        assert row.verdict == verdict
        assert row.difference.mean == pytest.approx(shift + 0.0)

    def test_a_lower_score_can_be_the_better_one(self) -> None:
        (row,) = table(KINDS[0], runs_of(-5.0), 0.5, sign=-1).rows
        assert (row.verdict, row.difference.mean > 0) == ("better", True)

    def test_three_seeds_allow_no_verdict(self) -> None:
        for each in KINDS:
            (row,) = table(each, runs_of(5.0, seeds=3), 0.5).rows
            assert row.verdict == TOO_FEW
        assert f"echo: {TOO_FEW}, 3 of at least 4" in Comparison("t", runs_of(5.0, seeds=3), 0.5).as_text()

    def test_the_order_of_seeds_and_cells_changes_nothing(self) -> None:
        runs = {**runs_of(0.3), "pads": runs_of(-0.4)["echo"]}
        shuffled: Runs = {
            "uniform": runs["uniform"],
            "pads": dict(reversed(runs["pads"].items())),
            "echo": {seed: runs["echo"][seed] for seed in (3, 0, 4, 1, 2)},
        }
        for each in KINDS:
            rows = {row.cell: row for row in table(each, runs, 0.5).rows}
            assert rows == {row.cell: row for row in table(each, shuffled, 0.5).rows}

    def test_another_cell_never_makes_a_chance_smaller(self) -> None:
        (alone,) = table(KINDS[0], runs_of(0.3), 0.5).rows
        both = table(KINDS[0], {**runs_of(0.3), "pads": runs_of(-0.4)["echo"]}, 0.5).rows[0]
        assert (both.cell, both.difference) == (alone.cell, alone.difference)
        assert both.chance >= alone.chance and both.chance_of_loss >= alone.chance_of_loss

    def test_at_equal_bytes_a_run_counts_as_far_as_it_came(self) -> None:
        (row,) = table(KINDS[1], runs_of(0.0, an_epoch=50), 0.5).rows
        assert (row.budget, row.epochs, row.epochs_of_baseline) == (200, 4, 2)
        assert row.difference.mean == pytest.approx(20)
        # The baseline stands where its schedule does not end, so nothing good is shown.
        assert row.verdict == "an upper bound"
        assert table(KINDS[1], runs_of(-30.0, an_epoch=50), 0.5).rows[0].verdict == "worse"
        assert table(KINDS[1], runs_of(0.0, an_epoch=200), 0.5).rows[0].verdict == "a lower bound"
        assert table(KINDS[1], runs_of(30.0, an_epoch=200), 0.5).rows[0].verdict == "better"

    def test_a_little_more_is_equal(self) -> None:
        (row,) = table(KINDS[1], runs_of(0.0, an_epoch=99), 0.5).rows
        assert (row.epochs_of_baseline, row.verdict) == (4, "as good")

    def test_a_run_without_a_score_in_the_budget_is_left_out(self) -> None:
        runs = runs_of(0.0, an_epoch=10)
        late = {
            seed: [replace(point, score=point.score if point.epochs == 4 else None) for point in run]
            for seed, run in runs["uniform"].items()
        }
        found = table(KINDS[1], {"uniform": late, "echo": runs["echo"]}, 0.5)
        assert (found.rows, list(found.left_out)) == ([], ["echo"])

    def test_seeds_that_a_cell_lacks_are_left_out(self) -> None:
        runs = runs_of(0.3)
        fewer = {"uniform": runs["uniform"], "echo": {seed: runs["echo"][seed] for seed in range(4)}}
        assert table(KINDS[0], fewer, 0.5).rows[0].difference.count == 4

    def test_shares_have_a_smaller_margin(self) -> None:
        assert margin_for(runs_of(0.0)) == 0.5
        shares: Runs = {"uniform": {0: [Point(1, 1, 1.0, 0.0, 0.7)]}, "echo": {0: [Point(1, 1, 1.0, 0.0, 1.0)]}}
        assert margin_for(shares) == 0.005

    def test_the_text_has_100_columns(self) -> None:
        names = {"uniform:epochs=0.5": "uniform", "pads:draw_ahead:explore=0.25": "echo"}
        runs = {name: runs_of(0.1)[cell] for name, cell in names.items()}
        assert max(map(len, Comparison("t", runs, 0.5).as_text().splitlines())) <= 100


class TestWords:
    def test_cells(self) -> None:
        cells = cells_of("uniform:epochs=0.5, pads:draw_ahead:explore=0.2,echo:echo=3,script")
        assert [cell.plan for cell in cells] == [
            {"sampler": "uniform"},
            {"sampler": "pads", "draw_ahead": True, "explore": 0.2},
            {"sampler": "echo", "echo": 3.0},
            {},
        ]
        assert [cell.epochs(9) for cell in cells] == [4, 9, 9, 9]

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("best", "sampler"),
            ("echo:speed=1", "'speed'"),
            ("echo:echo=x", "echo"),
            ("uniform:epochs=2", "epochs"),
            ("pads:draw_ahead=often", "draw_ahead"),
        ],
    )
    def test_a_cell_that_there_is_not(self, text: str, named: str) -> None:
        with pytest.raises((ValueError, TypeError), match=named):
            Cell.of(text)

    def test_every_option_of_a_plan_can_be_one_of_a_cell(self) -> None:
        other = {"epoch_length": "longest", "order": "spaced", "tail": "drop", "on_error": "skip", "group": "sweep"}
        for field in fields(Plan):
            if field.name in ("sampler", "indices", "weights", "bucket"):
                continue
            value = other.get(field.name) or ("true" if field.default is False else "false" if field.default is True else "1")
            found = Cell.of(f"pads:{field.name}={value}").plan[field.name]
            assert type(found) is type(field.default) or field.default is None, field.name
        assert Cell.of("echo:gap=30").plan == {"sampler": "echo", "gap": 30}
        assert Cell.of("uniform:epoch_length=5000").plan["epoch_length"] == 5000

    def test_a_cell_that_would_be_permutations_is_refused(self, data: Path, tmp_path: Path) -> None:
        for cells in ["uniform,iis", "uniform,echo,pads:epochs=0.5", "uniform,pads:draw_ahead"]:
            words = command(data, tmp_path / "out", *SMALL, "--cells", cells)
            assert "takes each sample once until its epoch" in run(words, 1).stderr

    def test_a_score_belongs_to_the_epoch_that_ended_before_it(self) -> None:
        log = b"accuracy 1\nepoch\raccuracy 2\rbar accuracy 3\naccuracy 4 accuracy 5\n"
        second = log.index(b"bar")
        found = matched(log, re.compile(rb"accuracy (\d)"), [0, second])
        assert found == [(1, 1.0), (1, 2.0), (2, 3.0), (2, 5.0)]
        # Where the second epoch had begun before it, it is of that, whose end has cost more.
        begun = [0, log.index(b"accuracy 2")]
        assert [after for after, _ in matched(log, re.compile(rb"accuracy (\d)"), [0, second], begun)] == [1, 2, 2, 2]
        # The epoch of the second score was never trained to its end.
        points = points_of([{"bytes": 1, "successors": 0, "at": 2.0, "stall": 0.0}], 1.0, [(1, 5.0), (2, 6.0)])
        assert [(point.epochs, point.score) for point in points] == [(1, 5.0)]
        # A line that begins before its epoch does.
        log = b"epoch 0 accuracy 1\nepoch 1 accuracy 2\n"
        assert matched(log, re.compile(rb"accuracy (\d)"), [8, 27], [8, 27]) == [(1, 1.0), (2, 2.0)]
        with pytest.raises(ValueError):
            matched(b"accuracy nan\n", re.compile(rb"accuracy (\S+)"), [0])


class TestRuns:
    def test_a_comparison_goes_on_where_it_was_killed(self, data: Path, tmp_path: Path) -> None:
        def words(out: str, *more: object) -> list[str]:
            arguments = given(data, "--report", "--losses", *more)
            return command(data, tmp_path / out, *SMALL, "--cells", "uniform,echo,pads", "--seeds", 2, arguments=arguments)

        undisturbed = whole(words("undisturbed", "--starts", tmp_path / "other"))
        killed = subprocess.Popen(words("killed", "--starts", tmp_path / "starts"), stderr=subprocess.DEVNULL)
        wait_until(lambda: len(starts(tmp_path / "starts")) == 3)
        finished = len(list((tmp_path / "killed").glob("*/record.json")))
        killed.kill()
        killed.wait()
        # The script does not outlive the command.
        wait_until(lambda: ends(starts(tmp_path / "starts")[-1]))
        report = whole(words("killed", "--starts", tmp_path / "starts"))
        assert same(report) == same(undisturbed)
        assert finished == 2 and len(starts(tmp_path / "starts")) == 3 + 4
        assert [row["verdict"] for row in report["tables"][0]["rows"]] == [TOO_FEW] * 2

        cells = {cell["cell"]: cell for cell in report["cells"]}
        assert {cell["epochs"] for cell in cells.values()} == {2} and report["seeds"] == [0, 1]
        # In two epochs of few batches neither must read less.
        assert min(cell["bytes"] for cell in cells.values()) > 0
        scores = {(name, seed): run[-1]["score"] for name, cell in cells.items() for seed, run in cell["runs"].items()}
        assert len(set(scores.values())) == len(scores), "each cell and seed was given other samples"
        again = whole(words("killed", "--starts", tmp_path / "starts"))
        assert again == report and len(starts(tmp_path / "starts")) == 7, "nothing is trained again"
        of_pads = about(tmp_path / "killed", "pads-1")
        assert (of_pads["job"]["plan"]["sampler"], of_pads["job"]["plan"]["seed"]) == ("pads", 1)
        assert set(of_pads["versions"]) == {"client", "daemon", "python", "torch"}

    def test_ctrl_c_ends_the_script(self, data: Path, tmp_path: Path) -> None:
        arguments = given(data, "--report", "--starts", tmp_path / "starts", "--hangs", "0")
        words = command(data, tmp_path / "out", *SMALL, *PAIR, arguments=arguments)
        comparing = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        log = tmp_path / "out/uniform-0/log.txt"
        wait_until(lambda: log.exists() and b"accuracy" in log.read_bytes())
        comparing.send_signal(signal.SIGINT)
        said = comparing.communicate()[1]
        assert comparing.returncode == 130 and "the same command goes on" in said, said
        assert ends(starts(tmp_path / "starts")[0])

    def test_the_score_may_be_a_line_that_the_script_prints(self, data: Path, tmp_path: Path) -> None:
        words = command(data, tmp_path / "out", *SMALL, *PAIR, arguments=given(data, "--starts", tmp_path / "starts"))
        failed = run(words, code=1)
        assert "report_validation" in failed.stderr and "--metric" in failed.stderr
        assert len(starts(tmp_path / "starts")) == 1, "the other runs would have no score either"
        report = whole([*words[:5], *METRIC, *words[5:]])
        assert len(starts(tmp_path / "starts")) == 2, "the finished run is not trained again"
        assert [50 <= cell["score"] <= 51 for cell in report["cells"]] == [True, True]
        points = report["cells"][0]["runs"]["0"]
        assert all(point["score"] is not None for point in points) and points[0]["score"] != points[1]["score"]

    def test_two_ranks(self, data: Path, tmp_path: Path) -> None:
        ranks = 'export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2; RANK=1 "$0" "$@" & RANK=0 "$0" "$@"; wait'
        launch = ("--launch", f"sh -c '{ranks}' {sys.executable}")
        report = whole(command(data, tmp_path / "out", *SMALL, *METRIC, *PAIR, *launch))
        assert [cell["epochs"] for cell in report["cells"]] == [2, 2]
        of_echo = about(tmp_path / "out", "echo-0")
        assert (of_echo["rank"], of_echo["world_size"]) == (0, 2)

    def test_what_the_script_gives_otherwise_gives_way_and_is_told(self, data: Path, tmp_path: Path) -> None:
        arguments = given(data, "--report", "--losses", "--sampler", "pads")
        words = command(data, tmp_path / "out", *SMALL, "--cells", "script,echo", "--seeds", 1, arguments=arguments)
        assert "echo: Plan.sampler='pads' of the script gave way to 'echo'" in whole(words)["notes"]
        plans = [about(tmp_path / "out", cell)["job"]["plan"] for cell in ("script-0", "echo-0")]
        assert [plan["sampler"] for plan in plans] == ["pads", "echo"]

    def test_a_loader_that_validates_first_starts_the_daemon_with_the_runs_cache(self, data: Path, tmp_path: Path) -> None:
        arguments = given(data, "--report", "--val-first")
        whole(command(data, tmp_path / "out", *SMALL, *PAIR, arguments=arguments))
        assert [about(tmp_path / "out", run_name)["daemon"]["cache"] for run_name in ("uniform-0", "echo-0")] == ["20%"] * 2

    def test_no_run_has_a_tier_that_is_warm_from_another(self, data: Path, tmp_path: Path) -> None:
        tier = "valkey://127.0.0.1:1"
        words = command(data, tmp_path / "out", *SMALL, *PAIR, arguments=given(data, "--report", "--tier", tier))
        notes = whole(words)["notes"]
        for cell in ("uniform", "echo"):
            assert f"{cell}: Daemon.tier='{tier}' of the script gave way to None" in notes
            assert about(tmp_path / "out", f"{cell}-0")["daemon"]["tier"] == "none"

    def test_a_dry_run_runs_nothing(self, data: Path, tmp_path: Path) -> None:
        shown = run(command(data, tmp_path / "out", *SMALL, "--seeds", 2, "--dry-run")).stdout
        assert shown.count("to do") == 6 and "the first one tells" in shown
        assert f"{data}/train.shade {data}/val.shade 2 1" in shown
        assert not (tmp_path / "out").exists()


class TestFailures:
    def said(self, data: Path, out: Path, *options: object, arguments: Words = ()) -> str:
        return run(command(data, out, *SMALL, *PAIR, *options, arguments=arguments), code=1).stderr

    def test_a_script_that_fails_is_told_with_its_last_lines(self, data: Path, tmp_path: Path) -> None:
        said = self.said(data, tmp_path / "out", arguments=given(data, "--fails"))
        assert "ended with exit code 1" in said and "the loss is not finite" in said
        log = tmp_path / "out/uniform-0/log.txt"
        assert str(log) in said and b"not finite" in log.read_bytes()

    def test_a_script_that_does_not_end_is_ended(self, data: Path, tmp_path: Path) -> None:
        arguments = given(data, "--hangs", "0", "--starts", tmp_path / "starts")
        said = self.said(data, tmp_path / "out", "--timeout", "1", arguments=arguments)
        assert said.count("ran longer than --timeout, and was ended") == 2
        assert all(map(ends, starts(tmp_path / "starts")))

    def test_nothing_tells_it_its_epochs(self, data: Path, tmp_path: Path) -> None:
        said = self.said(data, tmp_path / "out", arguments=given(data, epochs="2"))
        assert "{epochs}" in said and not (tmp_path / "out").exists()

    def test_it_does_not_read_its_epochs(self, data: Path, tmp_path: Path) -> None:
        launch = ("--launch", f"env X={{epochs}} {sys.executable}")
        said = self.said(data, tmp_path / "more", *launch, arguments=given(data, epochs="3"))
        assert "more epochs than 2" in said
        said = self.said(data, tmp_path / "fewer", *launch, arguments=given(data, epochs="1"))
        assert "trained 1 epochs in place of 2" in said

    def test_it_ignores_the_environment(self, data: Path, tmp_path: Path) -> None:
        said = self.said(data, tmp_path / "unset", "--launch", f"env --unset=SHADE_COMPARE_RUN {sys.executable}")
        assert "made no shade_load.Loader that knows of this comparison" in said
        said = self.said(data, tmp_path / "other", arguments=(data / "val.shade", data / "train.shade", "{epochs}"))
        assert f"trained no whole epoch on {data}/train.shade" in said and f"{data}/val.shade (trains)" in said

    def test_it_reports_no_losses(self, data: Path, tmp_path: Path) -> None:
        said = self.said(data, tmp_path / "out", *METRIC, "--cells", "uniform,pads")
        assert "reports no losses, and pads draws by them" in said
        assert (tmp_path / "out/uniform-0/record.json").exists(), "other cells go on"

    def test_other_settings_are_refused(self, data: Path, tmp_path: Path) -> None:
        run(command(data, tmp_path / "out", *SMALL, *METRIC, *PAIR))
        said = self.said(data, tmp_path / "out", *METRIC, "--cache", "30%")
        assert "another cache" in said and "another --out" in said

    @pytest.mark.parametrize("dataset", ["nowhere.shade", "s3://", "\x01"])
    def test_no_dataset(self, dataset: str, data: Path, tmp_path: Path) -> None:
        words = command(data, tmp_path / "out", *SMALL)
        words[words.index(str(data / "train.shade"))] = dataset
        said = run(words, code=1).stderr
        assert said.count("\n") <= 2 and "Traceback" not in said, said

    def test_a_folder_that_is_no_run(self, data: Path, tmp_path: Path) -> None:
        environment = {**os.environ, "SHADE_COMPARE_RUN": str(tmp_path)}
        words = [sys.executable, SCRIPT, data / "train.shade", data / "val.shade", "1"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "SHADE_COMPARE_RUN names" in done.stderr


def test_a_stock_script_is_compared(data: Path, tmp_path: Path) -> None:
    """torchvision's reference with the diff of docs/in-your-script.md, and nothing else."""
    pytest.importorskip("torchvision")
    script = patched("torchvision_reference.py", tmp_path)
    small = ("--device", "cpu", "--model", "squeezenet1_1", "--size", "32", "--batch-size", "16")
    arguments = (data, "{out}", "--epochs", "{epochs}", *small)
    done = run(command(data, tmp_path / "out", *SMALL, *PAIR, *METRIC, script=script, arguments=arguments))
    assert f"echo: {TOO_FEW}, 1 of at least 4" in done.stdout and "without {seed}" in done.stdout
    assert not (tmp_path / "out/echo-0/out").exists(), "what the script wrote is removed"
