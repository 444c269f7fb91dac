"""The weights of all samples, for the sampler "weighted"."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from . import _native
from .buffers import numbers
from .options import shown


@dataclass(frozen=True, repr=False)
class Weights:
    """A table of weights in the daemon's form."""

    data: bytes
    digest: int

    def __len__(self) -> int:
        return len(self.data) // 4

    def __repr__(self) -> str:
        return f"<{len(self)} weights>"


def weight_table(weights: Any) -> Weights:
    """The table of a tensor, an array or a sequence with one number for each sample."""
    if isinstance(weights, Weights):
        return weights
    values = numbers(weights)
    # What these iterate over has another order or meaning.
    if isinstance(values, str | bytes | Mapping | Set) or not hasattr(values, "__iter__"):
        raise TypeError(f"weights: got {shown(weights)}, expected a number for each sample")
    values = values if isinstance(values, memoryview | list | tuple) else list(values)
    try:
        data, digest = _native.weight_table(values)
    except TypeError as error:
        raise TypeError(f"weights: expected a number for each sample, in one dimension: {error}") from None
    return Weights(data, digest)
