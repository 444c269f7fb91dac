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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from . import _native
from .known_transforms import attributes, class_name, held, in_turn, refusal
from .options import IMAGE_SIDE_MAX, VIEWS_MAX, flag, integer, number, sides
from .pixel_transforms import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    Holder,
    PixelTransform,
    RandAugment,
    RandomAdjustSharpness,
    RandomApply,
    RandomAutocontrast,
    RandomChoice,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomOrder,
    RandomPosterize,
    RandomSolarize,
    TrivialAugmentWide,
    as_json,
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
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
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
_KINDS: dict[str, type] = {kind.__name__: kind for kind in Transform.__args__}
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
        if in_turn(view) is None:
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
    steps = _steps(transforms)
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


def _steps(given: object, place: str = "decode") -> list[Transform]:
    """One transform, a list of them, a Sequential or a Compose, as a list of ours.

    Raises:
        TypeError: One is not known.
        ValueError: One of torchvision's has an option that the daemon does not have.
    """
    parts = in_turn(given)
    if parts is not None:
        return [step for part in parts for step in _steps(part, place)]
    step, kind = given, type(given)
    if kind not in _KINDS.values():
        kind = _KINDS.get(class_name(given) or "")
        if kind is None:
            raise refusal(given, place)
        options = attributes(given, [field.name for field in fields(kind)])
        step = kind(**{name: _PLAIN.get(name, _as_it_is)(value) for name, value in options.items()})
    return [_with_known_parts(step) if isinstance(step, Holder) else step]


def _with_known_parts(step: Holder) -> Holder:
    """The step with ours in place of torchvision's transforms within it."""
    place = f"decode: {type(step).__name__}"
    parts: list[object] = []
    for part in held(step.transforms, place):
        inner = tuple(_steps(part, place))
        for transform in inner:
            if not isinstance(transform, PixelTransform):
                raise TypeError(
                    f"{place}: got {transform!r}, expected transforms of pixels, such as ColorJitter: the daemon "
                    "crops and flips each image before all of these"
                )
        parts.append(inner[0] if len(inner) == 1 else inner)
    return replace(step, transforms=tuple(parts))


def _size(size: Any) -> Any:
    """A size of torchvision's: a side as a number or a list of one, or a pair."""
    sides = tuple(size) if isinstance(size, Sequence) else size
    return sides[0] if isinstance(sides, tuple) and len(sides) == 1 else sides


def _padding(padding: Any) -> Any:
    paddings = {0 if padding is None else padding} if not isinstance(padding, Sequence) else set(padding)
    if len(paddings) != 1:
        raise ValueError(f"decode: RandomCrop: got padding {padding!r}, expected the same on all sides")
    return paddings.pop()


def _as_it_is(value: Any) -> Any:
    return value


# From torchvision's attributes to our arguments, where they differ.
_PLAIN: dict[str, Callable[[Any], Any]] = {"size": _size, "padding": _padding, "scale": tuple, "ratio": tuple}


def _range(name: str, pair: Sequence[float]) -> tuple[float, float]:
    if len(pair) != 2:
        raise ValueError(f"RandomResizedCrop: {name}: got {pair!r}, expected (least, most)")
    most_of_all = 1.0 if name == "scale" else float(IMAGE_SIDE_MAX)
    least, most = (number(f"RandomResizedCrop: {name}", side, 0.0, most_of_all) for side in pair)
    if not 0.0 < least <= most:
        raise ValueError(f"RandomResizedCrop: {name}: got {pair!r}, expected (least, most), above 0")
    return least, most
