"""What the daemon makes of an image, in torchvision's words: `Loader(..., decode=[RandomResizedCrop(224), RandomHorizontalFlip()])`.

Each does what torchvision's transform of that name does to a PIL image, with bilinear interpolation and antialiasing; what is
random follows from seed, epoch and the sample's position in the epoch. torchvision's own objects are taken, too, alone or in
a `Compose`, as far as there is a transform here with that name. `decode="none"` is no transform at all: each image in its own
size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _native
from .options import IMAGE_SIDE_MAX, flag, integer, number

_SQUARE_OR_PAIR = "expected a side or (height, width)"


@dataclass(frozen=True)
class Resize:
    """To `size`: a side's length for the shorter side, which keeps the ratio, or (height, width), which does not."""

    size: int | tuple[int, int]


@dataclass(frozen=True)
class CenterCrop:
    """The middle; beside smaller images there is black."""

    size: int | tuple[int, int]


@dataclass(frozen=True)
class RandomCrop:
    """A random part, after `padding` black pixels were added on each side. Images must not be smaller."""

    size: int | tuple[int, int]
    padding: int = 0


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random part of a random share of the area and ratio of the sides (width / height), resized to `size`."""

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Mirrored from left to right with probability `p`."""

    p: float = 0.5


# Instead of transforms: each image in its own size.
NONE = "none"

Transform = Resize | CenterCrop | RandomCrop | RandomResizedCrop | RandomHorizontalFlip
# Transforms of ours or torchvision's (callables), one or several; or "none".
Decode = Transform | Callable[[Any], Any] | Sequence[Transform | Callable[[Any], Any]] | Literal["none"]

_ORDER = (
    "expected Resize, CenterCrop, RandomCrop or RandomResizedCrop, where Resize may come before one of the crops, "
    "and RandomHorizontalFlip behind it"
)


def image_spec(transforms: object, channels_last: bool, exact: bool) -> _native.Images:
    """The transforms as the native module takes them.

    Raises:
        ValueError: They do not give images of one size, or not in this order, and are not "none".
        TypeError: There is no such transform here.
    """
    if isinstance(transforms, str) and transforms == NONE:
        return _spec(NONE, channels_last, exact)
    steps = [_ours(transform) for transform in _flat(transforms)]
    given = f"decode: got {steps!r}"
    flip = 0.0
    if steps and isinstance(steps[-1], RandomHorizontalFlip):
        flip = number("RandomHorizontalFlip: p", steps.pop().p, 0.0, 1.0)
    spec = _spec("stretch", channels_last, exact)
    spec["flip"] = flip
    last = steps[-1] if steps else None
    match steps:
        case [Resize(size=size)] if not isinstance(size, int):
            pass
        case [Resize(size=side)]:
            raise ValueError(
                f"decode: Resize({side}) keeps each image's ratio, so that no batch is of one size: "
                f"add CenterCrop or RandomCrop, or use Resize((height, width)); decode=\"none\" leaves images as they are"
            )
        case [Resize(size=side), CenterCrop() | RandomCrop()] if isinstance(side, int):
            spec["short"] = integer("Resize: size", side, 1, IMAGE_SIDE_MAX)
        case [CenterCrop() | RandomCrop() | RandomResizedCrop()]:
            pass
        case _:
            raise ValueError(f"{given}, {_ORDER}")
    assert last is not None and not isinstance(last, RandomHorizontalFlip)
    spec["height"], spec["width"] = _sides(last)
    if isinstance(last, CenterCrop):
        spec["framing"] = "center"
    elif isinstance(last, RandomCrop):
        spec["framing"] = "random"
        spec["padding"] = integer("RandomCrop: padding", last.padding, 0, IMAGE_SIDE_MAX)
    elif isinstance(last, RandomResizedCrop):
        spec["framing"] = "random_resized"
        spec["scale"] = _range("scale", last.scale)
        spec["ratio"] = _range("ratio", last.ratio)
    return spec


def covering(size: tuple[int, int], channels_last: bool, exact: bool) -> _native.Images:
    """The middle of each image, resized so that it just covers (height, width): `image_size=`."""
    spec = image_spec(Resize(size), channels_last, exact)
    spec["framing"] = "cover"
    return spec


def _spec(framing: str, channels_last: bool, exact: bool) -> _native.Images:
    """Of this framing, the rest as it is where nothing is asked for."""
    return {
        "height": 0,
        "width": 0,
        "framing": framing,
        "short": 0,
        "padding": 0,
        "scale": (1.0, 1.0),
        "ratio": (1.0, 1.0),
        "flip": 0.0,
        "channels_last": flag("channels_last", channels_last),
        "exact": flag("exact", exact),
    }


def _flat(transforms: object) -> list[object]:
    """One transform, a list of them or a `Compose`, as a list."""
    inner = getattr(transforms, "transforms", transforms)
    # A text is made of texts, without end.
    if isinstance(inner, Iterable) and not isinstance(inner, str):
        return [step for transform in inner for step in _flat(transform)]
    return [inner]


def _ours(transform: Any) -> Transform:
    if isinstance(transform, Transform):
        return transform
    name = type(transform).__name__
    if not type(transform).__module__.startswith("torchvision.transforms"):
        raise TypeError(
            f"decode: got {transform!r}, expected transforms of shade_load.transforms, or \"none\"; use transform= for yours"
        )
    try:
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
    except AttributeError as error:
        raise TypeError(f"decode: torchvision's {name} of this version: {error}") from None
    raise TypeError(
        f"decode: the daemon has no {name}: leave it out here, and do it on batch.images (transform=), "
        "where uint8 becomes float, too"
    )


def _check_options(name: str, transform: Any) -> None:
    """Refuses options of torchvision's transforms that the daemon would have to ignore."""
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
    """torchvision keeps a side of `Resize` as a number, of crops as a pair; lists of one are sides as well."""
    if isinstance(size, Sequence):
        return int(size[0]) if len(size) == 1 else (int(size[0]), int(size[1]))
    return int(size)


def _padding(padding: Any) -> int:
    paddings = {0 if padding is None else padding} if not isinstance(padding, Sequence) else set(padding)
    if len(paddings) != 1:
        raise ValueError(f"decode: RandomCrop: got padding {padding!r}, expected the same on all sides")
    return int(paddings.pop())


def _sides(transform: Resize | CenterCrop | RandomCrop | RandomResizedCrop) -> tuple[int, int]:
    name, size = type(transform).__name__, transform.size
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2:
        raise ValueError(f"decode: {name}: got {size!r}, {_SQUARE_OR_PAIR}")
    height, width = (integer(f"{name}: size", side, 1, IMAGE_SIDE_MAX) for side in sides)
    return height, width


def _range(name: str, pair: Sequence[float]) -> tuple[float, float]:
    if len(pair) != 2:
        raise ValueError(f"RandomResizedCrop: {name}: got {pair!r}, expected (least, most)")
    most_of_all = 1.0 if name == "scale" else float(IMAGE_SIDE_MAX)
    least, most = (number(f"RandomResizedCrop: {name}", side, 0.0, most_of_all) for side in pair)
    if not 0.0 < least <= most:
        raise ValueError(f"RandomResizedCrop: {name}: got {pair!r}, expected (least, most), above 0")
    return least, most
