"""ImageFolder: a packed dataset as a map-style Dataset, in place of torchvision's ImageFolder."""

from __future__ import annotations

import io
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, SupportsIndex, overload

from . import _native
from .fields import kinds, value
from .in_place import indexed
from .options import choice, dataset_path

if TYPE_CHECKING:
    from PIL import Image
    from torch.utils.data import Dataset
    from typing_extensions import Self

    _Base = Dataset[tuple[Any, ...]]
else:
    try:
        from torch.utils.data import Dataset as _Base
    except ImportError:
        _Base = object


def pil_rgb(file: BinaryIO) -> Image.Image:
    """The image in `file` as RGB, as torchvision's ImageFolder gives it by default."""
    # Not above: all else works without Pillow.
    from PIL import Image

    with Image.open(file) as image:
        return image.convert("RGB")


class ImageFolder(_Base):
    """A packed dataset's samples, as torchvision's ImageFolder gives those of the source folder.

    A map-style Dataset for your own `torch.utils.data.DataLoader`, with any sampler and any number
    of workers, forked or spawned. Order, classes and pixels are the same. A batch's records are
    read together, up to 16 at a time. No daemon is used: nothing is drawn by importance, and only
    the page cache keeps records. Without torch the class has no base.

    Args:
        root: Folder made by `shade-pack create` or `shade-pack index`, or images that are not packed, as
            for a Loader.
        transform: Function of an image; its result is the sample's first half.
        target_transform: Function of the class's number; its result is the sample's second half.
        loader: Function of a binary file with one record; its result is the image. Default:
            Pillow's, as RGB.
        fields: Extra fields, as for a Loader: a sample then has a third part, a dict with one value for
            each, None where the sample has none.
        io: "buffered" reads through the page cache, so that a dataset that fits into memory is read
            from the store once; "direct" reads past it, as the daemon does.

    A sample's path is relative to the packed folder, as in `shade-pack ls`; no file is opened by
    it. `samples`, `imgs` and `targets` cannot be assigned: make a `torch.utils.data.Subset`
    instead.

    A pickled ImageFolder, as in a spawned worker, opens the dataset again at its first use, and
    refuses another one. Samples that `shade-pack append` has added since are left out.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        loader: Callable[[BinaryIO], Any] = pil_rgb,
        *,
        fields: Iterable[str] | Mapping[str, Any] | None = None,
        io: Literal["buffered", "direct"] = "buffered",
    ) -> None:
        self.root = os.path.expanduser(root)
        self.transform = transform
        self.target_transform = target_transform
        self.loader = loader
        self._fields = kinds(fields)
        masks = [name for name, kind in self._fields.items() if kind.startswith("mask")]
        if masks:
            raise ValueError(f"fields: {masks[0]!r}: only a Loader's masks follow their image: name it bytes, and decode it")
        self._folder = str(dataset_path(indexed(self.root)))
        self._buffered = choice("io", io, ("buffered", "direct")) == "buffered"
        # The process that opened the reader: another one must not use its locks.
        self._pid = os.getpid()
        self._records: _native.RecordReader | None = _native.RecordReader.open(self._folder, None, self._buffered)
        self._content = self._records.content
        self._targets: list[int] | None = None
        self.classes: list[str] = self._records.classes()
        self.class_to_idx: dict[str, int] = {name: label for label, name in enumerate(self.classes)}

    @property
    def samples(self) -> Samples:
        """(original path, class number) of each sample, looked up on access."""
        return Samples(self._reader())

    @property
    def imgs(self) -> Samples:
        """The same as `samples`; torchvision has both names."""
        return self.samples

    @property
    def targets(self) -> list[int]:
        """Each sample's class number; the list is made at the first access."""
        if self._targets is None:
            self._targets = self._reader().labels()
        return self._targets

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._reader())

    def __getitem__(self, index: SupportsIndex) -> tuple[Any, ...]:
        """(image, class number) of one sample, each transformed; and its fields, if some are asked for."""
        sample = _position(index, len(self))
        [record] = self._reader().read([sample])
        [found] = self._fields_of([sample])
        return self._loaded(sample, record, found)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[tuple[Any, ...]]:
        """The samples of a batch, read together. DataLoader calls this for each batch."""
        if type(self).__getitem__ is not ImageFolder.__getitem__:
            # A subclass may change its samples: it must make each.
            return [self[index] for index in indices]
        samples = [_position(index, len(self)) for index in indices]
        records = self._reader().read(samples)
        each = zip(samples, records, self._fields_of(samples), strict=True)
        return [self._loaded(sample, record, found) for sample, record, found in each]

    def __repr__(self) -> str:
        lines = [f"Number of datapoints: {len(self)}", f"Root location: {self.root}"]
        if self.transform is not None or self.target_transform is not None:
            lines.append("StandardTransform")
        text = "\n    ".join([f"Dataset {type(self).__name__}", *lines])
        # torchvision does not indent the rest either.
        for title, transform in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if transform is not None:
                text += f"\n{title}" + repr(transform).replace("\n", "\n" + " " * len(title))
        return text

    def __getstate__(self) -> dict[str, Any]:
        # Opened again at the first use there, so that a DataLoader passes a failure on.
        return self.__dict__ | {"_records": None, "_targets": None}

    def __copy__(self) -> Self:
        # In one process the reader is shared, so copies with other transforms cost nothing.
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def _reader(self) -> _native.RecordReader:
        """The reader, with files and locks of this process."""
        records = self._records
        if records is None:
            records = _native.RecordReader.open(self._folder, self._content, self._buffered)
        elif self._pid != os.getpid():
            records = records.renewed()
        else:
            return records
        self._records, self._pid = records, os.getpid()
        return records

    def _fields_of(self, samples: list[int]) -> Sequence[dict[str, bytes]]:
        return self._reader().fields(samples) if self._fields else [{}] * len(samples)

    def _loaded(self, sample: int, record: bytes, found: dict[str, bytes]) -> tuple[Any, ...]:
        try:
            image = self.loader(io.BytesIO(record))
        except Exception as error:
            raise self._reader().fault(sample, f"{type(error).__name__}: {error}") from error
        _, target = self._reader().sample(sample)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        if not self._fields:
            return image, target
        try:
            return image, target, {name: value(name, kind, found.get(name)) for name, kind in self._fields.items()}
        except (ValueError, RecursionError) as error:
            raise self._reader().fault(sample, str(error)) from error


class Samples(Sequence[tuple[str, int]]):
    """(original path, class number) of each sample of a dataset, looked up in its index on access.

    It behaves as a list: it equals a list of the same content, and is pickled as one.
    """

    def __init__(self, records: _native.RecordReader) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, position: SupportsIndex) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, position: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, position: SupportsIndex | slice) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(position, slice):
            return [self._records.sample(sample) for sample in range(*position.indices(len(self)))]
        return self._records.sample(_position(position, len(self)))

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return map(self._records.sample, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Samples | list):
            return NotImplemented
        return len(self) == len(other) and all(ours == theirs for ours, theirs in zip(self, other, strict=True))

    # Not hashable, as it equals a list.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> Any:
        return list, (list(self),)


def _position(index: SupportsIndex, count: int) -> int:
    """A list's index as a position from 0."""
    given = operator.index(index)
    position = given + count if given < 0 else given
    if not 0 <= position < count:
        raise IndexError(f"sample {given} of a dataset of {count}")
    return position
