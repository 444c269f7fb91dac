"""`python -m benches.rivals.decoded DECODER ROOT PROGRAMS WORKERS KIND WHAT [SAMPLES]`: a contender in a fresh process.

WHAT is `prepare`, which makes what the contender reads; `check`, two epochs looked at closely, untimed; or how many
epochs of SAMPLES to time, each touched a byte a page. The clock starts when the contender's modules are imported. The
last line that it prints is JSON."""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy

from benches.rivals import exact, marked, process_tree
from benches.rivals.kinds import KINDS, Kind
from benches.rivals.seen import PAGE_BYTES

BATCH = 256
EPOCHS_CHECKED = 2


class Wrong(Exception):
    """A contender does not deliver what it has to."""


def main() -> int:
    name, root, programs, workers, kind_name, what, *samples = sys.argv[1:]
    kind = KINDS[kind_name]
    try:
        decoder = importlib.import_module(f"benches.rivals.decoders.{name}")
    except (ImportError, OSError) as error:
        print(f"does not import: {error}", file=sys.stderr)
        return 1
    try:
        told: dict[str, Any] = {}
        if what == "prepare":
            decoder.prepare(Path(root), Path(programs), kind)
            told = {"folder": decoder.FOLDER, "version": decoder.version(Path(programs))}
        elif what == "check":
            check(decoder, Path(root), int(workers), kind)
        else:
            told = run(decoder, Path(root), int(workers), kind, epochs=int(what), samples=int(samples[0]))
    except Wrong as error:
        print(error, file=sys.stderr)
        return 1
    # whole_tree's contract; CPU time is told by the epoch.
    print(json.dumps({**told, "cpu_seconds_before": 0.0}), flush=True)
    return 0


def check(decoder: ModuleType, root: Path, workers: int, kind: Kind) -> None:
    """Raises unless every sample comes once an epoch with its label, as it should be, and never in the same order."""
    epochs = decoder.epochs(root, workers, BATCH, kind)
    orders = []
    for _ in range(EPOCHS_CHECKED):
        seen = marked.Epoch() if kind.crops else exact.Epoch()
        for images, labels in next(epochs):
            _check_shape(images, labels, kind)
            for image, label in zip(images, labels, strict=True):
                seen.look_at(image if image.shape[2] == 3 else image.transpose(1, 2, 0), int(label))
        faults = seen.faults(root / "files")
        if faults:
            raise Wrong("; ".join(faults))
        orders.append(seen.order)
    epochs.close()
    if orders[0] == orders[1]:
        raise Wrong("both epochs are in the same order")


def run(decoder: ModuleType, root: Path, workers: int, kind: Kind, epochs: int, samples: int) -> dict[str, Any]:
    """Takes every batch and touches it."""
    # Our parent is whole_tree, below which is all that we start, daemons too.
    tree = os.getppid()
    # Looking costs time: only in an epoch before the one that counts.
    memory = Memory(tree, middle=samples // BATCH // 2) if epochs > 1 else None
    told, all_labels = [], []
    cpu = process_tree.cpu_seconds(tree)
    started = time.perf_counter()
    every = decoder.epochs(root, workers, BATCH, kind)
    for number in range(epochs):
        first, ended, of_first = 0.0, 0.0, 0
        for at, (images, labels) in enumerate(next(every)):
            if not of_first:
                of_first, first = len(images), time.perf_counter()
            _check_shape(images, labels, kind)
            images.reshape(-1)[::PAGE_BYTES].sum()
            ended = time.perf_counter()
            # It may lie where the next batch will.
            all_labels.append(labels.copy())
            if memory and number == 0:
                memory.look(at)
        now = process_tree.cpu_seconds(tree)
        told.append(
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
    return {"epochs": told, "labels": labels, "memory_mb": memory.growth() if memory else {}}


class Memory:
    """How much memory grows from here on."""

    def __init__(self, tree: int, middle: int) -> None:
        self._tree = tree
        self._middle = middle
        self._own_before = self._own_most = process_tree.own_mb()
        self._tree_before = self._tree_then = process_tree.memory_mb(tree)

    def look(self, batch: int) -> None:
        """After each batch: at this process; at all of them once, in the middle of the epoch, when all is under way."""
        anon, shared = process_tree.own_mb()
        self._own_most = max(anon, self._own_most[0]), max(shared, self._own_most[1])
        if batch == self._middle:
            self._tree_then = process_tree.memory_mb(self._tree)

    def growth(self) -> dict[str, float]:
        """In MB: of this process, private and shared, at most; and of all processes in the middle of the epoch."""
        return {
            "anon": self._own_most[0] - self._own_before[0],
            "shared": self._own_most[1] - self._own_before[1],
            "all_processes": self._tree_then - self._tree_before,
        }


def _check_shape(images: numpy.ndarray, labels: numpy.ndarray, kind: Kind) -> None:
    of_one = ((kind.side, kind.side, 3), (3, kind.side, kind.side))
    if images.shape[1:] not in of_one or images.dtype != numpy.uint8 or not images.flags.c_contiguous:
        raise Wrong(f"delivered {images.dtype} {images.shape}, contiguous: {images.flags.c_contiguous}")
    if labels.shape != images.shape[:1]:
        raise Wrong(f"delivered {images.shape[0]} images with labels of shape {labels.shape}")


if __name__ == "__main__":
    sys.exit(main())
