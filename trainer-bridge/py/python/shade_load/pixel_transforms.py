"""Transforms of a finished row's pixels, for `Loader(decode=...)`; `shade_load.transforms` has them all.

Each has the name, the arguments and the defaults of torchvision's, and gives what that gives for a
PIL image.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Literal

from .known_transforms import interpolation

__all__ = [
    "AugMix",
    "AutoAugment",
    "ColorJitter",
    "ElasticTransform",
    "GaussianBlur",
    "Grayscale",
    "PillowGaussianBlur",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomRotation",
    "RandomSolarize",
    "TimmRandAugment",
    "TrivialAugmentWide",
]

# A grey level from 0 to 255 for all colours, or red, green and blue.
Colour = int | tuple[int, int, int]
# By how much a factor may differ from 1 (a hue from 0), or its least and most.
Jitter = float | tuple[float, float]


@dataclass(frozen=True)
class ColorJitter:
    """Changes brightness, contrast, saturation and hue by random factors, in random order."""

    brightness: Jitter = 0
    contrast: Jitter = 0
    saturation: Jitter = 0
    hue: Jitter = 0


@dataclass(frozen=True)
class Grayscale:
    """Makes each pixel grey: Pillow's convert("L"). With 1 channel, which must be the last transform
    of pixels, `batch.images` has 1; with 3 it has three that are equal."""

    num_output_channels: int = 1


@dataclass(frozen=True)
class RandomGrayscale:
    """Makes each pixel grey with probability `p`."""

    p: float = 0.1


@dataclass(frozen=True)
class GaussianBlur:
    """Blurs with a kernel of odd size, a side or (width, height), and a random sigma."""

    kernel_size: int | tuple[int, int]
    sigma: float | tuple[float, float] = (0.1, 2.0)


@dataclass(frozen=True)
class PillowGaussianBlur:
    """Pillow's `ImageFilter.GaussianBlur` of a random radius, with probability `p`.

    It is the blur of SimCLR, DINO, MoCo v3 and DeiT, whose scripts have classes of their own for it.
    """

    radius: float | tuple[float, float] = (0.1, 2.0)
    p: float = 0.5


@dataclass(frozen=True)
class RandomSolarize:
    """Inverts levels from `threshold` on, with probability `p`."""

    threshold: float
    p: float = 0.5


@dataclass(frozen=True)
class RandomPosterize:
    """Keeps the highest `bits` of each level, with probability `p`."""

    bits: int
    p: float = 0.5


@dataclass(frozen=True)
class RandomInvert:
    """Inverts all levels with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomAutocontrast:
    """Stretches each colour's range to 0 to 255, with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomEqualize:
    """Makes the levels of each colour about equally frequent, with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomAdjustSharpness:
    """Blurs (a factor below 1) or sharpens (above 1) with probability `p`."""

    sharpness_factor: float
    p: float = 0.5


@dataclass(frozen=True)
class RandomChannelPermutation:
    """Puts red, green and blue into a random order."""


@dataclass(frozen=True)
class RandomErasing:
    """Fills a random rectangle with `value`, with probability `p`.

    `value` is in grey levels, as rows are bytes: torchvision's 0 after `Normalize(mean, std)` is
    `value=mean * 255` here. Noise (`value="random"`) is for floats only.
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: Colour = 0


@dataclass(frozen=True)
class RandomRotation:
    """Rotates by a random angle, of at most `degrees` or between two of them, about the middle or `center`.

    `center` is a place in pixels, x first.
    """

    degrees: float | tuple[float, float]
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "nearest"
    center: tuple[float, float] | None = None
    fill: Colour = 0


@dataclass(frozen=True)
class RandomAffine:
    """Rotates, moves by shares of width and height, scales and shears by random numbers, about the middle or
    `center`.

    `shear` is an angle at most or the least and the most along x, or both of x and of y.
    """

    degrees: float | tuple[float, float]
    translate: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    shear: float | tuple[float, float] | tuple[float, float, float, float] | None = None
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "nearest"
    fill: Colour = 0
    center: tuple[float, float] | None = None


@dataclass(frozen=True)
class RandomPerspective:
    """Looks at the row from a random side, with probability `p`.

    Each corner moves towards the middle by a random share of half a side, at most `distortion_scale`.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear"
    fill: Colour = 0


@dataclass(frozen=True)
class RandAugment:
    """`num_ops` operations of torchvision's fourteen, all of this magnitude."""

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "nearest"
    fill: Colour = 0


@dataclass(frozen=True)
class TimmRandAugment:
    """timm's RandAugment, "rand-m9-mstd0.5-inc1" and the like: `num_ops` of its fifteen operations, each with
    probability `p`.

    Operations that move pixels draw one of the `interpolations`. timm's own object is taken, too.
    """

    num_ops: int = 2
    magnitude: float = 10.0
    magnitude_std: float = 0.0
    p: float = 0.5
    increasing: bool = False
    translate: float = 0.45
    interpolations: Sequence[Literal["nearest", "bilinear", "bicubic"]] = ("bilinear", "bicubic")
    fill: Colour = 128


@dataclass(frozen=True)
class TrivialAugmentWide:
    """One operation of torchvision's fourteen, of random magnitude."""

    num_magnitude_bins: int = 31
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "nearest"
    fill: Colour = 0


@dataclass(frozen=True)
class AutoAugment:
    """One pair of operations of the 25 that were searched for a dataset, each with its chance and magnitude."""

    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet"
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "nearest"
    fill: Colour = 0


@dataclass(frozen=True)
class AugMix:
    """Mixes the row with `mixture_width` copies, each changed by a chain of random operations.

    A chain has `chain_depth` operations, or 1 to 3 with -1, of magnitudes up to `severity` of 10. `all_ops` adds
    brightness, colour, contrast and sharpness. `alpha` is the parameter of the shares' distribution.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Literal["nearest", "bilinear"] = "bilinear"
    fill: Colour | None = None


@dataclass(frozen=True)
class ElasticTransform:
    """Moves pixels by smooth random fields: `alpha` is their magnitude, and `sigma` their smoothness."""

    alpha: float | tuple[float, float] = 50.0
    sigma: float | tuple[float, float] = 5.0
    interpolation: Literal["nearest", "bilinear"] = "bilinear"
    fill: Colour | None = 0


@dataclass(frozen=True)
class RandomApply:
    """Applies all of these transforms of pixels with probability `p`, else none."""

    transforms: Sequence[Any]
    p: float = 0.5


@dataclass(frozen=True)
class RandomChoice:
    """Applies one of these transforms of pixels, drawn by the weights `p`, or each as often as the others.

    A list or a Compose among them is one.
    """

    transforms: Sequence[Any]
    p: Sequence[float] | None = None


@dataclass(frozen=True)
class RandomOrder:
    """Applies all of these transforms of pixels in random order. A list or a Compose among them is one."""

    transforms: Sequence[Any]


Holder = RandomApply | RandomChoice | RandomOrder
PixelTransform = (
    ColorJitter
    | Grayscale
    | RandomGrayscale
    | GaussianBlur
    | PillowGaussianBlur
    | RandomSolarize
    | RandomPosterize
    | RandomInvert
    | RandomAutocontrast
    | RandomEqualize
    | RandomAdjustSharpness
    | RandomChannelPermutation
    | RandomErasing
    | RandomRotation
    | RandomAffine
    | RandomPerspective
    | RandAugment
    | TimmRandAugment
    | TrivialAugmentWide
    | AutoAugment
    | AugMix
    | ElasticTransform
    | Holder
)
# A transform of pixels, or some that are applied in turn as one.
Part = PixelTransform | tuple[PixelTransform, ...]

def as_json(steps: Sequence[Any]) -> list[Any]:
    """The transforms, also those of geometry, as a job's document has them.

    Raises:
        ValueError: A number is infinite or none.
        TypeError: An argument is no number.
    """
    try:
        return json.loads(json.dumps([_named(step) for step in steps], allow_nan=False, default=_number))
    except ValueError as error:
        raise ValueError(f"decode: got {list(steps)!r}: {error}") from None


def _options(transform: Any, kind: Any) -> dict[str, Any]:
    """The arguments of a transform, ours or torchvision's, under the names of ours."""
    return {field.name: _plain(field.name, getattr(transform, field.name)) for field in fields(kind)}


def _plain(option: str, value: Any) -> Any:
    """An argument of a transform: torchvision's also keep lists, enumerations and None."""
    if option == "interpolation":
        return interpolation(value)
    if option == "policy":
        return value.value if isinstance(value, Enum) else value
    if value is None:
        # No jitter or motion; the size stays; RandomErasing of v2 has None for noise. The daemon
        # says what no center and no colour are.
        return {"value": "random", "scale": 1, "center": None, "fill": None}.get(option, 0)
    if isinstance(value, dict):
        raise TypeError(f"decode: got {option}={value!r}, expected a level from 0 to 255, or three: red, green and blue")
    if option in ("fill", "value") and not isinstance(value, str):
        levels = [_level(level) for level in value] if isinstance(value, Sequence) else [_level(value)]
        return levels[0] if len(levels) == 1 else tuple(levels)
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _level(value: Any) -> Any:
    """A level that torchvision keeps as a float. One such as 0.5, for images of floats, stays, and is refused."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> int | float:
    """A number of another library, such as NumPy's."""
    for as_number in (operator.index, float):
        try:
            return as_number(value)
        except (TypeError, ValueError):
            continue
    raise TypeError(f"decode: got {value!r}, expected a number")


def _named(step: Any) -> dict[str, Any] | list[Any]:
    if isinstance(step, tuple):
        return [_named(inner) for inner in step]
    if isinstance(step, Holder):
        options = vars(step) | {"transforms": [_named(inner) for inner in step.transforms]}
    else:
        options = _options(step, type(step))
    return {type(step).__name__: options}
