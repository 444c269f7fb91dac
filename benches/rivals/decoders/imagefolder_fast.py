"""PyTorch's DataLoader over torchvision's ImageFolder, each file decoded the fastest way."""

from functools import partial
from pathlib import Path

from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from benches.rivals.decoders import Epochs, fast
from benches.rivals.kinds import Kind
from benches.rivals.writers.listing import read

FOLDER = "files"


def prepare(_root: Path, _programs: Path, _kind: Kind) -> None:
    """The files are there."""


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    images = ImageFolder(str(root / FOLDER), partial(fast.decode, kind=kind), loader=read)
    loader = DataLoader(images, size, shuffle=True, num_workers=workers, persistent_workers=True)
    while True:
        yield ((images.numpy(), labels.numpy()) for images, labels in loader)


def version(_programs: Path) -> str:
    return fast.version()
