"""A recipe of transforms as a script has it: what the daemon does, and what is left for the batch.

Scripts end their transforms with ToTensor and Normalize. Where the daemon's images are bytes, it
does what comes before, and the rest makes floats of a whole batch, in one pass. Where a type of
floats is asked for, the daemon does that as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from .device import check_device
from .known_transforms import attributes, class_name, does_each_of_a_batch, in_turn
from .normalize import Normalize, dtype_name, mean_and_std
from .options import shown
from .transforms import Decode, Grayscale, RandomErasing, has_views

# What resizes, and may smooth or not.
_OF_RESIZING = ("Resize", "RandomResizedCrop")
# What makes rows of one size: a view begins with it.
_OF_ROWS = ("Resize", "CenterCrop", "FiveCrop", "RandomCrop", "RandomResizedCrop")
# What does the same to each channel, however many there are.
_OF_GEOMETRY = (*_OF_ROWS, "Pad", "RandomHorizontalFlip", "RandomVerticalFlip")
_LEVELS = 255


def recipe(decode: Any, transform: Callable[[Any], Any] | None) -> tuple[Decode | None, Callable[[Any], Any] | None]:
    """What of `decode` is the daemon's, and the function of a batch's images: what is left, then `transform`.

    Raises:
        ValueError: The views' images become different floats, or one has arguments that cannot be done to a batch.
        TypeError: A transform comes behind ToTensor or timm's RandomErasing, and is done before it here; ToTensor or
            its like comes behind ToDtype; Normalize has no numbers; or `transform` is no function.
    """
    taken = _Taken.of(decode, transform)
    functions = taken.rest if taken.floats is None else [Normalize(taken.floats.mean, taken.floats.std), *taken.rest]
    return taken.decode, _in_a_row(functions)


def recipe_of_floats(
    decode: Any, transform: Callable[[Any], Any] | None, dtype: Any, normalize: Any
) -> tuple[Decode | None, Callable[[Any], Any] | None, dict[str, Any]]:
    """As `recipe`, and the arguments of a job whose images have this type: if it is one of floats, the
    daemon makes them, also by a Normalize of `decode`.

    Raises:
        ValueError, TypeError: As for `recipe`; or there is no such type, or `normalize` is no pair of numbers or
            comes with a Normalize in `decode`.
    """
    name, numbers = dtype_name(dtype), None if normalize is None else mean_and_std(normalize)
    if name == "uint8":
        # Whether that goes together the daemon says.
        return *recipe(decode, transform), {"dtype": name, "normalize": numbers}
    taken = _Taken.of(decode, transform)
    if taken.floats is not None and taken.floats.is_normalized:
        if numbers is not None:
            raise ValueError("normalize: got numbers, and decode ends in Normalize as well: give one of the two")
        numbers = mean_and_std((taken.floats.mean, taken.floats.std))
    return taken.decode, _in_a_row(taken.rest), {"dtype": name, "normalize": numbers}


def check_uses(torch: ModuleType | None, device: Any, transform: Any, has_images: bool, has_function: bool) -> None:
    """Refuses what would be done to images where there are none, and what is no CUDA device here."""
    if device is not None:
        check_device(torch, device, has_images or has_function)
    if transform is not None and not has_images:
        raise ValueError(
            f"transform: got {shown(transform)} for raw records; give image_size or decode as well, "
            "or a function of single samples: PerSample(function, workers=...)"
        )


@dataclass(frozen=True)
class _Taken:
    """A recipe taken apart: the daemon's transforms, the floats that it ends in, and what comes then."""

    decode: Decode | None
    floats: _Floats | None
    rest: list[Callable[[Any], Any]]

    @classmethod
    def of(cls, decode: Any, transform: Callable[[Any], Any] | None) -> _Taken:
        if transform is not None and not callable(transform):
            raise TypeError(f"transform: got {shown(transform)}, expected a function of a batch's images")
        rest = [] if transform is None else [transform]
        if decode is None or isinstance(decode, str):
            return cls(decode, None, rest)
        views = _views(decode)
        if not any(view.is_shortened for view in views):
            return cls(decode, None, rest)
        steps = [view.steps for view in views]
        return cls(steps if has_views(decode) else steps[0], views[0].floats, [*views[0].behind, *rest])


def _views(decode: Any) -> list[_View]:
    """The views of `decode`, all of which become floats alike."""
    views = [_View.of(view) for view in decode] if has_views(decode) else [_View.of(decode)]
    for number, view in enumerate(views):
        if view.floats != views[0].floats:
            raise ValueError(
                f"decode: view {number} ends in {view.floats}, and view 0 in {views[0].floats}, but all views of a "
                "batch become floats alike: leave Normalize out, and call shade_load.Normalize on each of batch.images"
            )
    if len(views) > 1 and any(view.behind for view in views):
        raise ValueError("decode: got timm's RandomErasing in one of several views: call it on each of batch.images")
    return views


@dataclass(frozen=True)
class _Floats:
    """`(x / 255 - mean) / std`."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    is_normalized: bool = False

    def level(self, value: Any) -> Any:
        """The level of a byte that becomes this value, or those of three."""
        if isinstance(value, str) or value is None:
            raise ValueError('decode: RandomErasing: got value="random", but the daemon erases bytes: give a number')
        values = value if isinstance(value, Sequence) else [value]
        count = max(len(values), len(self.mean), len(self.std))
        mean, std, values = (list(each) * count if len(each) == 1 else list(each) for each in (self.mean, self.std, values))
        levels = [round((v * s + m) * _LEVELS) for v, m, s in zip(values, mean, std, strict=True)]
        if not all(0 <= level <= _LEVELS for level in levels):
            raise ValueError(f"decode: RandomErasing: got value={value!r}, which no level from black to white becomes")
        return levels[0] if len(levels) == 1 else tuple(levels)


@dataclass
class _View:
    """The transforms of one view: those of bytes, and what makes floats of their result."""

    steps: list[Any] = field(default_factory=list)
    floats: _Floats | None = None
    # Whether some transform makes a tensor of a PIL image.
    is_tensor: bool = False
    # What is done to a batch's floats.
    behind: list[Callable[[Any], Any]] = field(default_factory=list)
    # Whether some transform is not among the steps.
    is_shortened: bool = False

    @classmethod
    def of(cls, given: object) -> _View:
        """One view's transforms, as `decode` takes them."""
        view = cls()
        for step in _in_turn(given):
            if not view._left_out(step):
                view.steps.append(view._of_bytes(step))
            else:
                view.is_shortened = True
        return view

    def _left_out(self, step: object) -> bool:
        """Takes a transform that makes floats, or one that does nothing to bytes."""
        if isinstance(step, Normalize):
            raise TypeError("decode: got shade_load.Normalize, which is for batches: give it as Loader(transform=...)")
        match class_name(step):
            case "PILToTensor" | "ToImage" | "ToTensor" as name:
                self._to_tensor(step, name)
            case "ToDtype" | "ConvertImageDtype" as name:
                self._to_dtype(step, name)
            case "Normalize":
                self._normalize(step)
            case "RGB":
                self._to_colours(step)
            case "ToPureTensor":
                attributes(step, ())
            case _ if does_each_of_a_batch(step) and self.floats is not None:
                self._to_a_batch(step)
            case _:
                return False
        return True

    def _to_tensor(self, step: object, name: str) -> None:
        attributes(step, ())
        # ToTensor makes the same floats of a PIL image that ToDtype has left.
        if self.floats is not None and not self.is_tensor and name != "ToTensor":
            raise TypeError(
                f"decode: got {name} behind ToDtype or ConvertImageDtype, which makes floats of tensors and not of PIL "
                f"images: put {name} before ToDtype"
            )
        self.is_tensor = True
        if name == "ToTensor":
            self.floats = self.floats or _Floats()

    def _to_colours(self, step: object) -> None:
        """Puts Grayscale(3) in place of a Grayscale of one channel, if only geometry is behind it.

        Other images have three colours already. The daemon refuses other transforms behind one channel.
        """
        attributes(step, ())
        for place, before in reversed(list(enumerate(self.steps))):
            if _has_one_channel(before):
                self._check_nothing_behind("RGB")
                self.steps[place] = Grayscale(3)
                return
            if (class_name(before) or type(before).__name__) not in _OF_GEOMETRY:
                return

    def _to_a_batch(self, step: object) -> None:
        """Takes timm's RandomErasing, which a recipe of torchvision's calls with single images."""
        # Old versions of timm may lack the option: they erase in all rows.
        splits = getattr(step, "num_splits", 0)
        if splits > 1:
            raise ValueError(
                f"decode: got timm's RandomErasing with num_splits={splits}, which spares the first rows of a batch and "
                "no single image: leave num_splits out, or call it on batch.images"
            )
        assert callable(step)
        self.behind.append(step)

    def _check_nothing_behind(self, name: str) -> None:
        """Refuses a transform that would be done before timm's RandomErasing, and stands behind it."""
        if self.behind:
            raise TypeError(
                f"decode: got {name} behind timm's RandomErasing, which is done to a batch's floats in the end: put "
                "timm's RandomErasing last"
            )

    def _to_dtype(self, step: object, name: str) -> None:
        given = attributes(step, ("dtype", "scale") if name == "ToDtype" else ("dtype",))
        dtype = str(given["dtype"])
        if dtype == "torch.uint8" and self.floats is None:
            return
        if dtype != "torch.float32" or not given.get("scale", True):
            raise ValueError(
                f"decode: got {step!r}, expected float32 with scale=True: leave it out, and get other floats by "
                "Loader(dtype=...) of the daemon, or by Loader(transform=...)"
            )
        self.floats = self.floats or _Floats()

    def _normalize(self, step: object) -> None:
        if self.floats is None:
            raise TypeError("decode: got Normalize without ToTensor before it, but bytes have no mean of floats")
        if self.floats.is_normalized:
            raise ValueError("decode: got Normalize twice: write one, with both done in turn")
        self._check_nothing_behind("Normalize")
        given = attributes(step, ("mean", "std"))
        mean, std = (_numbers(name, given[name]) for name in ("mean", "std"))
        self.floats = _Floats(mean, std, is_normalized=True)

    def _of_bytes(self, step: Any) -> Any:
        """A transform for the daemon: behind ToTensor it can only be one that bytes show as well."""
        if self.floats is None:
            # The daemon resizes as PIL does.
            if self.is_tensor and class_name(step) in _OF_RESIZING and getattr(step, "antialias", True) is not True:
                raise ValueError(
                    f"decode: {type(step).__name__}: got antialias={step.antialias!r} behind ToImage or PILToTensor, where "
                    "torchvision does not smooth, but the daemon does: give antialias=True"
                )
            return step
        if class_name(step) == "RandomErasing":
            self._check_nothing_behind("torchvision's RandomErasing")
            given = attributes(step, ("p", "scale", "ratio", "value"))
            given["value"] = self.floats.level(_plain(given["value"]))
            return RandomErasing(**{name: _tuple(value) for name, value in given.items()})
        if class_name(step) in _OF_ROWS:
            raise TypeError(
                f"decode: got {type(step).__name__} behind ToTensor: for several views of each image give a list of lists, "
                "such as decode=[[view] for view in views]"
            )
        raise TypeError(
            f"decode: got {type(step).__name__} behind ToTensor, where it changes floats: put it before ToTensor, "
            "where the daemon does it to bytes, or call it on a batch's images with Loader(transform=...)"
        )


def _in_turn(given: object) -> list[object]:
    """The transforms one after the other, those in lists and Compose too."""
    parts = in_turn(given)
    return [given] if parts is None else [step for part in parts for step in _in_turn(part)]


def _has_one_channel(step: Any) -> bool:
    """Whether it is a Grayscale, ours or torchvision's, that leaves one channel."""
    if type(step) is Grayscale:
        return step.num_output_channels == 1
    return class_name(step) == "Grayscale" and attributes(step, ("num_output_channels",))["num_output_channels"] == 1


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    """A number for each colour, or one for all, which version 1 also takes as such or as a tensor of no dimension."""
    is_one = isinstance(value, int | float) or getattr(value, "ndim", None) == 0
    try:
        return tuple(map(float, [value] if is_one else value))
    except (TypeError, ValueError):
        raise TypeError(
            f"decode: Normalize: got {name}={value!r}, expected a number for each of red, green and blue, or one"
        ) from None


def _plain(value: Any) -> Any:
    """RandomErasing's value: version 2 keeps a list of one for a number."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _in_a_row(functions: list[Callable[[Any], Any]]) -> Callable[[Any], Any] | None:
    """One function that calls these in turn."""
    if len(functions) <= 1:
        return functions[0] if functions else None

    def all_of_them(images: Any) -> Any:
        for function in functions:
            images = function(images)
        return images

    return all_of_them
