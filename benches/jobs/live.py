"""What several trainings on one machine read and cost, live: real processes that sleep instead of computing.

    python -m benches.jobs.live --programs target/release

Real PNGs and JPEGs on a slow store, 1, 2, 4 and 8 trainings by importance: with a daemon and a part
of the cache each, with one daemon, and in a group. Every row that a trainer is given is checked.
`shade-load simulate` plays the same jobs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shade_load import __version__

from benches import recorded
from benches.jobs import live_report, pictures, sleeping_trainer
from benches.jobs.live_process import Task
from benches.jobs.live_report import JOBS, SCARCE
from benches.rivals.report import Start
from studies import slow_store as stores

SEPARATE, ONE, GROUP = "a daemon each", "one daemon", "one daemon, a group"
CACHE = 0.2
DELAY_US, AT_ONCE = 2000, 1
SEEDS = 5
# Trainers that compute so much faster want more than the store gives.
SCARCE_FASTER = 8


@dataclass(frozen=True)
class Scale:
    """How large the runs are."""

    samples: int
    jobs: tuple[int, ...]
    compute_us: int
    epochs: int
    skip_epochs: int


FULL = Scale(samples=1500, jobs=(1, 2, 4, 8), compute_us=6000, epochs=5, skip_epochs=2)
QUICK = Scale(samples=300, jobs=(1, 2), compute_us=3000, epochs=3, skip_epochs=1)


def main() -> int:
    """Runs all rows, writes results.json and report.md; returns the exit status."""
    parser = recorded.options("benches.jobs.live", __doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few samples and jobs: shows that it runs")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    return recorded.write("jobs-live", arguments.out, partial(run, scale, arguments.programs), live_report.report)


def run(scale: Scale, programs: Path, scratch: Path, start: Start) -> dict[str, Any]:
    """All rows, and where they were measured.

    Raises:
        OSError: No file system can be mounted here: reads cannot be counted at the store.
    """
    store = recorded.mounted(programs, DELAY_US, AT_ONCE, scratch)
    pictures.write(scratch / "images", scale.samples)
    dataset = recorded.pack(scratch / "images", scratch / "dataset")
    rows = []
    for jobs, way, beside in _runs(scale):
        row = {"jobs": jobs, "way": way, "beside": beside, **_live(scale, store, dataset, jobs, way, beside)}
        if beside is None:
            row["simulated"] = _simulated(scale, dataset, jobs, way)
        rows.append(row)
        print(live_report.said(row), flush=True)
    result = start.finish({"shade": __version__}, rows)
    return {
        **result,
        "samples": scale.samples,
        "record_bytes": round(recorded.info(dataset)["record_bytes"]["mean"]),
        "cache": CACHE,
        "store": {"delay_us": DELAY_US, "at_once": AT_ONCE},
        "compute_us": scale.compute_us,
        "batch_size": sleeping_trainer.BATCH,
        "epochs": scale.epochs,
        "skip_epochs": scale.skip_epochs,
        "simulated_seeds": SEEDS,
    }


def _runs(scale: Scale) -> list[tuple[int, str, str | None]]:
    """Jobs, way, and what else there is."""
    ways = [(jobs, way, None) for jobs in scale.jobs for way in ((SEPARATE, ONE, GROUP) if jobs > 1 else (ONE,))]
    scarce = [(JOBS, ONE, SCARCE)] if JOBS in scale.jobs else []
    return [*ways, *scarce, *((1, ONE, beside) for beside in ("stopped", "killed", "greedy"))]


def _live(scale: Scale, store: stores.SlowStore, dataset: Path, jobs: int, way: str, beside: str | None) -> dict[str, Any]:
    """Trains the jobs over the store; sums over them, and what each was given."""
    is_scarce = beside == SCARCE
    compute_us = scale.compute_us // SCARCE_FASTER if is_scarce else scale.compute_us
    told, kept = (store.mountpoint.with_name(f"{kind}.json") for kind in ("task", "result"))

    def command(mounted: Path) -> list[Any]:
        Task(
            dataset=str(mounted),
            jobs=jobs,
            separate=way == SEPARATE,
            group=way == GROUP,
            cache=CACHE,
            compute_us=compute_us,
            epochs=scale.epochs,
            skip_epochs=scale.skip_epochs,
            beside=None if is_scarce else beside,
            result=str(kept),
        ).write(told)
        return [sys.executable, "-m", "benches.jobs.live_process", told]

    operations = store.run(dataset, command)
    result = json.loads(kept.read_text())
    trainers = result["trainers"]

    def total(name: str) -> int:
        return sum(trainer[name] for trainer in trainers)

    counted = (scale.epochs - scale.skip_epochs) * scale.samples
    return {
        "compute_us": compute_us,
        "datasets_per_epoch": round((total("reads") + total("coalesced")) / counted, 4),
        "reads_per_epoch": round(total("reads") / counted, 4),
        "hit_ratio": round(total("hits") / total("accesses"), 4),
        "stall_shares": [round(trainer["stall_seconds"] / trainer["compute_seconds"], 4) for trainer in trainers],
        "operations": operations,
        "reads_of_daemons": total("reads_in_all"),
        "records_of_daemons": total("records_in_all"),
        "daemon_cpu_us_per_row": round(result["daemon_cpu_seconds"] / sum(t["ledger"]["rows"] for t in trainers) * 1e6, 1),
        **result,
    }


def _simulated(scale: Scale, dataset: Path, jobs: int, way: str) -> dict[str, Any]:
    """The simulator's row of the same jobs. Daemons of their own have a part of the store there."""
    # A part of the store takes as long for an operation as all jobs' turns take.
    part = f"latency={DELAY_US * jobs // AT_ONCE}us,depth=1"
    words: list[object] = [dataset, "--preset", "clairvoyant", "--batch-size", sleeping_trainer.BATCH]
    words += ["--epochs", scale.epochs, "--skip-epochs", scale.skip_epochs, "--cache", f"{100 * CACHE:g}%", "--seeds", SEEDS]
    words += ["--store", part if way == SEPARATE else f"latency={DELAY_US}us,depth={AT_ONCE}", "--compute", f"{scale.compute_us}us"]
    if jobs > 1:
        words += ["--jobs", jobs, "--correlation", sleeping_trainer.CORRELATION, *(["--group"] if way == GROUP else [])]
    rows = recorded.simulate(*words)
    if jobs == 1:
        (row,) = rows
        read = row["bytes_read"] / (scale.epochs - scale.skip_epochs)
        return {"datasets_per_epoch": read / recorded.info(dataset)["stored_bytes"], "stall_share": row["stall_share"]}
    (row,) = (row for row in rows if row["is_shared"] == (way != SEPARATE))
    return {"datasets_per_epoch": row["datasets_per_epoch"], "stall_share": sum(row["stall_shares"]) / jobs}


if __name__ == "__main__":
    sys.exit(main())
