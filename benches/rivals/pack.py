"""The packers pack the same ImageFolder in turn. Each run is a process of its own, judged by what
it wrote."""

import argparse
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.rivals import made_images, report
from benches.rivals.rounds import LeftOut, interleave, module_command, run_json
from benches.rivals.table import PACK

TITLES = {name: row.title for name, row in PACK.items()}
OURS = ("shade_nosync", "shade")
FILES = 4_000
# The slowest seen takes a tenth of it for 4,000 images.
SECONDS_MAX = 600
NAMES = list(TITLES)


@dataclass(frozen=True)
class Task:
    """What every packer has to do."""

    source: Path
    scratch: Path
    programs: Path
    workers: int


@dataclass(frozen=True)
class Run:
    """One run of one packer."""

    seconds: float
    wall_seconds: float
    written_bytes: int
    version: str


@dataclass(frozen=True)
class Tree:
    """The size of the ImageFolder."""

    files: int
    bytes: int


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here."""
    source = arguments.data or made_images.make_jpegs(arguments.programs, arguments.files, scratch)
    task = Task(source, scratch, arguments.programs, arguments.workers)
    tree = measure(source)
    names = {name: title for name, title in TITLES.items() if name in (arguments.only or TITLES)}
    runs = interleave(names, arguments.rounds, lambda name: _one(task, name, tree))
    return {name: each[0].version for name, each in runs.items()}, rows(runs, tree)


def measure(source: Path) -> Tree:
    """Reads every file once, too, so that they are in the page cache."""
    sizes = [len(path.read_bytes()) for path in source.rglob("*") if path.is_file()]
    return Tree(len(sizes), sum(sizes))


def _one(task: Task, name: str, tree: Tree) -> Run:
    out = task.scratch / f"out-{name}"
    words = module_command("pack_process", name, task.source, out, task.programs, str(task.workers))
    # What the run before wrote must have reached the disk.
    os.sync()
    try:
        result = run_json(words, SECONDS_MAX)
        written = _bytes_below(out)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    if written < tree.bytes:
        raise LeftOut(f"wrote {written} bytes of {tree.bytes}: it did not store the files as they are")
    return Run(result["seconds"], result["wall_seconds"], written, result["version"])


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def rows(runs: dict[str, list[Run]], tree: Tree) -> list[dict[str, Any]]:
    """A row for each packer. shade's rows are compared with the fastest of the others."""
    mean_bytes = tree.bytes / tree.files
    made = {
        name: report.row(TITLES[name], [tree.files / run.seconds for run in each], "files/s", mean_bytes)
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
