"""The live benches of several jobs: their ledger finds what is wrong, and they run and report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import live_bench
import numpy
import pytest
from shade_load import Loader
from shade_load.transforms import RandomHorizontalFlip, RandomResizedCrop

from benches.jobs import live_report, pictures, sweep_report
from benches.jobs.ledger import RATIO, SCALE, Ledger
from benches.jobs.sweep import QUICK
from packed import Packed, pack

SAMPLES, SIDE = 60, 64

Batch = tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    folder = tmp_path_factory.mktemp("pictures")
    pictures.write(folder / "images", SAMPLES)
    return pack(folder / "images", folder / "data.shade")


def told_by(dataset: Packed, change: Callable[..., Batch], crop: tuple[float, float] = SCALE) -> dict[str, int]:
    """What a ledger finds in three epochs whose batches are changed on the way."""
    ledger = Ledger(SAMPLES)
    decode = [RandomResizedCrop(SIDE, crop, RATIO), RandomHorizontalFlip()]
    with Loader(dataset.path, 20, decode=decode) as loader:
        for _ in range(3):
            for batch in loader:
                ledger.add(*change(batch.ids.numpy(), batch.labels.numpy(), batch.images.numpy()))
            ledger.end_epoch(SAMPLES, SAMPLES)
    assert ledger.rows == 3 * SAMPLES
    return ledger.result()["faults"]


def unmirrored(images: numpy.ndarray) -> numpy.ndarray:
    """Red rises from left to right in each."""
    rises = images[:, 0, :, -8:].mean((1, 2)) > images[:, 0, :, :8].mean((1, 2))
    return numpy.where(rises[:, None, None, None], images, images[..., ::-1])


def test_what_is_right_has_no_fault(dataset: Packed) -> None:
    assert dataset.labels == [sample // (SAMPLES // pictures.CLASSES) for sample in range(SAMPLES)]
    assert told_by(dataset, lambda *batch: batch) == {}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda ids, labels, images: (ids, labels[::-1], images), "another label"),
        (lambda ids, labels, images: (ids, labels, images[::-1]), "pixels of another sample"),
        (lambda ids, labels, images: (ids + 1, labels, images), "no such sample"),
        (lambda ids, labels, images: (numpy.append(ids[:-1], ids[0]), labels, images), "other samples than planned"),
        (lambda ids, labels, images: (ids, labels, unmirrored(images)), "mirrored too often or too seldom"),
        (lambda ids, labels, images: (ids, labels, images.repeat(4, 2).repeat(4, 3)[:, :, :SIDE, :SIDE]), "too small"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(dataset: Packed, change: Callable[..., Batch], fault: str) -> None:
    assert any(fault in found for found in told_by(dataset, change))


def test_crops_of_one_size_are_found(dataset: Packed) -> None:
    assert "crops much alike" in told_by(dataset, lambda *batch: batch, (0.5, 0.5))


def test_live_jobs_are_given_what_they_should_be(tmp_path: Path) -> None:
    record, report = live_bench.run("benches.jobs.live", tmp_path, "--quick")
    rows = {(row["jobs"], row["way"]): row for row in record["rows"] if row["beside"] is None}
    assert all(trainer["ledger"]["faults"] == {} for row in rows.values() for trainer in row["trainers"])
    separate, group = rows[2, "a daemon each"], rows[2, "one daemon, a group"]
    assert (separate["daemons"], group["daemons"]) == (2, 1)
    assert group["datasets_per_epoch"] < separate["datasets_per_epoch"]
    assert "No fault." in report and "Not measured: this run has no 4 jobs." in report
    assert report == live_report.report(record)


def test_a_sweep_is_started_by_a_shell_loop(tmp_path: Path, jpeg_folder: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for split in ("train", "val"):
        (images / split).symlink_to(jpeg_folder)
    ways = (sweep_report.SEPARATE, sweep_report.ONE)
    options = ["--quick", "--data", images, *(word for way in ways for word in ("--way", way))]
    record, report = live_bench.run("benches.jobs.sweep", tmp_path, *options)
    separate, one = (row["trainings"] for row in record["rows"])
    assert [len({training["daemon_pid"] for training in row}) for row in (separate, one)] == [2, 1]
    assert len({training["job"] for training in separate}) == 1
    assert [training["rate"] for training in one] == list(QUICK.rates)
    assert report == sweep_report.report(record)


def test_the_aims_are_compared_with_four_jobs() -> None:
    def row(way: str, datasets: float, cpu: float, stall: float) -> dict[str, Any]:
        simulated = {"datasets_per_epoch": 0.58, "stall_share": 0.01}
        return {
            "jobs": 4, "way": way, "beside": None, "datasets_per_epoch": datasets, "reads_per_epoch": datasets, "hit_ratio": 0.5,
            "daemon_cpu_us_per_row": cpu, "stall_shares": [stall] * 4, "simulated": simulated, "operations": {"read": 100},
            "reads_of_daemons": 100, "trainers": [],
        }  # fmt: skip

    def aims(rows: list[dict[str, Any]]) -> list[str]:
        return [line for line in live_report.aims(rows) if "≤" in line]

    separate = row("a daemon each", 2.9, 400.0, 0.01)
    assert all("| met |" in line for line in aims([separate, row("one daemon, a group", 0.6, 130.0, 0.02)]))
    assert all("| MISSED |" in line for line in aims([separate, row("one daemon, a group", 0.7, 150.0, 0.04)]))
