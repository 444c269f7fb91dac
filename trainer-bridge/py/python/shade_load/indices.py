"""The samples that a job delivers, where these are not all of the dataset."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _native
from .buffers import numbers
from .options import shown

_EXPECTED = "a sample id for each sample, or a mask with a bool for each sample of the dataset"


@dataclass(frozen=True, repr=False)
class Indices:
    """Sample ids in the daemon's form."""

    data: bytes
    digest: int
    # Length of the mask that they were made from, which is that of the dataset.
    samples: int | None = None

    def __len__(self) -> int:
        return len(self.data) // 4

    def __repr__(self) -> str:
        return f"<{len(self)} indices>"

    def check(self, samples: int) -> None:
        """Refuses a mask for another dataset than one of `samples` samples."""
        if self.samples not in (None, samples):
            raise ValueError(f"indices: got a mask of {self.samples}, expected one of the dataset's {samples} samples")


def sample_indices(indices: Any) -> Indices:
    """The samples of a range, a set, a sequence, an array or a tensor of ids, or of a mask."""
    if isinstance(indices, Indices):
        return indices
    values = numbers(indices)
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise TypeError(f"indices: got {shown(indices)}, expected {_EXPECTED}")
    samples = None
    if not isinstance(values, memoryview):
        values = list(values)
    if isinstance(values, memoryview):
        if values.format == "?":
            samples = len(values)
            values = memoryview(array("I", (sample for sample, is_wanted in enumerate(values) if is_wanted)))
    elif any(isinstance(value, bool) for value in values):
        if not all(isinstance(value, bool) for value in values):
            raise TypeError(f"indices: got bools among numbers, expected {_EXPECTED}")
        samples = len(values)
        values = [sample for sample, is_wanted in enumerate(values) if is_wanted]
    try:
        data, digest = _native.subset(values)
    except TypeError as error:
        raise TypeError(f"indices: expected {_EXPECTED}, in one dimension: {error}") from None
    except OverflowError:
        wrong = next(value for value in values if not 0 <= value < 2**32)
        raise ValueError(f"indices: got {shown(wrong)}, expected sample ids, which count from 0") from None
    return Indices(data, digest, samples)
