"""PyTorch's DataLoader over torchvision's ImageFolder, each file's bytes as they are: no image is decoded."""

from collections.abc import Iterator
from pathlib import Path

import torchvision
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

FOLDER = "files"


def prepare(_root: Path, _programs: Path) -> None:
    """The files are there."""


def batches(root: Path, workers: int, size: int) -> Iterator[list[bytes]]:
    images = ImageFolder(str(root / FOLDER), loader=_read)
    yield from DataLoader(images, size, shuffle=True, num_workers=workers, collate_fn=_records)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _records(samples: list[tuple[bytes, int]]) -> list[bytes]:
    return [record for record, _label in samples]


def version(_programs: Path) -> str:
    return f"torchvision {torchvision.__version__}"
