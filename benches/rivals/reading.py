"""The readers take turns at one epoch of the same records, in every place, with nothing of them in memory.

Each run is a fresh process, judged by what it delivered: every record's bytes, once."""

import argparse
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benches.rivals import images, report
from benches.rivals.places import Disk, Store, all_of_them
from benches.rivals.seen import Seen
from benches.rivals.turns import Left, NotMeasured, skip, take_turns, tell


@dataclass(frozen=True)
class Reader:
    """A row's name, a module in readers/, and how many workers (processes, or threads) it is given."""

    name: str
    module: str
    workers: int


# Rows in the order of the table.
READERS = {
    "shade": Reader("shade Loader", "shade", 0),
    "files_2": Reader("ImageFolder, 2 workers", "files", 2),
    "files_8": Reader("ImageFolder, 8 workers", "files", 8),
    "webdataset": Reader("WebDataset, 2 workers", "webdataset", 2),
    "ffrecord": Reader("FFRecord, 2 workers", "ffrecord", 2),
    "preadv": Reader("preadv x 32, a stand-in", "preadv", 32),
}
OURS = "shade"
NAMES = list(READERS)
FILES = 8_000
# The slowest seen takes a tenth of it for 8,000 records.
SECONDS_MAX = 600


@dataclass(frozen=True)
class Task:
    """What every reader has to deliver; `folders` says what each module reads below `root`."""

    root: Path
    programs: Path
    expected: Seen
    folders: dict[str, str]


@dataclass(frozen=True)
class Run:
    """One epoch of one reader. Seconds are from when it began to open the dataset."""

    seconds: float
    first_seconds: float
    first_records: int
    cpu_seconds: float
    # Sent to a store; 0 where there is none.
    operations: int

    def records_per_second(self, records: int) -> float:
        """Of the whole epoch."""
        return records / self.seconds

    def steady_records_per_second(self, records: int) -> float:
        """From when the first batch was there."""
        return (records - self.first_records) / (self.seconds - self.first_seconds)


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here."""
    root = scratch / "root"
    root.mkdir()
    # All that is read lies below one folder, which a store can show.
    if arguments.data:
        shutil.copytree(arguments.data, root / "files")
    else:
        images.make(arguments.programs, arguments.files, scratch).rename(root / "files")
    asked = {name: READERS[name] for name in READERS if name in (arguments.only or READERS)}
    folders, versions = _prepare(root, arguments.programs, asked)
    task = Task(root, arguments.programs, _look_at(root / "files"), folders)
    names = {name: reader.name for name, reader in asked.items() if reader.module in folders}
    rows = []
    for place in all_of_them(arguments.programs):
        print(f"{place.name}:", file=sys.stderr)
        try:
            place.try_out(root)
            runs = take_turns(names, arguments.rounds, partial(_one, task, place))
        except (Left, NotMeasured) as why:
            skip(place.name, why)
        else:
            rows += _rows(place.name, task.expected, runs)
    if not rows:
        raise NotMeasured("nowhere to read from")
    return versions, rows


def _prepare(root: Path, programs: Path, asked: dict[str, Reader]) -> tuple[dict[str, str], dict[str, str]]:
    """What each module reads and its version, without those that cannot be had here."""
    folders, versions = {}, {}
    for module in dict.fromkeys(reader.module for reader in asked.values()):
        print(f"preparing: {module} ...", file=sys.stderr)
        try:
            told = tell(_epoch(module, root, programs, "prepare"), SECONDS_MAX)
        except Left as why:
            skip(module, why)
        else:
            folders[module], versions[module] = told["folder"], told["version"]
    return folders, versions


def _look_at(files: Path) -> Seen:
    seen = Seen()
    for path in files.rglob("*"):
        if path.is_file():
            seen.touch(path.read_bytes())
    return seen


def _one(task: Task, place: Disk | Store, name: str) -> Run:
    reader = READERS[name]

    def command(root: Path) -> list[Any]:
        epoch = _epoch(reader.module, root, task.programs, reader.workers)
        return [sys.executable, "-m", "benches.rivals.whole_tree", *epoch]

    told = place.tell(task.root, task.root / task.folders[reader.module], command, SECONDS_MAX)
    seen = Seen(**told["seen"])
    if seen != task.expected:
        raise Left(f"delivered {seen}, expected {task.expected}")
    return Run(
        told["seconds"], told["first_seconds"], told["first_records"], told["cpu_seconds"], told.get("operations", 0)
    )


def _epoch(module: str, root: Path, programs: Path, workers: int | str) -> list[Any]:
    return [sys.executable, "-m", "benches.rivals.epoch", module, root, programs, str(workers)]


def _rows(place: str, expected: Seen, runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """A row for each reader; the others' say how shade stands to them."""
    records, mean_bytes = expected.records, expected.bytes / expected.records
    made = {}
    for name, each in runs.items():
        rates = [run.records_per_second(records) for run in each]
        row = report.row(f"{READERS[name].name}, {place}", rates, "records/s", mean_bytes)
        row["steady_per_s"] = report.median([run.steady_records_per_second(records) for run in each])
        row["first_batch_s"] = report.median([run.first_seconds for run in each])
        row["cpu_s_per_1000"] = report.median([run.cpu_seconds for run in each]) * 1000 / records
        if any(run.operations for run in each):
            row["operations_per_record"] = report.median([run.operations for run in each]) / records
        made[name] = row
    ours = made.get(OURS)
    for name, row in made.items():
        if ours and name != OURS:
            row["shade_over_this"] = ours["median"] / row["median"]
    return list(made.values())


def details(row: dict[str, Any]) -> str:
    """What the table says besides rates."""
    words = [
        f"steady {row['steady_per_s']:6,.0f}",
        f"first batch {row['first_batch_s']:5.2f} s",
        f"{row['cpu_s_per_1000']:.2f} CPU s/1,000",
    ]
    if "operations_per_record" in row:
        words.append(f"{row['operations_per_record']:.2f} operations")
    if "shade_over_this" in row:
        words.append(f"shade {row['shade_over_this']:.2f} x")
    return "  ".join(words)
