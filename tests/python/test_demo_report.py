"""What the demo prints, writes and draws, from runs with known figures."""

import json
from pathlib import Path

import pytest
from PIL import Image

from demo import plot, report
from demo.train import Course, Epoch, Run, Setting

COURSE = Course(
    epochs=3, batch_size=128, image_size=28, classes=10, cache="20%", store_delay="2ms", depth=4, seed=0
)  # fmt: skip


def epoch(number: int, hits: int, stall_seconds: float) -> Epoch:
    return Epoch(
        epoch=number,
        train_loss=1.0 / (number + 1),
        val_accuracy=0.5 + number / 10,
        accesses=1000,
        hits=hits,
        prefetched=0,
        misses=1000 - hits,
        hit_ratio=hits / 1000,
        distinct=700,
        distinct_share=0.7,
        repeat_max=3 + number,
        skipped=1,
        substituted=0,
        bytes_read=(1000 - hits) * 500,
        stall_seconds=stall_seconds,
        epoch_seconds=10.0,
    )


@pytest.fixture
def runs() -> list[Run]:
    total = {"total": {"ever_seen_share": 0.95}}
    return [
        Run(Setting("uniform + lru", "uniform", "lru", 1.0), [epoch(n, 20, 8.0) for n in range(3)], total),
        Run(Setting("pads + app", "pads", "app", 2.0), [epoch(n, (0, 400, 500)[n], 3.0) for n in range(3)], total),
    ]


@pytest.mark.parametrize(
    ("row", "uniform", "pads"),
    [
        ("validation accuracy, last epoch", "70.00%", "70.00%"),
        ("hit ratio, all epochs", "2.0%", "30.0%"),
        ("hit ratio, epoch 1 on", "2.0%", "45.0%"),
        ("ever seen, of the training set", "95.0%", "95.0%"),
        ("most repeats of a sample in an epoch", "5", "5"),
        ("skipped / substituted", "3 / 0", "3 / 0"),
        ("read from the store", "1.5 MB", "1.1 MB"),
        ("stall, waiting for batches", "24.0 s", "9.0 s"),
    ],
)
def test_summary_adds_the_epochs_up(runs: list[Run], row: str, uniform: str, pads: str) -> None:
    line = next(line for line in report.summary(runs).splitlines() if line.startswith(row))
    assert line.removeprefix(row).split("  ")[-1].strip() == pads
    assert uniform in line


def test_a_single_epoch_can_be_summed_up(runs: list[Run]) -> None:
    short = [Run(run.setting, run.epochs[:1], run.loader) for run in runs]
    assert "hit ratio, epoch 1 on" in report.summary(short)


def test_a_simulated_store_is_called_one() -> None:
    assert "The store is simulated" in report.notes(COURSE)
    assert "2ms" in report.notes(COURSE)
    local = report.notes(Course(**{**COURSE.__dict__, "store_delay": None}))
    assert "simulated:" not in local and "nothing is simulated" in local


def test_the_record_says_where_when_and_how(runs: list[Run]) -> None:
    data = {"name": "set", "train_samples": 1000, "val_samples": 100}
    result = json.loads(json.dumps(report.record(runs, COURSE, data, threads=1)))
    assert {"date", "command", "machine", "versions", "data", "store_simulated", "course", "runs"} <= result.keys()
    assert result["store_simulated"] is True
    assert result["machine"]["cores"] >= 1
    assert [run["setting"]["name"] for run in result["runs"]] == ["uniform + lru", "pads + app"]
    assert result["runs"][1]["epochs"][2]["hits"] == 500


def test_the_plot_shows_both_runs(tmp_path: Path, runs: list[Run]) -> None:
    data = {"name": "set", "train_samples": 1000, "val_samples": 100}
    plot.draw(report.record(runs, COURSE, data, threads=1), tmp_path / "both.png")
    plot.draw(report.record(runs[:1], COURSE, data, threads=1), tmp_path / "one.png")
    with Image.open(tmp_path / "both.png") as both, Image.open(tmp_path / "one.png") as one:
        assert both.format == "PNG" and min(both.size) >= 800
        assert count_of_colour(both, plot.STYLES[1][0]) > 100
        assert count_of_colour(one, plot.STYLES[1][0]) == 0


def count_of_colour(image: Image.Image, colour: str) -> int:
    wanted = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return sum(count for count, found in image.convert("RGB").getcolors(1 << 24) or [] if found == wanted)
