"""The contenders take turns at whole epochs of decoded batches, with all files in memory and with none of them there.

Each run is a fresh process. Before anything is timed each contender must show that it delivers what it has to."""

import argparse
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benches.rivals import images, marked, pixels, report
from benches.rivals.kinds import KINDS, Kind
from benches.rivals.places import Disk, PageCache
from benches.rivals.turns import Left, NotMeasured, skip, take_turns, tell
from benches.rivals.writers.listing import samples
from demo import fashion_mnist

# Rows in the order of the table; keys are modules in decoders/, but for the last two.
DECODERS = {
    "shade": "shade Loader",
    "shade_marked": "shade Loader, restart markers",
    "imagefolder": "ImageFolder, PIL",
    "imagefolder_fast": "ImageFolder, fast decoder",
    "webdataset": "WebDataset, fast decoder",
    "mosaicml": "MosaicML Streaming, fast decoder",
    "litdata": "LitData, fast decoder",
    "spdl_fast": "SPDL, fast decoder",
    "spdl": "SPDL, its FFmpeg",
    "dali": "DALI, CPU",
    "ffcv": "FFCV, its own file",
    "bare": "bare fast decoder, no batch",
    "gather": "two processes' gather alone",
}
OURS, BARE, GATHER = "shade", "bare", "gather"
# What bounds the others: it delivers nothing.
BOUNDS = (BARE, GATHER)
# Of raw pixels; all others would be measured at decoding the files. They alone gather.
OF_RAW = (OURS, "ffcv", GATHER)
LEFT = "left out: "
NAMES = list(DECODERS)
FILES = KINDS["photos"].files
WARM, COLD = PageCache("warm"), Disk("cold")
# The slowest seen takes a tenth of it for 6,000 photos.
SECONDS_MAX = 600


@dataclass(frozen=True)
class Task:
    """What every contender has to deliver; `marked` is a small ImageFolder that shows whether it does."""

    kind_name: str
    root: Path
    marked: Path
    programs: Path
    workers: int
    # How many samples have each label.
    labels: list[int]
    mean_bytes: float

    @property
    def kind(self) -> Kind:
        return KINDS[self.kind_name]


@dataclass(frozen=True)
class Run:
    """One epoch, from when it was begun; a process's first, from when the contender began to open its data."""

    seconds: float
    cpu_seconds: float
    steady_per_second: float
    # Of the process's first epoch; 0 where no batch is delivered.
    first_batch_seconds: float = 0.0
    # Growth of the training process and of all processes, where the first epoch is not the one timed.
    memory_mb: dict[str, float] = field(default_factory=dict)


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here. Who is left out is among the versions, with the reason."""
    versions: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for key in arguments.kind or KINDS:
        print(f"{KINDS[key].name}:", file=sys.stderr)
        try:
            task = _make(key, arguments, scratch / key)
            rows += _compare(task, arguments, versions)
        except (Left, NotMeasured) as why:
            _leave(key, why, versions)
        shutil.rmtree(scratch / key, ignore_errors=True)
    if not rows:
        raise NotMeasured("nothing of it runs here")
    return versions, rows


def _make(key: str, arguments: argparse.Namespace, scratch: Path) -> Task:
    root, marks = scratch / "root", scratch / "marked"
    root.mkdir(parents=True)
    if key == "icons":
        if not fashion_mnist.available():
            raise Left("Debian's dataset-fashion-mnist is not installed: make dataset")
        fashion_mnist.write_image_folder(scratch / "fashion-mnist", arguments.icons)
        (scratch / "fashion-mnist" / "train").rename(root / "files")
    elif key == "pixels":
        pixels.write(root / "files", arguments.pixels)
    elif arguments.data:
        shutil.copytree(arguments.data, root / "files")
    else:
        images.make(arguments.programs, arguments.files, scratch).rename(root / "files")
    # Whatever is not cropped is all looked at, pixel by pixel.
    if KINDS[key].crops:
        marked.write(marks / "files")
    else:
        marks = root
    files = samples(root / "files")
    counts = Counter(label for _path, label in files)
    return Task(
        key,
        root,
        marks,
        arguments.programs,
        arguments.workers,
        labels=[counts[label] for label in range(max(counts) + 1)],
        mean_bytes=sum(Path(path).stat().st_size for path, _label in files) / len(files),
    )


def _compare(task: Task, arguments: argparse.Namespace, versions: dict[str, str]) -> list[dict[str, Any]]:
    folders = {}
    for name, title in DECODERS.items():
        takes_part = name in OF_RAW if task.kind.raw else name != GATHER
        if takes_part and name in (arguments.only or DECODERS):
            print(f"preparing and checking: {title} ...", file=sys.stderr)
            try:
                folders[name], versions[name] = _prepare(task, name)
            except Left as why:
                _leave(f"{title}, {task.kind_name}", why, versions)
    rows = []
    for place in (WARM, COLD):
        print(f"{task.kind_name}, {place.name}:", file=sys.stderr)
        # Bounds have the files in memory anyway.
        names = {name: DECODERS[name] for name in folders if place == WARM or name not in BOUNDS}
        try:
            place.try_out(task.root)
            rows += _rows(
                task, place, take_turns(names, arguments.rounds, partial(_one, task, place, folders, versions))
            )
        except (Left, NotMeasured) as why:
            _leave(f"{task.kind_name}, {place.name}", why, versions)
    return rows


def _leave(name: str, why: object, versions: dict[str, str]) -> None:
    skip(name, why)
    versions[name] = f"{LEFT}{why}"


def _prepare(task: Task, name: str) -> tuple[str, str]:
    """What it reads below the root, and its version. Raises `Left` unless it does what it has to."""
    if name in BOUNDS:
        return "files", tell(_bound(task, name), SECONDS_MAX)["version"]
    told: dict[str, Any] = {}
    for root in dict.fromkeys((task.marked, task.root)):
        told = tell(_decoded(task, name, root, "prepare"), SECONDS_MAX)
    tell(_decoded(task, name, task.marked, "check"), SECONDS_MAX)
    return told["folder"], told["version"]


def _one(task: Task, place: Disk | PageCache, folders: dict[str, str], versions: dict[str, str], name: str) -> Run:
    part = task.root / folders[name]
    count = sum(task.labels)
    # What is kept in memory in one epoch shows in the next.
    epochs = task.kind.epochs if place == WARM else 1
    try:
        if name in BOUNDS:
            told = place.tell(task.root, part, lambda _root: _bound(task, name), SECONDS_MAX)
            return Run(told["seconds"], told["cpu_seconds"], count / told["seconds"])
        words = _decoded(task, name, task.root, str(epochs), str(count))
        told = place.tell(task.root, part, lambda _root: words, SECONDS_MAX)
        expected = [epochs * count for count in task.labels]
        if told["labels"] != expected:
            raise Left(f"delivered so many of each label: {told['labels']}, expected {expected}")
    except Left as why:
        versions[f"{DECODERS[name]}, {task.kind_name}, {place.name}"] = f"{LEFT}{why}"
        raise
    timed = report.median_epoch(told["epochs"])
    return Run(
        timed["seconds"],
        timed["cpu_seconds"],
        (count - timed["first_samples"]) / (timed["seconds"] - timed["first_seconds"]),
        told["epochs"][0]["first_seconds"],
        told["memory_mb"],
    )


def _decoded(task: Task, name: str, root: Path, *what: str) -> list[Any]:
    words = [name, root, task.programs, str(task.workers), task.kind_name, *what]
    # Everything that it starts, daemons too, is below whole_tree and has ended when it ends.
    return [sys.executable, "-m", "benches.rivals.whole_tree", sys.executable, "-m", "benches.rivals.decoded", *words]


def _bound(task: Task, name: str) -> list[Any]:
    if name == GATHER:
        return [sys.executable, "-m", "benches.rivals.bounds", name, task.root]
    return [sys.executable, "-m", "benches.rivals.bare", task.root, str(task.workers), task.kind_name]


def _rows(task: Task, place: Disk | PageCache, runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """A row for each contender; the others' say how shade stands to them."""
    count = sum(task.labels)
    made = {}
    for name, each in runs.items():
        rates = [count / run.seconds for run in each]
        row = report.row(f"{DECODERS[name]}, {task.kind_name}, {place.name}", rates, "samples/s", task.mean_bytes)
        row |= {"contender": name, "kind": task.kind_name, "place": place.name}
        row["steady_per_s"] = report.median([run.steady_per_second for run in each])
        row["cpu_s_per_1000"] = report.median([run.cpu_seconds for run in each]) * 1000 / count
        if name not in BOUNDS:
            row["first_batch_s"] = report.median([run.first_batch_seconds for run in each])
        if each[0].memory_mb:
            row["memory_mb"] = {key: report.median([run.memory_mb[key] for run in each]) for key in each[0].memory_mb}
        made[name] = row
    ours = made.get(OURS)
    for name, row in made.items():
        if ours and name != OURS:
            row["shade_over_this"] = ours["median"] / row["median"]
    return list(made.values())


def details(row: dict[str, Any]) -> str:
    """What the table says besides rates."""
    words = [f"steady {row['steady_per_s']:7,.0f}", f"{row['cpu_s_per_1000']:7.4f} CPU s/1,000"]
    if "first_batch_s" in row:
        words.append(f"first batch {row['first_batch_s']:5.2f} s")
    if "memory_mb" in row:
        anon, shared, all_processes = row["memory_mb"].values()
        words.append(f"+{anon:,.0f} MB and {shared:,.0f} shared, all processes +{all_processes:,.0f}")
    if "shade_over_this" in row:
        words.append(f"shade {row['shade_over_this']:.2f} x")
    return "  ".join(words)
