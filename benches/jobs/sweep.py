"""A sweep as users run it: four trainings with other learning rates and seeds, started by a shell loop.

    python -m benches.jobs.sweep --programs target/release

None knows of the others. They read from one slow store: by four DataLoaders, by four daemons, by
one daemon, and by one daemon in a group. All trainings are real ones, of the demo's network."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from PIL import Image
from shade_load import __version__

from benches import recorded
from benches.jobs import sweep_report
from benches.jobs.sweep_training import BATCH, Task
from benches.rivals.report import Start
from demo import data
from studies import slow_store as stores

# Learning rates, as multiples of the recipe's.
RATES = (0.25, 0.5, 1.0, 2.0)
CACHE = 0.2
DELAY_US, AT_ONCE = 2000, 4
# Side of the images in the files, to which those of the demo are enlarged.
FILE_SIDE, QUALITY = 256, 90


@dataclass(frozen=True)
class Scale:
    """How large the trainings are."""

    train: int
    val: int
    epochs: int
    workers: int
    rates: tuple[float, ...]


FULL = Scale(train=5000, val=1000, epochs=4, workers=2, rates=RATES)
QUICK = Scale(train=400, val=100, epochs=1, workers=1, rates=RATES[:2])


def main() -> int:
    """Runs the ways, writes results.json and report.md; returns the exit status."""
    parser = recorded.options("benches.jobs.sweep", __doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="an ImageFolder with train/ and val/ (default: the demo's)")
    parser.add_argument("--quick", action="store_true", help="few samples and one epoch: shows that it runs")
    parser.add_argument("--way", choices=sweep_report.WAYS, action="append", help="these ways only; may be repeated")
    arguments = parser.parse_args()
    scale, ways = QUICK if arguments.quick else FULL, arguments.way or sweep_report.WAYS
    measure = partial(run, scale, ways, arguments.data, arguments.programs)
    return recorded.write("sweep", arguments.out, measure, sweep_report.report)


def run(scale: Scale, ways: Sequence[str], images: Path | None, programs: Path, scratch: Path, start: Start) -> dict[str, Any]:
    """These ways, and where they were measured.

    Raises:
        OSError: No file system can be mounted here: the DataLoaders would have no slow store.
    """
    store = recorded.mounted(programs, DELAY_US, AT_ONCE, scratch)
    source = images or data.built_in(scratch).folder
    packed = {}
    for split, samples in (("train", scale.train), ("val", scale.val)):
        enlarge(source / split, scratch / split, samples)
        packed[split] = recorded.pack(scratch / split, scratch / f"{split}.shade")
    rows = [_way(way, scale, store, scratch / "train", packed) for way in ways]
    result = start.finish({"shade": __version__, "torch": version("torch")}, rows)
    return {
        **result,
        "images": f"{source.name}, enlarged to {FILE_SIDE} x {FILE_SIDE} JPEGs",
        "samples": scale.train,
        "epochs": scale.epochs,
        "batch_size": BATCH,
        "workers": scale.workers,
        "cache": CACHE,
        "store": {"delay_us": DELAY_US, "at_once": AT_ONCE},
    }


def enlarge(source: Path, target: Path, samples: int) -> None:
    """An ImageFolder of the first images of each class, as JPEGs of a size that is usual."""
    classes = sorted(path for path in source.iterdir() if path.is_dir())
    for folder in classes:
        (target / folder.name).mkdir(parents=True)
        for path in _first(folder.iterdir(), samples // len(classes)):
            with Image.open(path) as image:
                large = image.convert("RGB").resize((FILE_SIDE, FILE_SIDE), Image.Resampling.BICUBIC)
            large.save(target / folder.name / f"{path.stem}.jpg", quality=QUALITY)


def _first(paths: Iterable[Path], count: int) -> list[Path]:
    return sorted(paths)[:count]


def _way(way: str, scale: Scale, store: stores.SlowStore, files: Path, packed: dict[str, Path]) -> dict[str, Any]:
    """One sweep over the store."""
    with tempfile.TemporaryDirectory(dir=store.mountpoint.parent) as folder:
        told, kept = Path(folder, "task.json"), Path(folder, "result.json")

        def command(mounted: Path) -> list[Any]:
            share = {sweep_report.DATALOADERS: None, sweep_report.SEPARATE: CACHE / len(scale.rates)}.get(way, CACHE)
            Task(
                train=str(mounted),
                val=str(packed["val"]),
                cache=None if share is None else f"{100 * share:g}%",
                sockets=folder if way == sweep_report.SEPARATE else None,
                group="sweep" if way == sweep_report.GROUP else None,
                workers=scale.workers,
                rates=list(scale.rates),
                epochs=scale.epochs,
                results=folder,
            ).write(told)
            return [sys.executable, "-m", "benches.jobs.sweep_process", told, kept]

        operations = store.run(files if way == sweep_report.DATALOADERS else packed["train"], command)
        row = {"way": way, **json.loads(kept.read_text()), "operations": operations}
    print(sweep_report.said(row), flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
