"""Transforms of a finished row's pixels, for `Loader(decode=...)`; `shade_load.transforms` has them all.

Each has the name, the arguments and the defaults of torchvision's, and gives what that gives for a
PIL image.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from .known_transforms import interpolation

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
class RandAugment:
    """`num_ops` operations of torchvision's fourteen, all of this magnitude."""

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Literal["nearest", "bilinear"] = "nearest"
    fill: Colour = 0


@dataclass(frozen=True)
class TrivialAugmentWide:
    """One operation of torchvision's fourteen, of random magnitude."""

    num_magnitude_bins: int = 31
    interpolation: Literal["nearest", "bilinear"] = "nearest"
    fill: Colour = 0


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
    | RandomSolarize
    | RandomPosterize
    | RandomInvert
    | RandomAutocontrast
    | RandomEqualize
    | RandomAdjustSharpness
    | RandomErasing
    | RandAugment
    | TrivialAugmentWide
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
    if value is None:
        # No jitter, or black; RandomErasing of v2 has None for noise.
        return "random" if option == "value" else 0
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
