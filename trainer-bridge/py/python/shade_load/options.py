"""Checks of arguments, with messages that name the argument."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from . import _native

INDEX_FILE = "dataset.shade"
# Limits of the formats; see formats/layout/src/limits.rs.
IMAGE_SIDE_MAX = 16_384
VIEWS_MAX = 16
RANKS_MAX = 65_536
RING_BYTES_MAX = 1 << 40
BATCH_SAMPLES_MAX = 32_768
UINT32_MAX = (1 << 32) - 1
UINT64_MAX = (1 << 64) - 1

_UNITS = {"": 1, "B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("iB", 1024), ("i", 1024), ("B", 1000), ("", 1000))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*((?:[KMGT]i?)?B?)", re.IGNORECASE)
# Characters of a value in a message.
SHOWN_MAX = 200
_JOB = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Options:
    """Base of Plan and Daemon: its repr shows the fields that differ from their defaults."""

    def __repr__(self) -> str:
        given = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]  # type: ignore[arg-type]
        differing = (f"{name}={value!r}" for name, value, default in given if value != default)
        return f"{type(self).__name__}({', '.join(differing)})"


def dataset_path(dataset: str | os.PathLike[str]) -> Path:
    """The dataset's folder with links resolved, equal in all ranks and the daemon.

    For an address such as s3://bucket/prefix it is one of this user's, with a copy of the index.
    """
    if not isinstance(dataset, str | os.PathLike):
        raise TypeError(f"dataset: got {shown(dataset)}, expected the path of a folder")
    if "://" in os.fsdecode(dataset):
        return Path(_native.dataset_folder(os.fsdecode(dataset)))
    try:
        path = Path(os.fsdecode(dataset)).resolve()
        is_there = path.exists()
    except (OSError, ValueError) as error:
        raise FileNotFoundError(f"dataset: {shown(dataset)}: {error}") from None
    if not is_there:
        raise FileNotFoundError(f"dataset: {path} does not exist; shade-pack create SRC OUT makes a dataset")
    if not (path / INDEX_FILE).is_file():
        raise FileNotFoundError(
            f"dataset: {path} has no {INDEX_FILE}; make a dataset from an ImageFolder: shade-pack create SRC OUT"
        )
    return path


def job_name(job: str, what: str = "job") -> str:
    """The name of a job or a group, for lists and messages."""
    return matching(what, job, _JOB, "letters, digits, '.', '_' and '-', at most 64")


def sides(name: str, size: Any) -> tuple[int, int]:
    """(height, width) in pixels, from a side or such a pair."""
    try:
        pair = tuple(size)
    except TypeError:
        pair = (size, size)
    if isinstance(size, str | bytes) or len(pair) != 2:
        raise ValueError(f"{name}: got {shown(size)}, expected a side or (height, width)")
    height, width = (integer(name, side, 1, IMAGE_SIDE_MAX) for side in pair)
    return height, width


def integer(name: str, value: Any, low: int, high: int) -> int:
    """`value`, if it is a whole number from `low` to `high`, of any type of integers."""
    whole = plain(value)
    if isinstance(whole, bool) or not isinstance(whole, int):
        raise TypeError(f"{name}: got {shown(value)}, expected an integer")
    if not low <= whole <= high:
        raise ValueError(f"{name}: got {shown(whole)}, expected {low} to {high}")
    return whole


def number(name: str, value: Any, low: float, high: float) -> float:
    """`value`, if it is a finite number from `low` to `high`, of any type of numbers."""
    found = real(name, value)
    if not (math.isfinite(found) and low <= found <= high):
        expected = f"at least {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"
        raise ValueError(f"{name}: got {shown(value)}, expected {expected}")
    return found


def real(name: str, value: Any) -> float:
    """`value`, if it is a number of any type, also one that is not finite."""
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"{name}: got {shown(value)}, expected a number")
    try:
        return float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    try:
        text = repr(value)
    except ValueError:
        # Python writes no integers of more than 4300 digits.
        text = "an integer of thousands of digits"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def plain(value: Any) -> Any:
    """A scalar of NumPy, torch or the like as Python's bool, int or float; all else as it is."""
    if isinstance(value, int | float | str | bytes | type) or getattr(value, "ndim", 0) != 0:
        return value
    kind = str(getattr(value, "dtype", ""))
    if "bool" in kind:
        return bool(value)
    with suppress(TypeError):
        return operator.index(value)
    return float(value) if hasattr(value, "__float__") and "complex" not in kind else value


def flag(name: str, value: bool) -> bool:
    """`value`, if it is True or False."""
    truth = plain(value)
    if not isinstance(truth, bool):
        raise TypeError(f"{name}: got {shown(value)}, expected True or False")
    return truth


def choice(name: str, value: str, known: Collection[str]) -> str:
    """`value`, if it is one of `known`."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}: got {shown(value)}, expected one of {', '.join(map(repr, known))}")
    return value


def matching(name: str, value: str, pattern: re.Pattern[str], example: str) -> str:
    """`value`, if it is a text that matches the pattern."""
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError(f"{name}: got {shown(value)}, expected something like {example}")
    return value


def size_bytes(name: str, value: int | str, low: int, high: int) -> int:
    """Bytes from a number or a text such as "256MiB"."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise ValueError(f'{name}: got {shown(value)}, expected bytes or a size such as "256MiB"')
        unit = match[2][:1].upper() + match[2][1:].replace("b", "B").replace("I", "i")
        value = int(min(float(match[1]) * _UNITS[unit], 2.0 * UINT64_MAX))
    return integer(name, value, low, high)
