"""The readers read epochs of the same records in turn, from every place: memory, a disk, and stores
far away.

Each run is a fresh process, judged by what it delivered: every record's bytes, once an epoch."""

import argparse
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benches.rivals import made_images, report
from benches.rivals.delivered import Delivered
from benches.rivals.places import Disk, PageCache, Store, all_of_them
from benches.rivals.rounds import (
    LeftOut, NotMeasured, interleave, module_command, print_left_out, run_json, with_cpu_time,
)  # fmt: skip
from benches.rivals.systems import shade_pack
from benches.rivals.table import READ, Row

OURS = "shade"
# shade once more. It has no row in memory, where `shade` has filled its cache in the epoch before.
FILLING = "shade_filling"
# What the hardware gives in a place (`bounds.py`): nothing is delivered.
BOUNDS = {
    "memcpy": "two processes' memcpy alone",
    "fio": "fio io_uring x 32",
    "touch": "touching fresh memory, small pages",
}
BOUNDS_OF = {"in memory": ["memcpy"], "local disk": ["fio", "touch"]}
NAMES = [*READ, *BOUNDS]
FILES = 8_000
# Epochs of a process in memory. The first one fills caches and allocates buffers.
EPOCHS_IN_MEMORY = 6
# The slowest seen takes a tenth of it for 8,000 records.
SECONDS_MAX = 600


@dataclass(frozen=True)
class Task:
    """What every reader has to deliver. `folders` names what each row reads below `root`."""

    root: Path
    programs: Path
    expected: Delivered
    folders: dict[str, str]


@dataclass(frozen=True)
class Run:
    """One epoch of one reader, or as many bytes at a bound's rate.

    In memory it is the median epoch of a process after its first. Elsewhere it is the only one, and
    begins when the reader begins to open the dataset."""

    seconds: float
    steady_per_second: float
    cpu_seconds: float
    # For the process's first epoch. None where nothing is delivered.
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
        made_images.make_jpegs(arguments.programs, arguments.files, scratch).rename(root / "files")
    asked = {name: row for name, row in READ.items() if name in (arguments.only or READ)}
    folders, versions = _prepare(root, arguments.programs, asked)
    task = Task(root, arguments.programs, _expected(root / "files"), folders)
    names = {name: READ[name].title for name in folders}
    # fio reads the shards, too.
    shade_pack.prepare_shards(root, arguments.programs)
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
            runs = interleave(titles, arguments.rounds, partial(_one, task, place, versions))
        except (LeftOut, NotMeasured) as why:
            print_left_out(place.name, why)
        else:
            rows += _rows(place.name, task.expected, runs)
    if not rows:
        raise NotMeasured("nowhere to read from")
    return versions, rows


def _prepare(root: Path, programs: Path, asked: dict[str, Row]) -> tuple[dict[str, str], dict[str, str]]:
    """What each row reads, and the versions; without the rows that cannot be measured here."""
    folders, versions = {}, {}
    for name, row in asked.items():
        print(f"preparing: {row.title} ...", file=sys.stderr)
        try:
            result = run_json(module_command("read_process", name, root, programs, "prepare"), SECONDS_MAX)
        except LeftOut as why:
            print_left_out(row.title, why)
        else:
            folders[name], versions[row.version_key or name] = result["folder"], result["version"]
    return folders, versions


def _expected(files: Path) -> Delivered:
    expected = Delivered()
    for path in files.rglob("*"):
        if path.is_file():
            expected.add(path.read_bytes())
    return expected


def _one(task: Task, place: Disk | PageCache | Store, versions: dict[str, str], name: str) -> Run:
    if name in BOUNDS:
        return _bound(task, place, versions, name)
    in_memory = isinstance(place, PageCache)

    def command(root: Path) -> list[Any]:
        epochs = EPOCHS_IN_MEMORY if in_memory else 1
        return with_cpu_time(module_command("read_process", name, root, task.programs, str(epochs)))

    result = place.run(task.root, task.root / task.folders[name], command, SECONDS_MAX)
    for each in result["epochs"]:
        if (delivered := Delivered(**each["delivered"])) != task.expected:
            raise LeftOut(f"got {delivered}, expected {task.expected}")
    epoch = report.median_epoch(result["epochs"])
    return Run(
        epoch["seconds"],
        (task.expected.records - epoch["first_records"]) / (epoch["seconds"] - epoch["first_seconds"]),
        # A process with one epoch counts as a whole, with all that it started.
        epoch["cpu_seconds"] if in_memory else result["cpu_seconds"],
        result["epochs"][0]["first_seconds"],
        result.get("operations", 0),
    )


def _bound(task: Task, place: Disk | PageCache | Store, versions: dict[str, str], name: str) -> Run:
    def command(root: Path) -> list[Any]:
        return module_command("bounds", name, root)

    result = place.run(task.root, task.root / "files", command, SECONDS_MAX)
    versions[name] = result["version"]
    share = task.expected.bytes / result["bytes"]
    seconds = result["seconds"] * share
    return Run(seconds, task.expected.records / seconds, result["cpu_seconds"] * share)


def _rows(place: str, expected: Delivered, runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """A row for each. shade's says what share of each bound it reaches, the others' how many times
    as fast shade is."""
    records, mean_bytes = expected.records, expected.bytes / expected.records
    made = {}
    for name, each in runs.items():
        title = BOUNDS[name] if name in BOUNDS else READ[name].title
        row = report.row(f"{title}, {place}", [records / run.seconds for run in each], "records/s", mean_bytes)
        row["steady_per_s"] = report.median([run.steady_per_second for run in each])
        if name in READ:
            row["first_batch_s"] = report.median([run.first_batch_seconds for run in each])
        row["cpu_s_per_1000"] = report.median([run.cpu_seconds for run in each]) * 1000 / records
        if any(run.operations for run in each):
            row["operations_per_record"] = report.median([run.operations for run in each]) / records
        made[name] = row
    ours = made.get(OURS)
    for bound in made.keys() & BOUNDS.keys():
        # Only filling a cache needs fresh memory for every record.
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
