"""Extra fields of samples that come with each batch: what a Loader asks for, and its columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from ._native import RecordError
from .options import plain, shown

if TYPE_CHECKING:
    from torch import Tensor

# Kinds that are a type of Python.
_OF_TYPES: dict[Any, str] = {bytes: "bytes", str: "text", dict: "json", list: "json"}
# Names that a batch has for its own columns.
OWN_COLUMNS = (
    "images",
    "records",
    "labels",
    "ids",
    "weights",
    "flags",
    "crops",
    "flipped",
    "flipped_down",
    "heights",
    "widths",
)


class Rows(NamedTuple):
    """A field of numbers of which each sample has any number of rows.

    Those of the sample at position i are `values[offsets[i]:offsets[i + 1]]`. A sample without the
    field has none. Without torch, values are the bytes of all rows, and offsets a list.
    """

    # All samples' rows, one after another: rows x the shape of one.
    values: Tensor
    # int64, one more than there are samples.
    offsets: Tensor


def kinds(fields: Iterable[str] | Mapping[str, Any] | None) -> dict[str, str]:
    """The fields of a Loader's argument, each with its kind as the job's document has it."""
    if fields is None:
        return {}
    if not isinstance(fields, Mapping | list | tuple | set | frozenset):
        raise TypeError(f"fields: got {shown(fields)}, expected names, such as ('caption',), or names with kinds")
    if isinstance(fields, Mapping):
        named = {name: _OF_TYPES.get(kind, kind) if isinstance(kind, type) else kind for name, kind in fields.items()}
    else:
        named = {name: "json" if str(name).endswith("json") else "bytes" for name in map(plain, fields)}
    for name, kind in named.items():
        if not isinstance(name, str) or not isinstance(kind, str):
            raise TypeError(
                f"fields: got {shown(name)}: {shown(kind)}, expected a name and bytes, str, dict, or a text such as "
                f'"float32[512]" or "mask"'
            )
        if name in OWN_COLUMNS:
            raise ValueError(f"fields: got {name!r}, which is a column that each batch has; use batch.fields()")
    return {name: _native.field_kind(kind) for name, kind in named.items()}


def value(name: str, kind: str, content: bytes | None) -> Any:
    """A field of one sample: bytes, a text, what was parsed, or a tensor; None if there is none.

    Raises:
        ValueError: It is not of this kind.
    """
    if content is None:
        return None
    content = _native.field_content(name, kind, content)
    if "[" not in kind:
        return _plain(kind, content)
    # Without torch nobody asks for a tensor.
    import torch

    row = _native.field_row(kind)
    if row is not None:
        return _tensor(torch, bytearray(content), row[0]).reshape(-1, *row[1])
    number, sides = kind.rstrip("]").split("[")
    return _tensor(torch, bytearray(content), number).reshape([int(side) for side in sides.split(",") if side])


def _tensor(torch: ModuleType, content: bytearray, number: str) -> Tensor:
    """Flat numbers of this type."""
    dtype = getattr(torch, number)
    return torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype, device="cpu")


def _plain(kind: str, content: bytes) -> Any:
    if kind == "text":
        return content.decode()
    return json.loads(content) if kind == "json" else content


def column(
    native: _native.Batch, torch: ModuleType | None, name: str, of_views: Callable[[Callable[[int], Any]], Any]
) -> Any:
    """The field `name` of all samples of a batch: a tensor, `Rows`, or a list.

    What follows the image is made for each view by `of_views`.
    """
    at, kind, follows = native.field(name)
    row = _native.field_row(kind)
    if row is None and not follows and "[" not in kind:
        return [_checked(native, row, name, kind, content) for row, content in enumerate(native.field_bytes(at))]

    def of_view(view: int) -> Any:
        if row is not None:
            return _rows(*native.field_rows(at, view), row, torch)
        tensor = native.fixed_field(at, view)
        return tensor if torch is None else torch.from_dlpack(tensor)

    return of_views(of_view) if follows else of_view(0)


def _rows(values: bytearray, counts: list[int], row: tuple[str, list[int]], torch: ModuleType | None) -> Rows:
    """The rows of all samples, each of this type and shape."""
    if torch is None:
        return Rows(values, list(accumulate(counts, initial=0)))  # type: ignore[arg-type]
    # On the CPU, as the values are, whatever `torch.set_default_device` has named.
    offsets = torch.tensor([0, *accumulate(counts)], dtype=torch.int64, device="cpu")
    return Rows(_tensor(torch, values, row[0]).reshape(sum(counts), *row[1]), offsets)


def _checked(native: _native.Batch, row: int, name: str, kind: str, content: bytes | None) -> Any:
    try:
        return None if content is None else _plain(kind, content)
    except (ValueError, RecursionError) as error:
        # The daemon has checked it: somebody wrote to the batch, or Python's parser has a limit.
        sample = native.ids().tolist()[row]
        raise RecordError(f"field {name!r} of sample {sample} is no {kind}: {error}") from None
