"""`python -m benches.rivals.hand_over_process ROW DATASET WORKERS`: hands decoded batches over, in
a fresh process.

ROW is `shade`, which reads DATASET, or `dataloader`, whose workers have their images in memory. The
last line that it prints is JSON: the parts of the time that the training loop takes for a batch, in
ms, from the second epoch on."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import shade_load
import torch
from torch.utils.data import DataLoader, Dataset

from benches.rivals import process_tree
from benches.rivals.delivered import PAGE_BYTES
from benches.rivals.kinds import BATCH

SIDE = 224
# Batches of an epoch. All of them are ready at the same time.
BATCHES = 10
RING = "512MiB"
EPOCHS = 3
# All processes are idle when together they use less than this share of a core for so long.
IDLE_SHARE, IDLE_SECONDS = 0.05, 0.5


class Ready(Dataset):
    """Images that are decoded. A worker only makes batches of them, which default_collate does in
    shared memory."""

    def __init__(self) -> None:
        self._images = torch.ones(BATCH, SIDE, SIDE, 3, dtype=torch.uint8)

    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, at: int) -> torch.Tensor:
        return self._images[at % BATCH]


def main() -> int:
    name, root, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if name == "shade":
        with shade_load.Loader(
            root,
            BATCH,
            image_size=SIDE,
            cache="100%",
            plan=shade_load.Plan(sampler="uniform"),
            daemon=shade_load.Daemon(workers=workers, ring=RING),
        ) as loader:
            result = {"ready": ready(loader, lambda batch: batch.images), "version": shade_load.__version__}
    else:
        # A whole epoch is prefetched, so that no worker has anything to do while it is taken.
        loader_ = DataLoader(
            Ready(), BATCH, num_workers=workers, persistent_workers=True, prefetch_factor=-(-BATCHES // workers)
        )
        result = {"ready": ready(loader_, lambda images: images), "version": torch.__version__}
        loader_ = DataLoader(Ready(), BATCH, num_workers=workers, persistent_workers=True)
        result["at full speed"] = at_full_speed(loader_)
    print(json.dumps({**result, "cpu_seconds_before": 0.0}), flush=True)
    return 0


def ready(loader: Iterable[Any], images_of: Callable[[Any], torch.Tensor]) -> dict[str, float]:
    """Medians over the batches after the first epoch. A whole epoch is ready before its first batch
    is taken."""
    parts: dict[str, list[float]] = {"next": [], "touch": [], "let go": []}
    for epoch in range(EPOCHS):
        batches = iter(loader)
        _wait_until_idle()
        for times in _taken(batches, images_of):
            # The memory of the first epoch is new to this process.
            if epoch:
                for part, milliseconds in zip(parts, times, strict=True):
                    parts[part].append(milliseconds)
    return {part: statistics.median(times) for part, times in parts.items()}


def _taken(batches: Iterator[Any], images_of: Callable[[Any], torch.Tensor]) -> Iterator[tuple[float, float, float]]:
    for _ in range(BATCHES):
        started = time.perf_counter()
        batch = next(batches)
        there = time.perf_counter()
        images = images_of(batch).numpy()
        images.reshape(-1)[::PAGE_BYTES].sum()
        touched = time.perf_counter()
        del batch, images
        gone = time.perf_counter()
        yield (there - started) * 1e3, (touched - there) * 1e3, (gone - touched) * 1e3
    if next(batches, None) is not None:
        raise ValueError(f"an epoch has more than {BATCHES} batches")


def at_full_speed(loader: DataLoader) -> dict[str, float]:
    """From the first batch of an epoch to its last: the rate of workers that do nothing else."""
    whole = []
    for epoch in range(EPOCHS):
        started = 0.0
        for images in loader:
            if not started:
                started = time.perf_counter()
            numpy.sum(images.numpy().reshape(-1)[::PAGE_BYTES])
        if epoch:
            whole.append((time.perf_counter() - started) * 1e3 / (BATCHES - 1))
    return {"all": statistics.median(whole)}


def _wait_until_idle() -> None:
    # Our parent is with_cpu_time. All that we start, daemons too, is below it.
    tree = os.getppid()
    used = process_tree.cpu_seconds(tree)
    while True:
        time.sleep(IDLE_SECONDS)
        before, used = used, process_tree.cpu_seconds(tree)
        if used - before < IDLE_SHARE * IDLE_SECONDS:
            return


if __name__ == "__main__":
    sys.exit(main())
