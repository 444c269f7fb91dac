"""Batches: columns of shared memory as torch tensors, or as DLPack views without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, cast, overload

from . import _native
from ._native import RecordError, ShadeError
from .device import CudaDevice
from .fields import OWN_COLUMNS, column
from .mixture import Mixture

if TYPE_CHECKING:
    import torch as torch_
    from torch import Tensor

# Bit of a row's flags: the row only fills the epoch's last batch.
FLAG_PADDING = 2
# Bits of `View` "flipped": from left to right, from top to bottom.
MIRRORED = 1
UPSIDE_DOWN = 2


class Batch:
    """One batch of a rank. It unpacks like a DataLoader's: `images, labels = batch`.

    Its columns have names, too: `batch["labels"]`, `"labels" in batch`, `dict(batch)`. It is no
    `Mapping` by type, for two reasons. The iteration of a Mapping gives names, and this one gives
    images and labels. And Lightning, Accelerate and Transformers make a new object of a Mapping's
    type from its values: ids and epoch would be lost, and `report` needs them. All three call `to`
    instead, and Lightning finds the batch size by the iteration. What asks for a dict gets
    `dict(batch)`.

    Tensors are made on first use, in the ring's shared memory: nothing is copied, and you may write
    to them. Until the batch and all its tensors are dropped nothing overwrites them; then its place
    in the ring is free. While you keep many (half of the ring's room; at least 2, at most 32), new
    batches are copies in their own memory, and a warning says so once: clone what you keep.

    With `Loader(device=...)`, images, labels and weights are copies on the device; all else stays
    on the CPU, in pinned memory. A copy of it that does not block is whole if it is begun on the
    current stream before the next batch is taken.

    Without torch each tensor is a `View`: it has `shape`, `dtype`, `tolist()` and `bytes()`, and
    DLPack importers such as `numpy.from_dlpack` accept it. NumPy has no bfloat16: it refuses images
    of `Loader(dtype="bfloat16")`, which torch and JAX take.
    """

    def __init__(
        self,
        native: _native.Batch,
        torch: ModuleType | None,
        fields: _native.Fields,
        transform: Callable[[Any], Any] | None,
        device: CudaDevice | None,
        views: bool = False,
        mixture: Mixture | None = None,
        made: Any = None,
    ) -> None:
        self._native = native
        self._torch = torch
        self._fields = fields
        self._transform = transform
        self._device = device
        self._mixture = mixture
        # Whether there is a list of views, perhaps of one. FiveCrop makes five of one list.
        self._views = views or native.views > 1
        # What a function of PerSample has made of the samples, in the place of images.
        self._made = made
        # Columns of extra fields that were asked for.
        self._columns: dict[str, Any] = {}
        if device is not None:
            # Begun at once, so that the copies run beside the caller's first steps.
            _ = (self.images, self.labels, self.weights)

    def __len__(self) -> int:
        """Samples in this batch, with padding; not the 2 of its unpacking."""
        return len(self._native)

    def __iter__(self) -> Iterator[Any]:
        """`images, labels = batch`, or records and labels if the Loader delivers raw records."""
        return iter((self.records if self._has_records else self.images, self.labels))

    @property
    def _has_records(self) -> bool:
        """Whether it is a batch of records, of which no function of PerSample has made something else."""
        return self._native.raw and self._made is None

    def keys(self) -> tuple[str, ...]:
        """Names of the columns: "images" or "records", "labels", "ids", "weights" and "flags"; for
        images of one size "crops", "flipped" and "flipped_down" as well, with decode="none" "heights" and
        "widths"; and the Loader's extra fields."""
        more: tuple[str, ...] = ("heights", "widths") if self._native.ragged else ()
        if self._native.views:
            more = ("crops", "flipped", "flipped_down")
        own = ("records" if self._has_records else "images", "labels", "ids", "weights", "flags", *more)
        return (*own, *self._native.field_names())

    def values(self) -> list[Any]:
        """The columns, in the order of `keys`."""
        return [self[name] for name in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        """(name, column) of each column."""
        return list(zip(self.keys(), self.values(), strict=True))

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name."""
        return name in self.keys()

    def __getitem__(self, key: str | int) -> Any:
        """The column of this name. 0 and 1 are what the batch unpacks into."""
        if isinstance(key, int):
            return tuple(self)[key]
        if key not in self.keys():
            raise KeyError(f"{key!r}: the columns of this batch are {', '.join(self.keys())}")
        if key in OWN_COLUMNS:
            return getattr(self, key)
        if key not in self._columns:
            self._lend()
            self._columns[key] = column(self._native, self._torch, key, self._of_views)
        return self._columns[key]

    def to(self, device: str | torch_.device, non_blocking: bool = True) -> Batch:
        """This batch with images, labels and weights on another device, for all else unchanged.

        `Loader.report` takes it as well. Its place in the ring is free once it is dropped.
        `Loader(device=...)` does the same beside the computation.
        """
        if self._torch is None:
            raise ShadeError(f"to: got {device!r}, but torch is not installed")
        target = self._torch.device(device)
        moved = Batch.__new__(Batch)
        moved.__dict__.update(self.__dict__)
        for name in ("labels", "weights") if self._has_records else ("images", "labels", "weights"):
            # A copy to the CPU that does not block is not yet there when it is read.
            moved.__dict__[name] = _moved(getattr(self, name), target, non_blocking and target.type != "cpu")
        return moved

    def __repr__(self) -> str:
        return f"Batch(epoch={self.epoch}, index={self.index}, samples={len(self)})"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Batch is in this process's ring and cannot be pickled: send clones of its tensors"
        )

    @property
    def epoch(self) -> int:
        """The epoch it belongs to, from 0."""
        return self._native.epoch

    @property
    def index(self) -> int:
        """Its position in the epoch, from 0."""
        return self._native.index

    @property
    def hits(self) -> int:
        """Samples whose record was in the cache."""
        return self._native.hits

    @property
    def misses(self) -> int:
        """Samples whose record was read for this batch."""
        return self._native.misses

    @property
    def skipped(self) -> int:
        """Samples left out because their record is bad: Plan(on_error="skip")."""
        return self._native.skipped

    @property
    def substituted(self) -> int:
        """Samples replaced because their record is bad: Plan(on_error="substitute")."""
        return self._native.substituted

    @cached_property
    def images(self) -> Tensor | list[Tensor]:
        """Decoded images, samples x 3 x height x width, or the Loader's transform of them: uint8, or the
        Loader's `dtype`. With `PerSample` the results of its function.

        With channels_last=True they have torch's memory format of that name; without torch they are
        samples x height x width x 3 then. After Grayscale there is 1 channel instead of 3. With a
        list of lists as decode they are a list of one such tensor per view, with decode="none" of
        one per sample, 3 x height x width.
        """
        native = self._native
        if self._made is not None:
            return self._made if self._device is None else _each(self._made, lambda made: self._device.put(made, made))
        if native.raw:
            raise AttributeError("this Loader delivers raw records (no image_size or decode): use batch.records")
        transform = self._transform or (lambda images: images)
        if native.ragged:
            return transform([self._planes(native.image(row)) for row in range(len(self))])
        return self._of_views(lambda view: transform(self._planes(native.images(view))))

    @cached_property
    def crops(self) -> Tensor | list[Tensor]:
        """The part of its source that each image shows: float32, samples x 4, left, top, width, height.

        In pixels of the source as it is decoded. Whole numbers where a part was resized, as by
        RandomResizedCrop; fractions where the image was resized before it was cropped. Where black
        is added, the part reaches beyond the source. With several views one tensor for each.
        """
        self._check_views()
        return self._of_views(lambda view: self._here(self._native.crops(view)))

    @cached_property
    def flipped(self) -> Tensor | list[Tensor]:
        """Whether each image is mirrored from left to right, after its crop: bool; a list without torch.
        With several views one for each."""
        self._check_views()
        return self._of_views(lambda view: self._mirrored(view, MIRRORED))

    @cached_property
    def flipped_down(self) -> Tensor | list[Tensor]:
        """Whether each image is mirrored from top to bottom; as `flipped`."""
        self._check_views()
        return self._of_views(lambda view: self._mirrored(view, UPSIDE_DOWN))

    def _mirrored(self, view: int, how: int) -> Tensor:
        flipped = self._native.flipped(view)
        if self._torch is None:
            return cast("Tensor", [bool(flag & how) for flag in flipped.tolist()])
        return (self._tensor(flipped) & how) != 0

    def _of_views(self, column: Callable[[int], Any]) -> Any:
        """A column of the only view, or a list with that of each."""
        return [column(view) for view in range(self._native.views)] if self._views else column(0)

    def _check_views(self) -> None:
        if not self._native.views:
            raise AttributeError("only images of one size have crops: give image_size or decode to the Loader")

    @cached_property
    def heights(self) -> Tensor:
        """Rows of pixels of each image (decode="none"): int32."""
        self._check_ragged()
        return self._here(self._native.heights())

    @cached_property
    def widths(self) -> Tensor:
        """Columns of pixels of each image (decode="none"): int32."""
        self._check_ragged()
        return self._here(self._native.widths())

    @cached_property
    def records(self) -> Records:
        """Raw records, one uint8 tensor per sample, if neither image_size nor decode is given."""
        if not self._native.raw:
            raise AttributeError("this Loader decodes (image_size or decode is set): use batch.images")
        return Records(self._native, self._torch)

    @cached_property
    def labels(self) -> Tensor:
        """Class labels: int64, in ImageFolder's order of classes."""
        return self._placed(self._tensor(self._native.labels()))

    @cached_property
    def ids(self) -> Tensor:
        """Sample ids: int64, positions in ImageFolder's order."""
        return self._here(self._native.ids())

    @cached_property
    def parts(self) -> Tensor:
        """Which dataset of a mixture each sample is of, counted from 0: int64; a list without torch."""
        if self._mixture is None:
            raise AttributeError("only a mixture has parts: Loader([(dataset, share), ...])")
        return self._mixture.numbers(self.ids, self._torch)

    @cached_property
    def weights(self) -> Tensor:
        """Loss weights that correct the sampler's bias: float32, 1 for a uniform draw."""
        return self._placed(self._tensor(self._native.weights()))

    @cached_property
    def flags(self) -> Tensor:
        """int32 flags. Bit 0: another sample replaces a bad one. Bit 1: padding."""
        return self._here(self._native.flags())

    @cached_property
    def padding(self) -> Tensor:
        """True for samples that only fill the last batch: bool; a list without torch."""
        if self._torch is None:
            return cast("Tensor", [bool(flag & FLAG_PADDING) for flag in self._native.flags().tolist()])
        return (self.flags & FLAG_PADDING) != 0

    def fields(self) -> list[dict[str, Any]]:
        """The samples' extra fields: one dict per sample, in the batch's order.

        Fields whose name ends in "json" are parsed; all others are `bytes`. They belong to `ids`: a
        sample that replaces a bad one has its own fields.

        Each call reads them from the dataset, in this process and up to 16 at a time; the daemon
        does not read them ahead. For fields that each batch needs, name them: `Loader(fields=...)`
        has them come with the batch, as `batch["caption"]`. The first call also reads the dataset's index, and a dataset
        without fields costs nothing more. Damaged fields raise `RecordError`, with any
        `Plan(on_error=...)`.
        """
        samples = self._fields.read(self._native)
        for row, fields in enumerate(samples):
            for name, content in fields.items():
                if name.endswith("json"):
                    fields[name] = self._parsed(row, name, content)
        return samples

    def _parsed(self, row: int, name: str, content: bytes) -> Any:
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            sample = self._native.ids().tolist()[row]
            shard = self._fields.shard_of(sample)
            raise RecordError(f"field {name!r} of sample {sample} in shard {shard} is not JSON: {error}") from None

    def _planes(self, view: _native.View) -> Tensor:
        """Images, or one image. For torch always channels first, in any memory layout."""
        images = self._tensor(view)
        if self._torch is not None and self._native.channels_last:
            images = images.movedim(-1, -3)
        return self._placed(images)

    def _check_ragged(self) -> None:
        if not self._native.ragged:
            raise AttributeError('images have their own sizes only with decode="none"')

    def _tensor(self, view: _native.View) -> Tensor:
        return _imported(view, self._torch)

    def _here(self, view: _native.View) -> Tensor:
        """A column that stays on the CPU."""
        self._lend()
        return self._tensor(view)

    def _lend(self) -> None:
        """The caller may copy what stays on the CPU to the Loader's `device` itself."""
        if self._device is not None:
            self._device.lend(self._native)

    def _placed(self, tensor: Tensor) -> Tensor:
        """The tensor, or its copy on the Loader's `device`."""
        return tensor if self._device is None else self._device.put(tensor, self._native)


class Records(Sequence[Any]):
    """The records of a raw batch: `records[i]` is a tensor in shared memory, `to_bytes(i)` a copy."""

    # Holds no `Batch`: a reference cycle would keep the place in the ring until a collection.
    def __init__(self, native: _native.Batch, torch: ModuleType | None) -> None:
        self._native = native
        self._torch = torch

    def __getattr__(self, name: str) -> NoReturn:
        # What is asked for are usually tensors of images.
        raise AttributeError(
            f"records have no {name!r}: this Loader has neither image_size nor decode, so it delivers records; with one "
            "of them it delivers images"
        )

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def __getitem__(self, position: int) -> Tensor: ...
    @overload
    def __getitem__(self, position: slice) -> list[Tensor]: ...
    def __getitem__(self, position: int | slice) -> Tensor | list[Tensor]:
        if isinstance(position, slice):
            return [self[row] for row in range(*position.indices(len(self)))]
        return _imported(self._view(position), self._torch)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[row] for row in range(len(self)))

    def memoryviews(self) -> list[memoryview]:
        """All records, each a read-only `memoryview` over shared memory.

        For decoders that accept any buffer, as `numpy.frombuffer` does. Nothing is copied, and it
        is far cheaper than tensors.
        """
        return self._native.memoryviews()

    def to_bytes(self, position: int) -> bytes:
        """A copy of one record, for decoders that need `bytes`."""
        return bytes(self._view(position))

    def _view(self, position: int) -> _native.View:
        row = position + len(self) if position < 0 else position
        if not 0 <= row < len(self):
            raise IndexError(f"record {position} of a batch of {len(self)}")
        return self._native.record(row)


def _moved(column: Any, device: torch_.device, non_blocking: bool) -> Any:
    """A tensor, or each of several, on the device."""
    return _each(column, lambda tensor: tensor.to(device, non_blocking=non_blocking))


def _each(column: Any, work: Callable[[Any], Any]) -> Any:
    """What becomes of a tensor, or of each tensor of a list, tuple or dict. All else stays as it is."""
    if isinstance(column, dict):
        return {name: _each(part, work) for name, part in column.items()}
    if isinstance(column, list | tuple):
        parts = [_each(part, work) for part in column]
        # A named tuple takes its parts one by one.
        return type(column)(*parts) if hasattr(column, "_fields") else type(column)(parts)
    # NumPy's arrays have a `device`, too, and stay.
    return work(column) if hasattr(column, "device") and hasattr(column, "to") else column


def _imported(view: _native.View, torch: ModuleType | None) -> Tensor:
    return cast("Tensor", view if torch is None else torch.from_dlpack(view))
