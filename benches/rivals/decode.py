"""The loaders deliver whole epochs of decoded batches in turn, with all files in memory and with
none of them there.

Each run is a fresh process. Before anything is timed, each loader must show that it delivers what
it has to."""

import argparse
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benches.rivals import crop_check, made_images, report
from benches.rivals.image_folder import list_samples
from benches.rivals.kinds import KINDS, Kind
from benches.rivals.places import Disk, PageCache
from benches.rivals.rounds import (
    LeftOut, NotMeasured, interleave, module_command, print_left_out, run_json, with_cpu_time,
)  # fmt: skip
from benches.rivals.table import DECODE, decoding
from studies import image_sets

OURS, BARE, GATHER = "shade", "bare", "gather"
# What the hardware gives (`bounds.py`): nothing is delivered.
BOUNDS = {BARE: "bare fast decoder, no batch", GATHER: "two processes' gather alone"}
TITLES = {name: row.title for name, row in DECODE.items()} | BOUNDS
# The rows of raw pixels: all others would still decode files. Only these images are gathered.
RAW_ROWS = (OURS, "ffcv", GATHER)
# The rows that have Pillow's filters.
FILTER_ROWS = (OURS, "shade_marked", "imagefolder")
# Its recipes are those of torchvision and timm, with which others are compared.
REFERENCE_ROW = "imagefolder"
# Levels of noise in the images by which recipes are checked.
GRAIN = 40
LEFT_OUT = "left out: "
NAMES = list(TITLES)
# What is measured unless the command line says.
KIND_NAMES = [name for name, kind in KINDS.items() if not kind.augments]
FILES = KINDS["photos"].files
WARM, COLD = PageCache("warm"), Disk("cold")
# The slowest seen takes a tenth of it for 6,000 photos.
SECONDS_MAX = 600


@dataclass(frozen=True)
class Task:
    """What every loader has to deliver. `checked` holds a small ImageFolder that shows whether it
    does."""

    kind_name: str
    root: Path
    checked: Path
    programs: Path
    workers: int
    # How many samples have each label.
    labels: list[int]
    mean_bytes: float

    @property
    def kind(self) -> Kind:
        return KINDS[self.kind_name]

    @property
    def titles(self) -> dict[str, str]:
        """Each row's title. Nothing is known that bounds a recipe."""
        augmenting = {name: row.title for name, row in decoding(self.kind).items()}
        return augmenting if self.kind.augments else TITLES


@dataclass(frozen=True)
class Run:
    """One epoch from its beginning. The first of a process begins when the loader begins to open
    its data."""

    seconds: float
    cpu_seconds: float
    steady_per_second: float
    # In the process's first epoch; 0 where no batch is delivered.
    first_batch_seconds: float = 0.0
    # Growth of the training process and of all processes. Empty where the only epoch is the one
    # that is timed.
    memory_mb: dict[str, float] = field(default_factory=dict)


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here. What is left out is among the versions,
    with the reason."""
    versions: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for key in arguments.kind or KIND_NAMES:
        print(f"{KINDS[key].name}:", file=sys.stderr)
        try:
            task = _make(key, arguments, scratch / key)
            rows += _compare(task, arguments, versions)
        except (LeftOut, NotMeasured) as why:
            _leave_out(key, why, versions)
        shutil.rmtree(scratch / key, ignore_errors=True)
    if not rows:
        raise NotMeasured("nothing of it runs here")
    return versions, rows


def _make(key: str, arguments: argparse.Namespace, scratch: Path) -> Task:
    root, checked = scratch / "root", scratch / "checked"
    root.mkdir(parents=True)
    if key == "icons":
        try:
            fashion_mnist = image_sets.load("fashion-mnist")
        except image_sets.NotAvailable as why:
            raise LeftOut(f"{why}: make dataset") from None
        fashion_mnist.first(arguments.icons).write(scratch / "fashion-mnist")
        (scratch / "fashion-mnist" / "train").rename(root / "files")
    elif key == "pixels":
        made_images.make_pixels(root / "files", arguments.pixels)
    elif arguments.data:
        shutil.copytree(arguments.data, root / "files")
    else:
        made_images.make_jpegs(arguments.programs, arguments.files, scratch).rename(root / "files")
    # Images that are not cropped are checked all of them, pixel by pixel.
    if KINDS[key].crops:
        crop_check.write(checked / "files", GRAIN if KINDS[key].views else 0)
    else:
        checked = root
    files = list_samples(root / "files")
    counts = Counter(label for _path, label in files)
    task = Task(
        key,
        root,
        checked,
        arguments.programs,
        arguments.workers,
        labels=[counts[label] for label in range(max(counts) + 1)],
        mean_bytes=sum(Path(path).stat().st_size for path, _label in files) / len(files),
    )
    if task.kind.views:
        print("what recipes are compared with ...", file=sys.stderr)
        run_json(_loader(task, REFERENCE_ROW, checked, "reference"), SECONDS_MAX)
    return task


def _compare(task: Task, arguments: argparse.Namespace, versions: dict[str, str]) -> list[dict[str, Any]]:
    folders = {}
    for name, title in task.titles.items():
        takes_part = name in RAW_ROWS if task.kind.raw else name != GATHER
        if task.kind.interpolation != "bilinear":
            takes_part = name in FILTER_ROWS
        if takes_part and name in (arguments.only or task.titles):
            print(f"preparing and checking: {title} ...", file=sys.stderr)
            try:
                folders[name], versions[name] = _prepare(task, name)
            except LeftOut as why:
                _leave_out(f"{title}, {task.kind_name}", why, versions)
    rows = []
    # A recipe is a question of CPU time alone.
    for place in (WARM,) if task.kind.views else (WARM, COLD):
        print(f"{task.kind_name}, {place.name}:", file=sys.stderr)
        # Bounds have the files in memory in any case.
        names = {name: task.titles[name] for name in folders if place == WARM or name not in BOUNDS}
        try:
            place.try_out(task.root)
            rows += _rows(
                task, place, interleave(names, arguments.rounds, partial(_one, task, place, folders, versions))
            )
        except (LeftOut, NotMeasured) as why:
            _leave_out(f"{task.kind_name}, {place.name}", why, versions)
    return rows


def _leave_out(name: str, why: object, versions: dict[str, str]) -> None:
    print_left_out(name, why)
    versions[name] = f"{LEFT_OUT}{why}"


def _prepare(task: Task, name: str) -> tuple[str, str]:
    """What the row reads below the root, and its version. Raises `LeftOut` unless it delivers what
    it has to."""
    if name in BOUNDS:
        return "files", run_json(_bound(task, name), SECONDS_MAX)["version"]
    result: dict[str, Any] = {}
    for root in dict.fromkeys((task.checked, task.root)):
        result = run_json(_loader(task, name, root, "prepare"), SECONDS_MAX)
    run_json(_loader(task, name, task.checked, "check"), SECONDS_MAX)
    return result["folder"], result["version"]


def _one(task: Task, place: Disk | PageCache, folders: dict[str, str], versions: dict[str, str], name: str) -> Run:
    part = task.root / folders[name]
    count = sum(task.labels)
    # What an epoch leaves in memory serves the next one.
    epochs = task.kind.epochs if place == WARM else 1
    try:
        if name in BOUNDS:
            result = place.run(task.root, part, lambda _root: _bound(task, name), SECONDS_MAX)
            return Run(result["seconds"], result["cpu_seconds"], count / result["seconds"])
        words = _loader(task, name, task.root, str(epochs), str(count))
        result = place.run(task.root, part, lambda _root: words, SECONDS_MAX)
        expected = [epochs * count for count in task.labels]
        if result["labels"] != expected:
            raise LeftOut(f"samples of each label: got {result['labels']}, expected {expected}")
    except LeftOut as why:
        versions[f"{task.titles[name]}, {task.kind_name}, {place.name}"] = f"{LEFT_OUT}{why}"
        raise
    timed = report.median_epoch(result["epochs"])
    return Run(
        timed["seconds"],
        timed["cpu_seconds"],
        (count - timed["first_samples"]) / (timed["seconds"] - timed["first_seconds"]),
        result["epochs"][0]["first_seconds"],
        result["memory_mb"],
    )


def _loader(task: Task, name: str, root: Path, *what: str) -> list[Any]:
    words = [name, root, task.programs, str(task.workers), task.kind_name, *what]
    return with_cpu_time(module_command("decode_process", *words))


def _bound(task: Task, name: str) -> list[Any]:
    return module_command("bounds", name, task.root, str(task.workers), task.kind_name)


def _rows(task: Task, place: Disk | PageCache, runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """A row for each loader. The others' rows say how many times as fast shade is."""
    count = sum(task.labels)
    made = {}
    for name, each in runs.items():
        rates = [count / run.seconds for run in each]
        row = report.row(f"{task.titles[name]}, {task.kind_name}, {place.name}", rates, "samples/s", task.mean_bytes)
        row |= {"contender": name, "kind": task.kind_name, "place": place.name}
        row["steady_per_s"] = report.median([run.steady_per_second for run in each])
        row["cpu_s_per_1000"] = report.median([run.cpu_seconds for run in each]) * 1000 / count
        if name not in BOUNDS:
            row["first_batch_s"] = report.median([run.first_batch_seconds for run in each])
        if each[0].memory_mb:
            row["memory_mb"] = {key: report.median([run.memory_mb[key] for run in each]) for key in each[0].memory_mb}
        if name not in BOUNDS and task.kind_name in (without := decoding(task.kind)[name].without):
            row["without"] = without[task.kind_name]
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
    if "without" in row:
        words.append(f"without {row['without']}")
    return "  ".join(words)
