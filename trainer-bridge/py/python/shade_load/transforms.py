"""Transforms for `Loader(decode=...)`, which the daemon applies.

    Loader("photos.shade", 256, decode=[RandomResizedCrop(224), RandomHorizontalFlip()])

Each does what torchvision's transform of that name does to a PIL image, by the filter
`interpolation` and with antialiasing. Random numbers follow from seed, epoch and the sample's position in the epoch;
in a group of trainings from the group's name, the epoch, the sample and the number of its use.
A list of such lists makes several views of each image, from one read and one decoding.
torchvision's own objects of these names work, too, alone or in a `Compose`. `decode="none"` applies
no transform: each image has its own size.

One step makes rows of one size, such as RandomResizedCrop. Transforms of pixels, such as ColorJitter, and
flips come behind it, where they cost less, or before. The former are in `shade_load.pixel_transforms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from .known_transforms import attributes, class_name, held, in_turn, is_list, lightlys, refusal, timm_rand_augment
from .options import VIEWS_MAX
from . import pixel_transforms
from .pixel_transforms import *
from .pixel_transforms import Holder, PixelTransform, as_json

__all__ = [
    "NONE",
    "CenterCrop",
    "Decode",
    "FiveCrop",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "Transform",
]
__all__ += pixel_transforms.__all__


# Pillow's filters.
Interpolation = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]


@dataclass(frozen=True)
class Resize:
    """Resizes the shorter side to `size` and keeps the ratio, or resizes to (height, width)."""

    size: int | tuple[int, int]
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True)
class Pad:
    """Adds black pixels on each side. `RandomCrop` follows."""

    padding: int


@dataclass(frozen=True)
class CenterCrop:
    """Crops the middle; smaller images are padded with black."""

    size: int | tuple[int, int]


@dataclass(frozen=True)
class FiveCrop:
    """Crops the four corners and the middle, in torchvision's order: `batch.images` is a list of five.

    It stands alone or behind `Resize`. Images must be as large.
    """

    size: int | tuple[int, int]


@dataclass(frozen=True)
class RandomCrop:
    """Pads each side by `padding` black pixels, then crops a random part, which must fit."""

    size: int | tuple[int, int]
    padding: int = 0


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crops a part of random area share and ratio (width / height), and resizes it to `size`.

    Where there are two interpolations, one is drawn for each image, as by timm's `random`.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation | tuple[Interpolation, Interpolation] = "bilinear"


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
Transform = Resize | Pad | CenterCrop | FiveCrop | RandomCrop | RandomResizedCrop | Flip | PixelTransform
_KINDS: dict[str, type] = {kind.__name__: kind for kind in Transform.__args__}
# Our transforms or torchvision's (callables), one or several.
OneView = Transform | Callable[[Any], Any] | Sequence[Transform | Callable[[Any], Any]]
# The transforms of one view; a list of those of several views; or "none".
Decode = OneView | Sequence[Sequence[Transform | Callable[[Any], Any]]] | Literal["none"]


def document(decode: object) -> Any:
    """`decode` as a job's document has it: "none", a list of transforms, or a list of such lists, one for each view.

    Their order and arguments are checked with the whole job.

    Raises:
        TypeError: A transform is not known, or views and single transforms are mixed.
        ValueError: One of torchvision's has an option that the daemon does not have.
    """
    if isinstance(decode, str) and decode == NONE:
        return NONE
    if not has_views(decode):
        return as_json(_in_effect(_steps(decode)))
    assert isinstance(decode, list | tuple)
    for view in decode:
        if in_turn(view) is None:
            raise TypeError(
                f"decode: got {view!r} beside a list of transforms: give one list, or a list of lists for several views"
            )
    if len(decode) > VIEWS_MAX:
        raise ValueError(f"decode: got {len(decode)} views, expected at most {VIEWS_MAX}")
    views = []
    for number, view in enumerate(decode):
        try:
            views.append(as_json(_in_effect(_steps(view))))
        except (TypeError, ValueError) as error:
            raise type(error)(f"view {number}: {error}") from None
    return views


def has_views(decode: object) -> bool:
    """Whether it is a list of views, also of one: then `batch.images` is a list."""
    return isinstance(decode, list | tuple) and any(map(is_list, decode))


def _steps(given: object, place: str = "decode") -> list[Transform]:
    """One transform, a list of them, a Sequential or a Compose, as a list of ours.

    Raises:
        TypeError: One is not known.
        ValueError: One of torchvision's has an option that the daemon does not have.
    """
    parts = in_turn(given)
    if parts is not None:
        return [step for part in parts for step in _steps(part, place)]
    of_lightly = lightlys(given)
    if of_lightly is not None:
        given = _in_place_of(*of_lightly)
    step, kind = given, type(given)
    of_timm = timm_rand_augment(given)
    if of_timm is not None:
        step = TimmRandAugment(**of_timm)
    elif kind not in _KINDS.values():
        kind = _KINDS.get(class_name(given) or "")
        if kind is None:
            raise refusal(given, place)
        options = attributes(given, [field.name for field in fields(kind)])
        step = kind(**{name: _PLAIN.get(name, _as_it_is)(value) for name, value in options.items()})
    return [_with_known_parts(step) if isinstance(step, Holder) else step]


def _in_effect(steps: list[Transform]) -> list[Transform]:
    """The steps without a CenterCrop that crops nothing, behind a Resize to exactly its height and width.

    Transformers' script has both, for image processors of any kind.
    """
    kept: list[Transform] = []
    for step in steps:
        before = kept[-1] if kept else None
        if isinstance(before, Resize) and isinstance(before.size, Sequence) and isinstance(step, CenterCrop):
            if _sides(before.size) == _sides(step.size):
                continue
        kept.append(step)
    return kept


def _sides(size: Any) -> tuple[Any, ...]:
    return tuple(size) if isinstance(size, Sequence) else (size, size)


def _in_place_of(name: str, given: dict[str, Any]) -> object:
    """What does the same as lightly's class of that name, with its attributes."""
    match name:
        case "GaussianBlur":
            return PillowGaussianBlur(tuple(given["sigmas"]), given["prob"])
        case "RandomSolarization":
            return RandomSolarize(given["threshold"], given["prob"])
        case _:
            # RandomRotate, by one angle only.
            return RandomApply([RandomRotation((given["angle"], given["angle"]))], given["prob"])


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
                    "crops and flips each image apart from these"
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
        raise ValueError(f"decode: RandomCrop, Pad: got padding {padding!r}, expected the same on all sides")
    return paddings.pop()


def _range(value: Any) -> Any:
    return None if value is None else tuple(value)


def _as_it_is(value: Any) -> Any:
    return value


# From torchvision's attributes to our arguments, where they differ.
_PLAIN: dict[str, Callable[[Any], Any]] = {"size": _size, "padding": _padding, "scale": _range, "ratio": _range}
