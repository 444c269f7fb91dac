"""PyTorch's DataLoader over torchvision's ImageFolder, with torchvision's transforms on Pillow's images."""

from pathlib import Path

import torchvision
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benches.rivals.decoders import Epochs
from benches.rivals.kinds import RATIO, SCALE, Kind

FOLDER = "files"


def prepare(_root: Path, _programs: Path, _kind: Kind) -> None:
    """The files are there."""


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    crops = [v2.RandomResizedCrop(kind.side, SCALE, RATIO), v2.RandomHorizontalFlip()] if kind.crops else []
    images = ImageFolder(str(root / FOLDER), v2.Compose([*crops, v2.PILToTensor()]))
    loader = DataLoader(images, size, shuffle=True, num_workers=workers, persistent_workers=True)
    while True:
        yield ((images.numpy(), labels.numpy()) for images, labels in loader)


def version(_programs: Path) -> str:
    return f"torchvision {torchvision.__version__}"
