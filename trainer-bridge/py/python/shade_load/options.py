"""Checks of arguments, with messages that name the argument."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

INDEX_FILE = "dataset.shade"
# Limits of the formats; see formats/layout/src/limits.rs.
IMAGE_SIDE_MAX = 16_384
VIEWS_MAX = 16
RANKS_MAX = 65_536
RING_BYTES_MAX = 1 << 40
UINT32_MAX = (1 << 32) - 1
UINT64_MAX = (1 << 64) - 1

_UNITS = {"": 1, "B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("iB", 1024), ("i", 1024), ("B", 1000), ("", 1000))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*((?:[KMGT]i?)?B?)", re.IGNORECASE)
_PERCENT = re.compile(r"\d+(?:\.\d+)?%")
_JOB = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Options:
    """Base of Plan and Daemon: its repr shows the fields that differ from their defaults."""

    def __repr__(self) -> str:
        given = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]  # type: ignore[arg-type]
        shown = (f"{name}={value!r}" for name, value, default in given if value != default)
        return f"{type(self).__name__}({', '.join(shown)})"


def dataset_path(dataset: str | os.PathLike[str]) -> Path:
    """The dataset's folder with links resolved, equal in all ranks and the daemon."""
    path = Path(dataset).resolve()
    if not (path / INDEX_FILE).is_file():
        raise FileNotFoundError(
            f"dataset: {path} has no {INDEX_FILE}; make a dataset from an ImageFolder: shade-pack create SRC OUT"
        )
    return path


def job_name(job: str, what: str = "job") -> str:
    """The name of a job or a group, for lists and messages."""
    return matching(what, job, _JOB, "letters, digits, '.', '_' and '-', at most 64")


def sides(name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) in pixels, from a side or such a pair."""
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2:
        raise ValueError(f"{name}: got {size!r}, expected a side or (height, width)")
    height, width = (integer(name, side, 1, IMAGE_SIDE_MAX) for side in pair)
    return height, width


def integer(name: str, value: int, low: int, high: int) -> int:
    """`value`, if it is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: got {value!r}, expected an integer")
    if not low <= value <= high:
        raise ValueError(f"{name}: got {value}, expected {low} to {high}")
    return value


def number(name: str, value: float, low: float, high: float) -> float:
    """`value`, if it is a finite number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: got {value!r}, expected a number")
    if not (math.isfinite(value) and low <= value <= high):
        expected = f"at least {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"
        raise ValueError(f"{name}: got {value}, expected {expected}")
    return float(value)


def flag(name: str, value: bool) -> bool:
    """`value`, if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: got {value!r}, expected True or False")
    return value


def choice(name: str, value: str, known: Collection[str]) -> str:
    """`value`, if it is one of `known`."""
    if value not in known:
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(map(repr, known))}")
    return value


def matching(name: str, value: str, pattern: re.Pattern[str], example: str) -> str:
    """`value`, if it is a text that matches the pattern."""
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError(f"{name}: got {value!r}, expected something like {example}")
    return value


def size_bytes(name: str, value: int | str, low: int, high: int) -> int:
    """Bytes from a number or a text such as "256MiB"."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise ValueError(f'{name}: got {value!r}, expected bytes or a size such as "256MiB"')
        unit = match[2][:1].upper() + match[2][1:].replace("b", "B").replace("I", "i")
        value = int(float(match[1]) * _UNITS[unit])
    return integer(name, value, low, high)


def capacity(name: str, value: int | str) -> str:
    """A cache capacity for the command line: bytes, or a percentage of the dataset."""
    if isinstance(value, str) and _PERCENT.fullmatch(value.strip()):
        number(name, float(value.strip()[:-1]), 0.0, 100.0)
        return value.strip()
    return str(size_bytes(name, value, 0, UINT64_MAX))
