"""A function's results: what they consist of, and where those of a batch lie in memory."""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import numpy as np

ALIGN_BYTES = 64
# NumPy's kinds of bools, integers, floats and complex numbers, which tensors have.
_KINDS = frozenset("biufc")


class Column(NamedTuple):
    """A part of each result."""

    # NumPy's name of the type, such as "<f4"; "" for objects.
    dtype: str
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one sample's; 0 for objects."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape) if self.dtype else 0

    def __str__(self) -> str:
        return f"{np.dtype(self.dtype).name} of {self.shape}" if self.dtype else "an object"


class Form(NamedTuple):
    """What all results of a function have in common."""

    # The names of a dict, the length of a tuple, or None for a single value.
    keys: tuple[Any, ...] | int | None
    columns: tuple[Column, ...]

    def places(self, rows: int) -> list[int]:
        """Where each column of a batch begins, and the length of all."""
        places = [0]
        for column in self.columns:
            places.append(-(-(places[-1] + rows * column.row_bytes) // ALIGN_BYTES) * ALIGN_BYTES)
        return places

    def joined(self, columns: list[Any]) -> Any:
        """The columns of a batch as the function gave one sample's."""
        if self.keys is None:
            return columns[0]
        return tuple(columns) if isinstance(self.keys, int) else dict(zip(self.keys, columns, strict=True))

    def __str__(self) -> str:
        told = [str(column) for column in self.columns]
        if isinstance(self.keys, tuple):
            return "{" + ", ".join(f"{key!r}: {column}" for key, column in zip(self.keys, told, strict=True)) + "}"
        return told[0] if self.keys is None else f"({', '.join(told)})"


def taken_apart(result: Any) -> tuple[Form, list[Any]]:
    """The form of one result, and its parts: contiguous arrays and objects.

    Raises: ValueError: It has no part.
    """
    keys: tuple[Any, ...] | int | None = None
    parts = [result]
    if isinstance(result, dict):
        keys, parts = tuple(result), list(result.values())
    elif isinstance(result, tuple):
        keys, parts = len(result), list(result)
    if result is None or not parts:
        raise ValueError(f"the function returned {result!r}, expected an array, or a tuple or dict of such")
    parts = [_as_array(part) for part in parts]
    return Form(keys, tuple(map(_column, parts))), parts


def _as_array(part: Any) -> Any:
    """A part as an array, if it consists of numbers."""
    is_number = isinstance(part, bool | int | float)
    if not is_number and not hasattr(part, "__array__") and not hasattr(part, "__array_interface__"):
        return part
    if hasattr(part, "detach"):
        part = part.detach().cpu()
    array = np.asarray(part)
    return np.asarray(array, array.dtype.newbyteorder("="), order="C") if array.dtype.kind in _KINDS else part


def _column(part: Any) -> Column:
    has_numbers = isinstance(part, np.ndarray) and part.dtype.kind in _KINDS
    return Column(part.dtype.str, part.shape) if has_numbers else Column("", ())


def write(file: int, content: Any, place: int) -> None:
    """Writes all bytes of a contiguous array, or of a buffer of bytes."""
    view = memoryview(content.reshape(-1).view(np.uint8) if isinstance(content, np.ndarray) else content)
    while len(view) > 0:
        written = os.pwrite(file, view, place)
        view, place = view[written:], place + written
