"""The network and what surrounds it: a three-layer CNN, small enough that two CPU cores outrun the store."""

import torch
from torch import nn

WIDTHS = (16, 32, 64)


def build(classes: int, seed: int) -> nn.Module:
    """The same weights for the same seed; takes images of any size."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    channels = 3
    for width in WIDTHS:
        convolution = nn.Conv2d(channels, width, kernel_size=3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * channels, classes))


def normalise(images: torch.Tensor) -> torch.Tensor:
    """uint8 pixels to floats about zero; a copy, so the loader's memory is free again when the batch goes."""
    return images.float().sub_(127.5).div_(64.0)


@torch.inference_mode()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of `images` (uint8 NCHW) that the model classifies rightly."""
    model.eval()
    right = 0
    for start in range(0, len(images), 1000):
        part = slice(start, start + 1000)
        right += int((model(normalise(images[part])).argmax(1) == labels[part]).sum())
    model.train()
    return right / len(images)
