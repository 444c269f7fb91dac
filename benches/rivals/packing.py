"""The writers take turns at packing one tree; each run is one process, judged by what it says and what it wrote."""

import argparse
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.rivals import images, report
from benches.rivals.turns import Left, take_turns, tell

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
FILES = 4_000
# The slowest seen takes a tenth of it for 4,000 images.
SECONDS_MAX = 600
NAMES = list(WRITERS)


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


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here."""
    source = arguments.data or images.make(arguments.programs, arguments.files, scratch)
    task = Task(source, scratch, arguments.programs, arguments.workers)
    tree = measure(source)
    names = {name: title for name, title in WRITERS.items() if name in (arguments.only or WRITERS)}
    runs = take_turns(names, arguments.rounds, lambda name: _one(task, name, tree))
    return {name: each[0].version for name, each in runs.items()}, rows(runs, tree)


def measure(source: Path) -> Tree:
    """Reads every file once, too, so that they are in the page cache."""
    sizes = [len(path.read_bytes()) for path in source.rglob("*") if path.is_file()]
    return Tree(len(sizes), sum(sizes))


def _one(task: Task, name: str, tree: Tree) -> Run:
    out = task.scratch / f"out-{name}"
    words = [sys.executable, "-m", "benches.rivals.one", name, task.source, out, task.programs, str(task.workers)]
    # What went before must not be on its way to the disk any more.
    os.sync()
    try:
        told = tell(words, SECONDS_MAX)
        written = _bytes_below(out)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    if written < tree.bytes:
        raise Left(f"wrote {written} bytes of {tree.bytes}: it did not store the files as they are")
    return Run(told["seconds"], told["wall_seconds"], written, told["version"])


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def rows(runs: dict[str, list[Run]], tree: Tree) -> list[dict[str, Any]]:
    """A row for each writer; ours say how they stand to the fastest of the others."""
    mean_bytes = tree.bytes / tree.files
    made = {
        name: report.row(WRITERS[name], [tree.files / run.seconds for run in each], "files/s", mean_bytes)
        for name, each in runs.items()
    }
    rivals = [row for name, row in made.items() if name not in OURS]
    fastest = max(rivals, key=lambda row: row["median"], default=None)
    for name, row in made.items():
        row["wall_seconds"] = report.median([run.wall_seconds for run in runs[name]])
        row["written_over_source"] = runs[name][-1].written_bytes / tree.bytes
        if name in OURS and fastest:
            report.beside(row, fastest)
    return list(made.values())


def details(row: dict[str, Any]) -> str:
    """What the table says besides rates."""
    return f"writes {row['written_over_source']:.3f} of the source"
