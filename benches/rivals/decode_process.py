"""`python -m benches.rivals.decode_process ROW ROOT PROGRAMS WORKERS KIND WHAT [SAMPLES]`: a loader
in a fresh process.

WHAT is one of these:

- `prepare` makes the folder that the loader reads.
- `check` looks closely at two epochs, untimed.
- `reference` looks at them, and writes what `check` compares recipes of other rows with.
- A number times so many epochs of SAMPLES each. A byte of every page is touched.

The clock starts when the loader's modules are imported. The last line that it prints is JSON."""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy

from benches.rivals import augment_check, crop_check, pixel_check, process_tree, recipe_check, table
from benches.rivals.delivered import PAGE_BYTES
from benches.rivals.kinds import GREY_P, KINDS, Kind
from benches.rivals.systems import ImageEpochs

EPOCHS_CHECKED = 2
# Begins the epochs of a loader.
Begin = Callable[[], ImageEpochs]
# What is found of an epoch.
Found = augment_check.Epoch | crop_check.Epoch | pixel_check.Epoch | recipe_check.Epoch


class Wrong(Exception):
    """A loader does not deliver what it has to."""


def main() -> int:
    name, root, programs, workers, kind_name, what, *samples = sys.argv[1:]
    kind = KINDS[kind_name]
    row = table.decoding(kind)[name]
    try:
        if kind.views:
            # Before the clock starts. It takes seconds, and no other images need it.
            importlib.import_module("benches.rivals.recipe_lists")
        begin = partial(table.load(row.run), Path(root), int(workers), kind.batch, kind, *_decoders(row, kind))
    except (ImportError, OSError) as error:
        print(f"does not import: {error}", file=sys.stderr)
        return 1
    try:
        result: dict[str, Any] = {}
        if what == "prepare":
            folder = table.prepare(row, Path(root), Path(programs), kind)
            result = {"folder": folder, "version": table.version(row, Path(programs))}
        elif what == "check":
            epochs = check(begin, Path(root), kind)
            if kind.views:
                compare_recipe(epochs, Path(root), row, kind_name)
        elif what == "reference":
            recipe_check.keep(check(begin, Path(root), kind), Path(root))
        else:
            result = run(begin, kind, epochs=int(what), samples=int(samples[0]))
    except Wrong as error:
        print(error, file=sys.stderr)
        return 1
    # with_cpu_time asks for it; CPU time is measured epoch by epoch here.
    print(json.dumps({**result, "cpu_seconds_before": 0.0}), flush=True)
    return 0


def _decoders(row: table.Row, kind: Kind) -> list[Callable[..., numpy.ndarray]]:
    """The decoder that a loader is given which leaves decoding to its user."""
    if not row.fast:
        return []
    from benches.rivals import fast_decoder

    return [partial(fast_decoder.decode, kind=kind)]


def check(begin: Begin, root: Path, kind: Kind) -> list[Found]:
    """What is found of each epoch. Raises unless each delivers every sample once, with its label and
    its pixels, in another order."""
    epochs = begin()
    all_found = []
    for _ in range(EPOCHS_CHECKED):
        epoch = _epoch(kind)
        for images, labels in next(epochs):
            _check_shape(images, labels, kind)
            for sample, label in zip(_samples(images), labels, strict=True):
                epoch.add(sample, int(label))
        faults = epoch.faults(root / "files")
        if faults:
            raise Wrong("; ".join(faults))
        all_found.append(epoch)
    epochs.close()
    if all_found[0].order == all_found[1].order:
        raise Wrong("both epochs are in the same order")
    return all_found


def compare_recipe(epochs: list[Any], root: Path, row: table.Row, kind_name: str) -> None:
    """Raises unless images are distributed as those of the row that wrote the reference."""
    lacks = kind_name in row.without
    distance_max = recipe_check.DISTANCE_WITHOUT_MAX if lacks else recipe_check.DISTANCE_MAX
    faults = recipe_check.differences(epochs, root, distance_max)
    if faults:
        raise Wrong("; ".join(faults))


def _views(images: Any) -> list[numpy.ndarray]:
    """A batch's views, which are one where no recipe has several."""
    return images if isinstance(images, list) else [images]


def _samples(images: Any) -> Iterator[Any]:
    """Each sample's image, height by width by RGB. With several views all of them, as they are."""
    if isinstance(images, list):
        return zip(*images, strict=True)
    return (image if image.shape[2] == 3 else image.transpose(1, 2, 0) for image in images)


def _epoch(kind: Kind) -> Found:
    if kind.views:
        return recipe_check.Epoch()
    if kind.augments:
        return augment_check.Epoch(GREY_P if kind.augments == "contrastive" else 0.0)
    return crop_check.Epoch() if kind.crops else pixel_check.Epoch()


def run(begin: Begin, kind: Kind, epochs: int, samples: int) -> dict[str, Any]:
    """Takes every batch and touches it."""
    # Our parent is with_cpu_time. All that we start, daemons too, is below it.
    tree = os.getppid()
    # Looking at memory costs time: only in an epoch before the one that counts.
    memory = Memory(tree, middle=samples // kind.batch // 2) if epochs > 1 else None
    timed, all_labels = [], []
    cpu = process_tree.cpu_seconds(tree)
    started = time.perf_counter()
    every = begin()
    for number in range(epochs):
        first, ended, of_first = 0.0, 0.0, 0
        for at, (images, labels) in enumerate(next(every)):
            if not of_first:
                of_first, first = len(labels), time.perf_counter()
            _check_shape(images, labels, kind)
            for view in _views(images):
                view.reshape(-1)[:: PAGE_BYTES // view.itemsize].sum()
            ended = time.perf_counter()
            # Its memory may be used again for the next batch.
            all_labels.append(labels.copy())
            if memory and number == 0:
                memory.look(at)
        now = process_tree.cpu_seconds(tree)
        timed.append(
            {
                "seconds": ended - started,
                "first_seconds": first - started,
                "first_samples": of_first,
                "cpu_seconds": now - cpu,
            }
        )
        cpu, started = now, time.perf_counter()
    every.close()
    labels = numpy.bincount(numpy.concatenate(all_labels)).tolist()
    return {"epochs": timed, "labels": labels, "memory_mb": memory.growth() if memory else {}}


class Memory:
    """How much memory has grown since this was made."""

    def __init__(self, tree: int, middle: int) -> None:
        self._tree = tree
        self._middle = middle
        self._own_before = self._own_most = process_tree.own_mb()
        self._tree_before = self._tree_then = process_tree.memory_mb(tree)

    def look(self, batch: int) -> None:
        """Called after each batch. Looks at this process, and at all processes once, in the middle
        of the epoch."""
        anon, shared = process_tree.own_mb()
        self._own_most = max(anon, self._own_most[0]), max(shared, self._own_most[1])
        if batch == self._middle:
            self._tree_then = process_tree.memory_mb(self._tree)

    def growth(self) -> dict[str, float]:
        """In MB: private and shared memory of this process at most, and all processes in the middle
        of the epoch."""
        return {
            "anon": self._own_most[0] - self._own_before[0],
            "shared": self._own_most[1] - self._own_before[1],
            "all_processes": self._tree_then - self._tree_before,
        }


def _check_shape(images: Any, labels: numpy.ndarray, kind: Kind) -> None:
    views, dtype = _views(images), numpy.float32 if kind.views else numpy.uint8
    if len(views) != len(kind.views or [kind.side]):
        raise Wrong(f"delivered {len(views)} views")
    for view, side in zip(views, kind.views or [kind.side], strict=True):
        of_one = [(3, side, side)] if kind.views else [(side, side, 3), (3, side, side)]
        if view.shape[1:] not in of_one or view.dtype != dtype or not view.flags.c_contiguous:
            raise Wrong(f"delivered {view.dtype} {view.shape}, contiguous: {view.flags.c_contiguous}")
        if labels.shape != view.shape[:1]:
            raise Wrong(f"delivered {view.shape[0]} images with labels of shape {labels.shape}")


if __name__ == "__main__":
    sys.exit(main())
