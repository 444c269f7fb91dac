"""Normalize: images of bytes to images of floats in one pass, for training on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _native
from .options import number

if TYPE_CHECKING:
    from torch import Tensor

_COLOURS = 3
_DTYPES = ("float32", "float16", "bfloat16")


class Normalize:
    """What torchvision's ToDtype(float32, scale=True) and Normalize(mean, std) make of a batch of images: `(x / 255 - mean) / std`.

    One pass over the images instead of three or four, into torch's memory format channels_last, which convolutions on a CPU
    want. For `Loader(transform=Normalize(...))`, or called by yourself with any uint8 tensor of N x 3 x H x W on the CPU. What it
    returns is memory of its own, so the batch's place in the ring is free as soon as the batch is gone.

    Args:
        mean, std: A number for each colour, of images from 0 to 1.
        dtype: "float32", or "float16" or "bfloat16", rounded once, at the end; or torch's own dtypes of these names.

    It works on as many threads as torch does (`torch.set_num_threads`).
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], dtype: Any = "float32") -> None:
        self._torch = import_module("torch")
        named = {name: getattr(self._torch, name) for name in _DTYPES}
        self.dtype = named.get(dtype, dtype) if isinstance(dtype, str) else dtype
        if self.dtype not in named.values():
            raise ValueError(f"dtype: got {dtype!r}, expected one of {', '.join(map(repr, _DTYPES))}")
        self.mean, self.std = _of_each_colour("mean", mean), _of_each_colour("std", std)
        if 0.0 in self.std:
            raise ValueError(f"std: got {std!r}, expected numbers other than 0")
        # All that a byte can become, in the very steps of torchvision.transforms.v2, so that its results are met to the last bit.
        shares = self._torch.arange(256, dtype=self._torch.float32).mul(1.0 / 255).expand(_COLOURS, -1)
        means, stds = (self._torch.tensor(values).unsqueeze(1) for values in (self.mean, self.std))
        values = ((shares - means) / stds).to(self.dtype)
        self._tables = bytes(values.contiguous().view(self._torch.uint8).flatten().tolist())

    def __call__(self, images: Tensor) -> Tensor:
        """The images as floats.

        Raises:
            ValueError: They are not uint8, N x 3 x H x W.
            TypeError: They are not a tensor on the CPU.
        """
        torch = self._torch
        if not isinstance(images, torch.Tensor) or images.device.type != "cpu":
            where = images.device if isinstance(images, torch.Tensor) else type(images).__name__
            raise TypeError(f"images: got {where}, expected a tensor on the CPU: on other devices use torch's own functions")
        if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != _COLOURS:
            raise ValueError(f"images: got {images.dtype} of {tuple(images.shape)}, expected uint8 of N x 3 x H x W")
        if not images.is_contiguous(memory_format=torch.channels_last):
            images = images.contiguous()
        target = torch.empty(images.shape, dtype=self.dtype, memory_format=torch.channels_last)
        _native.fill_floats(images, target, self._tables, torch.get_num_threads())
        return target

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std}, dtype={self.dtype})"


def _of_each_colour(name: str, values: Sequence[float]) -> tuple[float, ...]:
    if len(values) != _COLOURS:
        raise ValueError(f"{name}: got {values!r}, expected a number for each of red, green and blue")
    return tuple(number(name, value, -1e9, 1e9) for value in values)
