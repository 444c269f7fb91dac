"""The recipes of docs/recipes.md as torchvision's and timm's transforms, one list for each view.

The daemon takes these lists, too. Only Pillow's blur has no class that all of them take."""

from collections.abc import Callable
from typing import Any

import torch
from PIL import Image, ImageFilter
from timm.data.auto_augment import rand_augment_transform
from timm.data.random_erasing import RandomErasing
from torchvision import transforms

from benches.rivals.kinds import SCALE

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# RandAugment's, in timm's words. The publication has 9, by which timm sometimes asks Pillow to keep
# no bits of a level, and Pillow refuses.
MAGNITUDE = 7
LARGE, SMALL = (0.32, 1.0), (0.05, 0.32)
SIGMAS = (0.1, 2.0)


class PillowBlur:
    """The blur of DeiT III's repository, as Pillow does it."""

    def __init__(self, radius: tuple[float, float], p: float) -> None:
        self.radius, self.p = radius, p

    def __call__(self, image: Image.Image) -> Image.Image:
        if torch.rand(()) >= self.p:
            return image
        return image.filter(ImageFilter.GaussianBlur(torch.empty(()).uniform_(*self.radius).item()))


class OfPillow:
    """All views of one of Pillow's images, as tensors."""

    def __init__(self, name: str) -> None:
        self._views = [transforms.Compose(steps) for steps in views(name, PillowBlur)]

    def __call__(self, image: Image.Image) -> list[torch.Tensor]:
        return [view(image) for view in self._views]


def views(name: str, blur: Callable[..., Any], magnitude: int = MAGNITUDE) -> list[list[Any]]:
    """The recipe's lists. `blur` is Pillow's, with a range of radii and a chance."""
    match name:
        case "deit3":
            return [_deit3(blur)]
        case "convnext":
            return [_convnext(magnitude)]
        case "dinov2":
            solarize = transforms.RandomSolarize(128, 0.2)
            return [
                _dinov2(224, LARGE, _blur(9, 1.0)),
                _dinov2(224, LARGE, _blur(9, 0.1), solarize),
                *[_dinov2(98, SMALL, _blur(9, 0.5))] * 8,
            ]
        case "simclr":
            return [_simclr()] * 2
    raise ValueError(f"no recipe {name!r}")


def _deit3(blur: Callable[..., Any]) -> list[Any]:
    return [
        *_cropped(224, SCALE, "bicubic"),
        transforms.RandomChoice(
            [transforms.Grayscale(3), transforms.RandomSolarize(128, p=1.0), blur(SIGMAS, p=1.0)]
        ),
        transforms.ColorJitter(0.3, 0.3, 0.3),
        *_floats(),
    ]


def _convnext(magnitude: int) -> list[Any]:
    options = {"interpolation": Image.Resampling.BICUBIC, "img_mean": tuple(round(255 * level) for level in MEAN)}
    return [
        *_cropped(224, SCALE, "bicubic"),
        rand_augment_transform(policy(magnitude), options),
        *_floats(),
        RandomErasing(0.25, mode="pixel", device="cpu"),
    ]


def policy(magnitude: int = MAGNITUDE) -> str:
    """ConvNeXt's RandAugment in timm's words."""
    return f"rand-m{magnitude}-mstd0.5-inc1"


def _dinov2(side: int, scale: tuple[float, float], *last: Any) -> list[Any]:
    return [
        *_cropped(side, scale, "bicubic"),
        transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
        transforms.RandomGrayscale(0.2),
        *last,
        *_floats(),
    ]


def _simclr() -> list[Any]:
    return [
        *_cropped(224, SCALE, "bilinear"),
        transforms.RandomApply([transforms.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
        transforms.RandomGrayscale(0.2),
        _blur(23, 0.5),
        transforms.ToTensor(),
    ]


def _cropped(side: int, scale: tuple[float, float], interpolation: str) -> list[Any]:
    filter_ = transforms.InterpolationMode(interpolation)
    return [transforms.RandomResizedCrop(side, scale, interpolation=filter_), transforms.RandomHorizontalFlip()]


def _blur(kernel: int, p: float) -> Any:
    return transforms.RandomApply([transforms.GaussianBlur(kernel, SIGMAS)], p)


def _floats() -> list[Any]:
    return [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
