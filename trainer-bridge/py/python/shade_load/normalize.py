"""Normalize: images of bytes to images of floats, in one pass on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _native
from .options import choice, number, shown

if TYPE_CHECKING:
    from torch import Tensor

_COLOURS = 3
_DTYPES = ("float32", "float16", "bfloat16")
# Less than that is 0 in single precision, or nearly.
_STD_MIN = 1e-30


class Normalize:
    """torchvision's ToDtype(scale=True) and Normalize(mean, std): `(x / 255 - mean) / std`.

    Use it as `Loader(transform=Normalize(...))`, or call it with any uint8 tensor of N x 3 x H x W, or N x 1
    x H x W with one number.
    The result is a new tensor, so that the batch's place in the ring is free as soon as the batch is
    dropped. It has the images' memory format: contiguous, as models with `view(N, -1)` need it, or
    channels_last, which convolutions prefer, with `Loader(channels_last=True)`.

    On the CPU it takes one pass over the images instead of three or four, on torch's number of
    threads (`torch.set_num_threads`). On another device, such as that of `Loader(device="cuda:0")`,
    torch's functions do it there.

    Args:
        mean, std: A number for each colour, or one for all, for images from 0 to 1.
        dtype: "float32", "float16" or "bfloat16", rounded once at the end, or torch's dtypes of these
            names.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], dtype: Any = "float32") -> None:
        self._torch = import_module("torch")
        named = {name: getattr(self._torch, name) for name in _DTYPES}
        self.dtype = named.get(dtype, dtype) if isinstance(dtype, str) else dtype
        if self.dtype not in named.values():
            raise ValueError(f"dtype: got {dtype!r}, expected one of {', '.join(map(repr, _DTYPES))}")
        self.mean, self.std = _of_each_colour("mean", mean), _of_each_colour("std", std)
        self._is_of_grey = len(mean) == len(std) == 1
        if min(map(abs, self.std)) < _STD_MIN:
            raise ValueError(f"std: got {std!r}, expected numbers other than 0")

    def __call__(self, images: Tensor) -> Tensor:
        """The images as floats, on their device and in their memory format.

        Raises:
            ValueError: They are not uint8, N x 3 x H x W, or N x 1 x H x W with one mean.
            TypeError: They are no tensor.
        """
        torch = self._torch
        if not isinstance(images, torch.Tensor):
            raise TypeError(f"images: got {type(images).__name__}, expected a tensor")
        if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, _COLOURS):
            raise ValueError(f"images: got {images.dtype} of {tuple(images.shape)}, expected uint8 of N x 3 x H x W")
        if images.shape[1] == 1 and not self._is_of_grey:
            raise ValueError(f"images: got one channel, but mean={self.mean} and std={self.std}: give one number of each")
        if images.device.type != "cpu" or images.shape[1] == 1:
            return self._computed(images)
        layout = self._layout(images)
        target = torch.empty(images.shape, dtype=self.dtype, device=images.device, memory_format=layout)
        bytes_, threads = images.contiguous(memory_format=layout), torch.get_num_threads()
        _native.fill_floats(bytes_, target, self.mean, self.std, threads)
        return target

    def _layout(self, images: Tensor) -> Any:
        """The images' memory format; contiguous for those with gaps."""
        torch = self._torch
        is_last = not images.is_contiguous() and images.is_contiguous(memory_format=torch.channels_last)
        return torch.channels_last if is_last else torch.contiguous_format

    def _computed(self, images: Tensor) -> Tensor:
        """The images by torch's functions, in the steps of torchvision.transforms.v2, bit for bit."""
        torch = self._torch
        floats = images.to(torch.float32, memory_format=self._layout(images)).mul_(1.0 / 255)
        channels = images.shape[1]
        mean, std = (self._per_colour(values[:channels], images.device) for values in (self.mean, self.std))
        return floats.sub_(mean).div_(std).to(self.dtype)

    def _per_colour(self, values: tuple[float, ...], device: Any) -> Tensor:
        """1 x C x 1 x 1 numbers, made on the device: a copy would wait for the device's work."""
        torch = self._torch
        numbers = [torch.full((1, 1, 1, 1), value, dtype=torch.float32, device=device) for value in values]
        return torch.cat(numbers, dim=1)

    def __getstate__(self) -> dict[str, Any]:
        """Without the module, which cannot be pickled: for processes that are spawned, and copies."""
        return {name: value for name, value in vars(self).items() if name != "_torch"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _torch=import_module("torch"))

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std}, dtype={self.dtype})"


def dtype_name(dtype: Any) -> str:
    """The name of a type of an image's values, given by it or as torch's."""
    name = str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
    return choice("dtype", name, ("uint8", *_DTYPES))


def mean_and_std(pair: Any) -> dict[str, list[float]]:
    """`(mean, std)` as a job's document has them."""
    try:
        mean, std = (list(values) for values in pair)
    except (TypeError, ValueError):
        expected = "expected (mean, std), each with a number for each colour, or one"
        raise TypeError(f"normalize: got {shown(pair)}, {expected}") from None
    numbers = {}
    for name, values in (("mean", mean), ("std", std)):
        try:
            numbers[name] = list(_of_each_colour(name, values))
        except (TypeError, ValueError) as error:
            raise type(error)(f"normalize: {error}") from None
    if min(map(abs, numbers["std"])) < _STD_MIN:
        raise ValueError(f"normalize: std: got {shown(std)}, expected numbers other than 0")
    return numbers


def _of_each_colour(name: str, values: Sequence[float]) -> tuple[float, ...]:
    if len(values) not in (1, _COLOURS):
        raise ValueError(f"{name}: got {values!r}, expected a number for each of red, green and blue, or one")
    numbers = tuple(number(name, value, -1e9, 1e9) for value in values)
    return numbers * _COLOURS if len(numbers) == 1 else numbers
