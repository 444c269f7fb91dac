"""The writers take turns at packing one tree; each run is one process, judged by what it says and what it wrote."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.rivals import report

# Rows in the order of the table; names are those of modules in writers/.
WRITERS = {
    "shade_nosync": "shade-pack create --no-sync",
    "shade": "shade-pack create",
    "ffcv": "FFCV DatasetWriter",
    "mosaicml": "MosaicML Streaming MDSWriter",
    "litdata": "LitData optimize",
    "webdataset": "WebDataset ShardWriter",
}
OURS = ("shade_nosync", "shade")
# The slowest seen takes a tenth of it for 4,000 images.
SECONDS_MAX = 600


class NotMeasured(Exception):
    """There is nothing to report."""


class Left(Exception):
    """A writer that cannot be measured here, and why."""


@dataclass(frozen=True)
class Task:
    """What every writer has to do."""

    source: Path
    scratch: Path
    programs: Path
    workers: int


@dataclass(frozen=True)
class Run:
    """One run of one writer."""

    seconds: float
    wall_seconds: float
    written_bytes: int
    version: str


@dataclass(frozen=True)
class Tree:
    """The ImageFolder's size."""

    files: int
    bytes: int


def measure(source: Path) -> Tree:
    """Reads every file once, too, so that they are in the page cache."""
    sizes = [len(path.read_bytes()) for path in source.rglob("*") if path.is_file()]
    return Tree(len(sizes), sum(sizes))


def take_turns(task: Task, names: list[str], rounds: int) -> dict[str, list[Run]]:
    """The runs of each writer; one that fails once is left out of the rest, with a message."""
    tree = measure(task.source)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(rounds):
        for name in list(runs):
            print(f"round {number + 1} of {rounds}: {WRITERS[name]} ...", file=sys.stderr)
            try:
                runs[name].append(_one(task, name, tree))
            except Left as why:
                print(f"skipped: {WRITERS[name]}: {why}", file=sys.stderr)
                del runs[name]
    if not runs:
        raise NotMeasured("no writer runs here")
    return runs


def _one(task: Task, name: str, tree: Tree) -> Run:
    out = task.scratch / f"out-{name}"
    words = [sys.executable, "-m", "benches.rivals.one", name, task.source, out, task.programs, str(task.workers)]
    # What went before must not be on its way to the disk any more.
    os.sync()
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise Left(lines[-1] if lines else f"exit status {done.returncode}")
        written = _bytes_below(out)
    except subprocess.TimeoutExpired as error:
        raise Left(f"not done after {SECONDS_MAX} s") from error
    finally:
        shutil.rmtree(out, ignore_errors=True)
    if written < tree.bytes:
        raise Left(f"wrote {written} bytes of {tree.bytes}: it did not store the files as they are")
    told = json.loads(done.stdout.splitlines()[-1])
    return Run(told["seconds"], told["wall_seconds"], written, told["version"])


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def rows(runs: dict[str, list[Run]], tree: Tree) -> list[dict[str, Any]]:
    """A row for each writer; ours say how they stand to the fastest of the others."""
    made = {name: report.row(WRITERS[name], [tree.files / run.seconds for run in each]) for name, each in runs.items()}
    rivals = [row for name, row in made.items() if name not in OURS]
    fastest = max(rivals, key=lambda row: row["median"], default=None)
    for name, row in made.items():
        row["mb_per_s"] = row["median"] * tree.bytes / tree.files / 1e6
        row["wall_seconds"] = report.median([run.wall_seconds for run in runs[name]])
        row["written_over_source"] = runs[name][-1].written_bytes / tree.bytes
        if name in OURS and fastest:
            row["rival"], row["ratio"] = fastest["name"], row["median"] / fastest["median"]
    return list(made.values())
