"""PyTorch's DataLoader over torchvision's ImageFolder: the files themselves."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import InterpolationMode, v2

from benches.rivals.image_folder import read_file
from benches.rivals.kinds import (
    BATCH, BLUR_KERNEL, BLUR_P, BLUR_SIGMA, COLOURS, GREY_P, JITTER, JITTER_P, KINDS, RATIO, SCALE, SOLARIZE_FROM, SOLARIZE_P,
    Kind,
)  # fmt: skip
from benches.rivals.systems import DecodeImage, ImageEpochs, RecordEpochs

DEVICE = "cuda:0"


def read(root: Path, workers: int, size: int, _keep: bool) -> RecordEpochs:
    """Each file's bytes as they are."""
    loader = _loader(root, workers, size, loader=read_file, collate_fn=_records)
    while True:
        yield iter(loader)


def _records(samples: list[tuple[bytes, int]]) -> list[bytes]:
    return [record for record, _label in samples]


def decode(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """torchvision's transforms on Pillow's images, as its documentation has it."""
    yield from _arrays(_loader(root, workers, size, _transforms(kind)))


def decode_fast(root: Path, workers: int, size: int, _kind: Kind, decode_image: DecodeImage) -> ImageEpochs:
    yield from _arrays(_loader(root, workers, size, decode_image, loader=read_file))


def recipe(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """The recipe's transforms of torchvision and timm on Pillow's images, to floats in the workers."""
    from benches.rivals import recipe_lists

    loader = _loader(root, workers, size, recipe_lists.OfPillow(kind.augments))
    while True:
        yield (([view.numpy() for view in views], labels.numpy()) for views, labels in loader)


def _arrays(loader: DataLoader) -> ImageEpochs:
    while True:
        yield ((images.numpy(), labels.numpy()) for images, labels in loader)


def train(root: Path, workers: int) -> Iterator[Iterator[Any]]:
    """The transforms of `decode`, copied to the GPU."""
    yield from _on_device(_loader(root, workers, BATCH, _transforms(KINDS["photos"]), **_FOR_A_GPU))


def train_fast(root: Path, workers: int, decode_image: DecodeImage) -> Iterator[Iterator[Any]]:
    def channels_first(record: bytes) -> torch.Tensor:
        return torch.from_numpy(decode_image(record)).permute(2, 0, 1)

    yield from _on_device(_loader(root, workers, BATCH, channels_first, loader=read_file, **_FOR_A_GPU))


# PyTorch's documentation: batches are pinned, so that copies need not be waited for.
_FOR_A_GPU = {"pin_memory": True, "drop_last": True}


def _on_device(loader: DataLoader) -> Iterator[Iterator[Any]]:
    while True:
        yield (tuple(part.to(DEVICE, non_blocking=True) for part in batch) for batch in loader)


def _transforms(kind: Kind) -> Callable[[Any], torch.Tensor]:
    crop = v2.RandomResizedCrop(kind.side, SCALE, RATIO, InterpolationMode(kind.interpolation))
    crops = [crop, v2.RandomHorizontalFlip()] if kind.crops else []
    return v2.Compose([*crops, *_RECIPES[kind.augments], v2.PILToTensor()])


_RECIPES = {
    "": [],
    "colours": [v2.ColorJitter(*COLOURS)],
    "contrastive": [
        v2.RandomApply([v2.ColorJitter(*JITTER)], JITTER_P),
        v2.RandomGrayscale(GREY_P),
        v2.RandomApply([v2.GaussianBlur(BLUR_KERNEL, BLUR_SIGMA)], BLUR_P),
        v2.RandomSolarize(SOLARIZE_FROM, SOLARIZE_P),
    ],
}


def _loader(
    root: Path,
    workers: int,
    size: int,
    transform: Callable[[Any], Any] | None = None,
    loader: Callable[[str], bytes] | None = None,
    **options: Any,
) -> DataLoader:
    """`loader` reads a file; the default opens it with Pillow."""
    images = ImageFolder(str(root / "files"), transform, **({"loader": loader} if loader else {}))
    return DataLoader(images, size, shuffle=True, num_workers=workers, persistent_workers=True, **options)


def version(_programs: Path) -> str:
    return f"torchvision {torchvision.__version__}"
