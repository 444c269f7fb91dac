"""PyTorch's DataLoader over torchvision's ImageFolder, each file's bytes as they are: no image is decoded."""

from pathlib import Path

import torchvision
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from benches.rivals.readers import Epochs

FOLDER = "files"


def prepare(_root: Path, _programs: Path) -> None:
    """The files are there."""


def epochs(root: Path, workers: int, size: int, _cached: bool) -> Epochs:
    images = ImageFolder(str(root / FOLDER), loader=_read)
    loader = DataLoader(
        images, size, shuffle=True, num_workers=workers, collate_fn=_records, persistent_workers=True
    )
    while True:
        yield iter(loader)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _records(samples: list[tuple[bytes, int]]) -> list[bytes]:
    return [record for record, _label in samples]


def version(_programs: Path) -> str:
    return f"torchvision {torchvision.__version__}"
