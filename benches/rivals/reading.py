"""The readers take turns at epochs of the same records, in every place: in memory, and with nothing of them there.

Each run is a fresh process, judged by what it delivered: every record's bytes, once an epoch."""

import argparse
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benches.rivals import images, report
from benches.rivals.places import Disk, PageCache, Store, all_of_them
from benches.rivals.readers import shards
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
    "shade_filling": Reader("shade Loader, filling a cache", "shade_filling", 0),
    "files_2": Reader("ImageFolder, 2 workers", "files", 2),
    "files_8": Reader("ImageFolder, 8 workers", "files", 8),
    "webdataset": Reader("WebDataset, 2 workers", "webdataset", 2),
    "dali": Reader("DALI of shards, 2 threads", "dali", 2),
    "dali_files": Reader("DALI of files, 2 threads", "dali_files", 2),
    "spdl": Reader("SPDL of files, 2 threads", "spdl", 2),
    "ffrecord": Reader("FFRecord, 2 workers", "ffrecord", 2),
    "preadv": Reader("preadv x 32, a stand-in", "preadv", 32),
}
OURS = "shade"
# Ours once more; it has no row in memory, where `shade` has filled its cache in the epoch before.
FILLING = "shade_filling"
# What the hardware gives in a place, of `bounds`: nothing is delivered.
BOUNDS = {
    "memcpy": "two processes' memcpy alone",
    "fio": "fio io_uring x 32",
    "touch": "touching fresh memory, small pages",
}
BOUNDS_OF = {"in memory": ["memcpy"], "local disk": ["fio", "touch"]}
NAMES = [*READERS, *BOUNDS]
FILES = 8_000
# Epochs of a process in memory. The first one fills caches, and buffers are new to it.
EPOCHS_IN_MEMORY = 6
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
    """One epoch of one reader, or as many bytes at a bound's rate.

    The only epoch of a process is from when the reader began to open the dataset; in memory it is the median one of
    those after the first.
    """

    seconds: float
    steady_per_second: float
    cpu_seconds: float
    # Of the process's first epoch; none where nothing is delivered.
    first_batch_seconds: float | None = None
    # Sent to a store; 0 where there is none.
    operations: int = 0


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
    # fio reads them, too.
    shards.prepare(root, arguments.programs)
    rows = []
    for place in all_of_them(arguments.programs):
        if arguments.place and place.name not in arguments.place:
            continue
        print(f"{place.name}:", file=sys.stderr)
        try:
            place.try_out(root)
            asked_for = arguments.only or NAMES
            # Before shade, so that little time lies between them.
            titles = {bound: BOUNDS[bound] for bound in BOUNDS_OF.get(place.name, ()) if bound in asked_for} | names
            if isinstance(place, PageCache):
                titles.pop(FILLING, None)
            runs = take_turns(titles, arguments.rounds, partial(_one, task, place, versions))
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


def _one(task: Task, place: Disk | PageCache | Store, versions: dict[str, str], name: str) -> Run:
    if name in BOUNDS:
        return _bound(task, place, versions, name)
    reader = READERS[name]
    in_memory = isinstance(place, PageCache)

    def command(root: Path) -> list[Any]:
        epochs = EPOCHS_IN_MEMORY if in_memory else 1
        epoch = _epoch(reader.module, root, task.programs, reader.workers, epochs)
        return [sys.executable, "-m", "benches.rivals.whole_tree", *epoch]

    told = place.tell(task.root, task.root / task.folders[reader.module], command, SECONDS_MAX)
    for each in told["epochs"]:
        if (seen := Seen(**each["seen"])) != task.expected:
            raise Left(f"delivered {seen}, expected {task.expected}")
    epoch = report.median_epoch(told["epochs"])
    return Run(
        epoch["seconds"],
        (task.expected.records - epoch["first_records"]) / (epoch["seconds"] - epoch["first_seconds"]),
        # Of a process with one epoch all of it counts, to the end of what it started.
        epoch["cpu_seconds"] if in_memory else told["cpu_seconds"],
        told["epochs"][0]["first_seconds"],
        told.get("operations", 0),
    )


def _bound(task: Task, place: Disk | PageCache | Store, versions: dict[str, str], name: str) -> Run:
    def command(root: Path) -> list[Any]:
        return [sys.executable, "-m", "benches.rivals.bounds", name, root]

    told = place.tell(task.root, task.root / "files", command, SECONDS_MAX)
    versions[name] = told["version"]
    share = task.expected.bytes / told["bytes"]
    seconds = told["seconds"] * share
    return Run(seconds, task.expected.records / seconds, told["cpu_seconds"] * share)


def _epoch(module: str, root: Path, programs: Path, *what: int | str) -> list[Any]:
    return [sys.executable, "-m", "benches.rivals.epoch", module, root, programs, *map(str, what)]


def _rows(place: str, expected: Seen, runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """A row for each; shade's says what share of the place's bound it reaches, the others' how shade stands to them."""
    records, mean_bytes = expected.records, expected.bytes / expected.records
    made = {}
    for name, each in runs.items():
        title = BOUNDS[name] if name in BOUNDS else READERS[name].name
        row = report.row(f"{title}, {place}", [records / run.seconds for run in each], "records/s", mean_bytes)
        row["steady_per_s"] = report.median([run.steady_per_second for run in each])
        if name in READERS:
            row["first_batch_s"] = report.median([run.first_batch_seconds for run in each])
        row["cpu_s_per_1000"] = report.median([run.cpu_seconds for run in each]) * 1000 / records
        if any(run.operations for run in each):
            row["operations_per_record"] = report.median([run.operations for run in each]) / records
        made[name] = row
    ours = made.get(OURS)
    for bound in made.keys() & BOUNDS.keys():
        # Where nothing is kept, memory is used again and again.
        row = made.get(FILLING) if bound == "touch" else ours
        if row:
            row[f"of_{bound}"] = row["median"] / made[bound]["median"]
            row[f"steady_of_{bound}"] = row["steady_per_s"] / made[bound]["median"]
    for name, row in made.items():
        if ours and name != OURS and name not in BOUNDS:
            row["shade_over_this"] = ours["median"] / row["median"]
    return list(made.values())


def details(row: dict[str, Any]) -> str:
    """What the table says besides rates."""
    words = [f"steady {row['steady_per_s']:7,.0f}"]
    if "first_batch_s" in row:
        words.append(f"first batch {row['first_batch_s']:5.2f} s")
    words.append(f"{row['cpu_s_per_1000']:.2f} CPU s/1,000")
    if "operations_per_record" in row:
        words.append(f"{row['operations_per_record']:.2f} operations")
    for bound in BOUNDS:
        if f"of_{bound}" in row:
            words.append(f"{row[f'of_{bound}']:.0%} of {bound}, steady {row[f'steady_of_{bound}']:.0%}")
    if "shade_over_this" in row:
        words.append(f"shade {row['shade_over_this']:.2f} x")
    return "  ".join(words)
