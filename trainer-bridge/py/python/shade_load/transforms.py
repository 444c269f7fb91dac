"""Transforms for `Loader(decode=...)`, which the daemon applies.

    Loader("photos.shade", 256, decode=[RandomResizedCrop(224), RandomHorizontalFlip()])

Each does what torchvision's transform of that name does to a PIL image, with bilinear interpolation
and antialiasing. Random numbers follow from seed, epoch and the sample's position in the epoch;
in a group of trainings from the group's name, the epoch, the sample and the number of its use.
A list of such lists makes several views of each image, from one read and one decoding.
torchvision's own objects of these names work, too, alone or in a `Compose`. `decode="none"` applies
no transform: each image has its own size.

First comes what makes rows of one size, such as RandomResizedCrop. Flips and transforms of pixels,
such as ColorJitter, follow. The latter are in `shade_load.pixel_transforms`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _native
from .options import IMAGE_SIDE_MAX, VIEWS_MAX, flag, integer, number, sides
from .pixel_transforms import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    PixelTransform,
    RandAugment,
    RandomAdjustSharpness,
    RandomApply,
    RandomAutocontrast,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
    TrivialAugmentWide,
    as_json,
    checked,
    from_torchvision,
    knows_places,
)

__all__ = [
    "NONE",
    "CenterCrop",
    "ColorJitter",
    "Decode",
    "GaussianBlur",
    "Grayscale",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomApply",
    "RandomAutocontrast",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "Transform",
    "TrivialAugmentWide",
]


@dataclass(frozen=True)
class Resize:
    """Resizes the shorter side to `size` and keeps the ratio, or resizes to (height, width)."""

    size: int | tuple[int, int]


@dataclass(frozen=True)
class CenterCrop:
    """Crops the middle; smaller images are padded with black."""

    size: int | tuple[int, int]


@dataclass(frozen=True)
class RandomCrop:
    """Pads each side by `padding` black pixels, then crops a random part, which must fit."""

    size: int | tuple[int, int]
    padding: int = 0


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crops a part of random area share and ratio (width / height), and resizes it to `size`."""

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Mirrors from left to right with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomVerticalFlip:
    """Mirrors from top to bottom with probability `p`."""

    p: float = 0.5


# No transforms: each image in its own size.
NONE = "none"

Flip = RandomHorizontalFlip | RandomVerticalFlip
Transform = Resize | CenterCrop | RandomCrop | RandomResizedCrop | Flip | PixelTransform
# Our transforms or torchvision's (callables), one or several.
OneView = Transform | Callable[[Any], Any] | Sequence[Transform | Callable[[Any], Any]]
# Those of one view; a list of those of several views; or "none".
Decode = OneView | Sequence[Sequence[Transform | Callable[[Any], Any]]] | Literal["none"]

_ORDER = (
    "expected Resize, CenterCrop, RandomCrop or RandomResizedCrop; Resize may come before CenterCrop or RandomCrop, "
    "and flips and transforms of pixels, such as ColorJitter, follow"
)


def views_spec(transforms: object, channels_last: bool, exact: bool) -> _native.Images | list[_native.Images]:
    """The transforms in the form of the native module: one spec, or for a list of lists one for each view.

    Raises:
        ValueError, TypeError: As for `image_spec`, or views and single transforms are mixed.
    """
    if not isinstance(transforms, list | tuple) or not any(isinstance(step, list | tuple) for step in transforms):
        return image_spec(transforms, channels_last, exact)
    for view in transforms:
        if not isinstance(view, list | tuple) and not hasattr(view, "transforms"):
            raise TypeError(
                f"decode: got {view!r} beside a list of transforms: give one list, or a list of lists for several views"
            )
    if len(transforms) > VIEWS_MAX:
        raise ValueError(f"decode: got {len(transforms)} views, expected at most {VIEWS_MAX}")
    specs = []
    for number, view in enumerate(transforms):
        try:
            specs.append(image_spec(view, channels_last, exact))
        except (TypeError, ValueError) as error:
            raise type(error)(f"view {number}: {error}") from None
    return specs


def image_spec(transforms: object, channels_last: bool, exact: bool) -> _native.Images:
    """The transforms in the form of the native module.

    Raises:
        ValueError: They do not give images of one size, or are in another order.
        TypeError: A transform is unknown.
    """
    if isinstance(transforms, str) and transforms == NONE:
        return _spec(NONE, channels_last, exact)
    steps = [_ours(transform) for transform in _flat(transforms)]
    given = f"decode: got {steps!r}"
    framing = list(itertools.takewhile(lambda step: not isinstance(step, Flip | PixelTransform), steps))
    spec = _spec("stretch", channels_last, exact)
    pixels = _after_framing(steps[len(framing) :], spec, given)
    last = framing[-1] if framing else None
    match framing:
        case [Resize(size=size)] if not isinstance(size, int):
            pass
        case [Resize(size=side)]:
            raise ValueError(
                f"decode: Resize({side}) keeps each image's ratio, so images have different sizes: add CenterCrop or "
                f"RandomCrop, or use Resize((height, width)); decode=\"none\" delivers images of their own sizes"
            )
        case [Resize(size=side), CenterCrop() | RandomCrop()] if isinstance(side, int):
            spec["short"] = integer("Resize: size", side, 1, IMAGE_SIDE_MAX)
        case [CenterCrop() | RandomCrop() | RandomResizedCrop()]:
            pass
        case _:
            raise ValueError(f"{given}, {_ORDER}")
    assert isinstance(last, Resize | CenterCrop | RandomCrop | RandomResizedCrop)
    spec["height"], spec["width"] = sides(f"{type(last).__name__}: size", last.size)
    if isinstance(last, CenterCrop):
        spec["framing"] = "center"
    elif isinstance(last, RandomCrop):
        spec["framing"] = "random"
        spec["padding"] = integer("RandomCrop: padding", last.padding, 0, IMAGE_SIDE_MAX)
    elif isinstance(last, RandomResizedCrop):
        spec["framing"] = "random_resized"
        spec["scale"] = _range("scale", last.scale)
        spec["ratio"] = _range("ratio", last.ratio)
    spec["pixels"] = as_json(pixels)
    _native.check_pixels(spec["pixels"], spec["height"], spec["width"])
    return spec


def _after_framing(steps: list[Transform], spec: _native.Images, given: str) -> list[PixelTransform]:
    """The transforms of pixels among `steps`; the flips go into `spec`, as the daemon does them first."""
    pixels: list[PixelTransform] = []
    flips: set[type[Flip]] = set()
    for step in steps:
        if isinstance(step, PixelTransform):
            if spec["grey"]:
                raise ValueError(f"{given}, expected Grayscale(1) last, as other transforms of pixels have three channels")
            if isinstance(step, Grayscale) and step.num_output_channels == 1:
                spec["grey"] = True
            else:
                pixels.append(step)
            continue
        name = type(step).__name__
        if not isinstance(step, Flip):
            raise ValueError(f"{given}, {_ORDER}")
        if type(step) in flips:
            raise ValueError(f"{given}, expected {name} only once")
        placed = [type(pixel).__name__ for pixel in pixels if knows_places(pixel)]
        if placed:
            raise ValueError(f"{given}, expected {name} before {placed[0]}, as the daemon flips first")
        flips.add(type(step))
        p = number(f"{name}: p", step.p, 0.0, 1.0)
        if isinstance(step, RandomHorizontalFlip):
            spec["flip"] = p
        else:
            spec["flip_down"] = p
    return pixels


def covering(size: tuple[int, int], channels_last: bool, exact: bool) -> _native.Images:
    """The middle of each image, resized to just cover (height, width), for `image_size`."""
    spec = image_spec(Resize(size), channels_last, exact)
    spec["framing"] = "cover"
    return spec


def _spec(framing: str, channels_last: bool, exact: bool) -> _native.Images:
    """A spec of this framing, with defaults elsewhere."""
    return {
        "height": 0,
        "width": 0,
        "framing": framing,
        "short": 0,
        "padding": 0,
        "scale": (1.0, 1.0),
        "ratio": (1.0, 1.0),
        "flip": 0.0,
        "flip_down": 0.0,
        "channels_last": flag("channels_last", channels_last),
        "exact": flag("exact", exact),
        "grey": False,
        "pixels": "[]",
    }


def _flat(transforms: object) -> list[object]:
    """One transform, a list of them or a `Compose`, as a list."""
    # RandomApply has a list, too, which is one step.
    is_one = type(transforms).__name__ == RandomApply.__name__
    inner = transforms if is_one else getattr(transforms, "transforms", transforms)
    # A text is an iterable of texts.
    if isinstance(inner, Iterable) and not is_one and not isinstance(inner, str):
        return [step for transform in inner for step in _flat(transform)]
    return [inner]


def _ours(transform: Any) -> Transform:
    if isinstance(transform, PixelTransform):
        return checked(transform)
    if isinstance(transform, Transform):
        return transform
    name = type(transform).__name__
    if not type(transform).__module__.startswith("torchvision.transforms"):
        raise TypeError(
            f"decode: got {transform!r}, expected transforms of shade_load.transforms, or \"none\"; "
            f"use Loader(transform=...) for your own"
        )
    try:
        pixels = from_torchvision(name, transform)
        if pixels is not None:
            return pixels
        _check_options(name, transform)
        if name == "Resize":
            return Resize(_size(transform.size))
        if name == "CenterCrop":
            return CenterCrop(_size(transform.size))
        if name == "RandomCrop":
            return RandomCrop(_size(transform.size), _padding(transform.padding))
        if name == "RandomResizedCrop":
            return RandomResizedCrop(_size(transform.size), tuple(transform.scale), tuple(transform.ratio))
        if name == "RandomHorizontalFlip":
            return RandomHorizontalFlip(transform.p)
        if name == "RandomVerticalFlip":
            return RandomVerticalFlip(transform.p)
    except AttributeError as error:
        raise TypeError(f"decode: torchvision's {name} of this version: {error}") from None
    raise TypeError(
        f"decode: the daemon has no {name}: leave it out here and apply it to batch.images with Loader(transform=...), "
        "where uint8 becomes float, too"
    )


def _check_options(name: str, transform: Any) -> None:
    """Refuses options of torchvision's transforms that the daemon does not have."""
    interpolation = getattr(transform, "interpolation", None)
    if interpolation is not None and getattr(interpolation, "value", interpolation) not in ("bilinear", 2):
        raise ValueError(f"decode: {name}: got interpolation {interpolation}, expected bilinear")
    for option, harmless in (
        ("max_size", (None,)),
        ("pad_if_needed", (None, False)),
        ("fill", (None, 0, (0, 0, 0))),
        ("padding_mode", (None, "constant")),
    ):
        value = getattr(transform, option, None)
        if value not in harmless:
            raise ValueError(f"decode: {name}: got {option}={value!r}, which the daemon does not do")


def _size(size: Any) -> int | tuple[int, int]:
    """A size of torchvision's: a side as a number or a list of one, or a pair."""
    if isinstance(size, Sequence):
        return int(size[0]) if len(size) == 1 else (int(size[0]), int(size[1]))
    return int(size)


def _padding(padding: Any) -> int:
    paddings = {0 if padding is None else padding} if not isinstance(padding, Sequence) else set(padding)
    if len(paddings) != 1:
        raise ValueError(f"decode: RandomCrop: got padding {padding!r}, expected the same on all sides")
    return int(paddings.pop())


def _range(name: str, pair: Sequence[float]) -> tuple[float, float]:
    if len(pair) != 2:
        raise ValueError(f"RandomResizedCrop: {name}: got {pair!r}, expected (least, most)")
    most_of_all = 1.0 if name == "scale" else float(IMAGE_SIDE_MAX)
    least, most = (number(f"RandomResizedCrop: {name}", side, 0.0, most_of_all) for side in pair)
    if not 0.0 < least <= most:
        raise ValueError(f"RandomResizedCrop: {name}: got {pair!r}, expected (least, most), above 0")
    return least, most
