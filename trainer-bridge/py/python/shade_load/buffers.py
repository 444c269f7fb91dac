"""Numbers of a caller as they lie in memory: a Python object for each takes 32 bytes and more."""

from __future__ import annotations

from typing import Any

# Formats of a buffer's elements that are integers, floats or bools in Python.
_NUMBERS = frozenset("bBhHiIlLqQnNfd?")


def numbers(values: Any) -> Any:
    """A view of the numbers of an array or a tensor in one dimension, or else the values themselves.

    A tensor on a device, and numbers that Python cannot view, become a list.
    """
    for of in (values, _array_of(values)):
        try:
            view = memoryview(of)
        except (TypeError, ValueError, BufferError):
            continue
        if view.ndim == 1 and view.c_contiguous and view.format in _NUMBERS and not isinstance(values, bytes | bytearray):
            return view
    return values.tolist() if hasattr(values, "tolist") else values


def _array_of(values: Any) -> Any:
    """A tensor on the CPU as an array, over the same memory."""
    try:
        return values.detach().numpy()
    except (AttributeError, TypeError, RuntimeError):
        return None

