"""ImageFolder: a packed dataset as a map-style Dataset, in place of torchvision's over the original folder."""

from __future__ import annotations

import io
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, SupportsIndex, overload

from PIL import Image

from . import _native
from .options import choice, dataset_path

if TYPE_CHECKING:
    from torch.utils.data import Dataset
    from typing_extensions import Self

    _Base = Dataset[tuple[Any, Any]]
else:
    try:
        from torch.utils.data import Dataset as _Base
    except ImportError:
        _Base = object


def pil_rgb(file: BinaryIO) -> Image.Image:
    """The image in `file` as RGB, which is what torchvision's ImageFolder gives by default."""
    with Image.open(file) as image:
        return image.convert("RGB")


class ImageFolder(_Base):
    """The samples of a packed dataset, as torchvision's ImageFolder gives those of the folder it was packed from.

    A map-style Dataset for a `torch.utils.data.DataLoader` of yours, with any sampler and any number of workers, forked
    or spawned: same order, same classes, same pixels. A batch's records are read together, up to 16 at a time. No
    daemon takes part: nothing is drawn by importance, and nothing is kept but what the system keeps. Without torch it
    is the same class with no base.

    Args:
        root: Folder made by `shade-pack create`.
        transform: Takes an image, gives what the sample's first half shall be.
        target_transform: Takes the class's number, gives what the sample's second half shall be.
        loader: Takes a binary file with one record, gives an image. Default: Pillow's, as RGB.
        io: "buffered" reads through the page cache, so that a dataset that fits into memory is read from the store
            once; "direct" past it, as the daemon does.

    A sample's path is relative to the folder that was packed, as in `shade-pack ls`; nothing is opened by it.
    `samples`, `imgs` and `targets` cannot be assigned: `torch.utils.data.Subset` makes a dataset of some of them.

    A pickled one, as in a worker that is spawned, opens the dataset again when it is first used, and refuses it if its
    content has changed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        loader: Callable[[BinaryIO], Any] = pil_rgb,
        *,
        io: Literal["buffered", "direct"] = "buffered",
    ) -> None:
        self.root = os.path.expanduser(root)
        self.transform = transform
        self.target_transform = target_transform
        self.loader = loader
        self._folder = str(dataset_path(self.root))
        self._buffered = choice("io", io, ("buffered", "direct")) == "buffered"
        # The process that the reader was opened in; what its threads lock is not another process's.
        self._pid = os.getpid()
        self._records: _native.RecordReader | None = _native.RecordReader.open(self._folder, None, self._buffered)
        self._content_id = self._records.content_id
        self._targets: list[int] | None = None
        self.classes: list[str] = self._records.classes()
        self.class_to_idx: dict[str, int] = {name: label for label, name in enumerate(self.classes)}

    @property
    def samples(self) -> Samples:
        """(original path, class number) of each sample, made when asked for."""
        return Samples(self._reader())

    @property
    def imgs(self) -> Samples:
        """The same as `samples`, as torchvision has both."""
        return self.samples

    @property
    def targets(self) -> list[int]:
        """Each sample's class number; the list is made when first asked for."""
        if self._targets is None:
            self._targets = self._reader().labels()
        return self._targets

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self._reader())

    def __getitem__(self, index: SupportsIndex) -> tuple[Any, Any]:
        """(image, class number) of one sample, each through its transform."""
        sample = _position(index, len(self))
        [record] = self._reader().read([sample])
        return self._loaded(sample, record)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[tuple[Any, Any]]:
        """The samples of a batch, read together. DataLoader asks for batches so."""
        if type(self).__getitem__ is not ImageFolder.__getitem__:
            # A subclass changes what a sample is: it must be asked for each.
            return [self[index] for index in indices]
        samples = [_position(index, len(self)) for index in indices]
        records = self._reader().read(samples)
        return [self._loaded(sample, record) for sample, record in zip(samples, records, strict=True)]

    def __repr__(self) -> str:
        lines = [f"Number of datapoints: {len(self)}", f"Root location: {self.root}"]
        if self.transform is not None or self.target_transform is not None:
            lines.append("StandardTransform")
        text = "\n    ".join([f"Dataset {type(self).__name__}", *lines])
        # What follows is not indented in torchvision's either.
        for title, transform in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if transform is not None:
                text += f"\n{title}" + repr(transform).replace("\n", "\n" + " " * len(title))
        return text

    def __getstate__(self) -> dict[str, Any]:
        # Opened again by the first who asks there, so that a failure comes where a DataLoader passes it on.
        return self.__dict__ | {"_records": None, "_targets": None}

    def __copy__(self) -> Self:
        # In one process the reader is shared: copies with other transforms cost nothing.
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def _reader(self) -> _native.RecordReader:
        """The reader, with files and locks of this process."""
        records = self._records
        if records is None:
            records = _native.RecordReader.open(self._folder, self._content_id, self._buffered)
        elif self._pid != os.getpid():
            records = records.renewed()
        else:
            return records
        self._records, self._pid = records, os.getpid()
        return records

    def _loaded(self, sample: int, record: bytes) -> tuple[Any, Any]:
        try:
            image = self.loader(io.BytesIO(record))
        except Exception as error:
            raise self._reader().fault(sample, f"{type(error).__name__}: {error}") from error
        _, target = self._reader().sample(sample)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target


class Samples(Sequence[tuple[str, int]]):
    """(original path, class number) of each sample of a dataset, looked up in its index when asked for.

    A list to the eye: equal to one with the same content, and pickled as one.
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

    # As a list, it may be changed by nobody, but is equal to what may.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> Any:
        return list, (list(self),)


def _position(index: SupportsIndex, count: int) -> int:
    """An index as a list takes it, from 0."""
    given = operator.index(index)
    position = given + count if given < 0 else given
    if not 0 <= position < count:
        raise IndexError(f"sample {given} of a dataset of {count}")
    return position
