"""shade's Loader, as a user would call it. Its cache has room for nothing, or for all records."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import shade_load
import torch
from shade_load.transforms import (
    ColorJitter, GaussianBlur, PillowGaussianBlur, RandomApply, RandomGrayscale, RandomHorizontalFlip, RandomResizedCrop,
    RandomSolarize,
)  # fmt: skip

from benches.rivals.kinds import (
    BATCH, BLUR_KERNEL, BLUR_P, BLUR_SIGMA, COLOURS, GREY_P, JITTER, JITTER_P, KINDS, RATIO, SCALE, SOLARIZE_FROM, SOLARIZE_P,
    Kind,
)  # fmt: skip
from benches.rivals.systems import Batch, ImageEpochs, RecordEpochs
from benches.rivals.systems.shade_pack import MARKED_SHARDS, SHARDS

# In the page cache before the clock starts, as the modules of the others are.
shade_load.find_daemon().read_bytes()


def read(root: Path, _workers: int, size: int, keep: bool) -> RecordEpochs:
    """Raw records, all of them from the cache from the second epoch on, or none."""
    plan = shade_load.Plan(sampler="uniform")
    with shade_load.Loader(root / SHARDS, size, cache="100%" if keep else 0, plan=plan) as loader:
        yield _records(loader, hits=0)
        while True:
            yield _records(loader, hits=loader.samples if keep else 0)


def read_and_keep(root: Path, workers: int, size: int, _keep: bool) -> RecordEpochs:
    """The first epoch fills a cache of the whole dataset: every record needs fresh memory."""
    return read(root, workers, size, keep=True)


def _records(loader: shade_load.Loader, hits: int) -> Iterator[Iterator[memoryview]]:
    for batch in loader:
        yield batch.records.memoryviews()
    if (found := loader.stats()["epoch"]["hits"]) != hits:
        sys.exit(f"{found} records came from the cache, expected {hits}")


def decode(root: Path, workers: int, size: int, kind: Kind, folder: str = SHARDS) -> ImageEpochs:
    """With room in the cache for all records, as the others have the page cache."""
    # Images that are not cropped lie in memory as FFCV delivers them.
    options = {"decode": _crops(kind)} if kind.crops else {"image_size": kind.side, "channels_last": True}
    return _decoded(root / folder, workers, size, _images, options)


def recipe(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """The recipe's lists as they are: the daemon's bytes are made floats in this process."""
    from benches.rivals import recipe_lists

    lists = recipe_lists.views(kind.augments, PillowGaussianBlur)
    return _decoded(root / SHARDS, workers, size, _views, {"decode": lists if len(lists) > 1 else lists[0]})


def _decoded(
    dataset: Path, workers: int, size: int, batches: Callable[[shade_load.Loader], Iterator[Batch]], options: dict[str, Any]
) -> ImageEpochs:
    with shade_load.Loader(
        dataset,
        size,
        cache="100%",
        plan=shade_load.Plan(sampler="uniform"),
        daemon=shade_load.Daemon(workers=workers),
        **options,
    ) as loader:
        while True:
            yield batches(loader)


def decode_restart_markers(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    return decode(root, workers, size, kind, MARKED_SHARDS)


def _crops(kind: Kind) -> list[Any]:
    crops = [RandomResizedCrop(kind.side, SCALE, RATIO, kind.interpolation), RandomHorizontalFlip()]
    return [*crops, *_RECIPES[kind.augments]]


_RECIPES = {
    "": [],
    "colours": [ColorJitter(*COLOURS)],
    "contrastive": [
        RandomApply([ColorJitter(*JITTER)], JITTER_P),
        RandomGrayscale(GREY_P),
        RandomApply([GaussianBlur(BLUR_KERNEL, BLUR_SIGMA)], BLUR_P),
        RandomSolarize(SOLARIZE_FROM, SOLARIZE_P),
    ],
}


def _images(loader: shade_load.Loader) -> Iterator[Batch]:
    for batch in loader:
        # To PyTorch the channels are the second dimension, wherever they are in memory.
        images = batch.images.numpy()
        yield images if images.flags.c_contiguous else images.transpose(0, 2, 3, 1), batch.labels.numpy()


def _views(loader: shade_load.Loader) -> Iterator[Batch]:
    for images, labels in loader:
        views = [images] if isinstance(images, torch.Tensor) else images
        yield [view.numpy() for view in views], labels.numpy()


def train(root: Path, workers: int, folder: str = SHARDS) -> Iterator[Iterator[Any]]:
    """Batches on the GPU. The cache is as by default; each sample comes once an epoch, as with the
    others."""
    with shade_load.Loader(
        root / folder,
        BATCH,
        decode=_crops(KINDS["photos"]),
        channels_last=True,
        device="cuda:0",
        plan=shade_load.Plan(sampler="uniform", tail="drop"),
        daemon=shade_load.Daemon(workers=workers),
    ) as loader:
        while True:
            yield ((batch.images, batch.labels) for batch in loader)


def train_restart_markers(root: Path, workers: int) -> Iterator[Iterator[Any]]:
    return train(root, workers, MARKED_SHARDS)


def version(_programs: Path) -> str:
    return shade_load.__version__
