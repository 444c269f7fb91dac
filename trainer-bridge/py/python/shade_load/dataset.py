"""The dataset behind a Loader: its length and classes, named as in torchvision's ImageFolder."""

from __future__ import annotations

import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ._native import RecordReader, ShadeError

if TYPE_CHECKING:
    from .loader import Loader


class PackedDataset:
    """The dataset that a Loader reads. It opens nothing before the first access to its classes.

    `root` is its folder. It cannot be indexed: use `ImageFolder` for that.
    """

    def __init__(self, loader: Loader, folder: Path, content: tuple[int, int, str], buffered: bool) -> None:
        # Not kept alive: it is closed when it is dropped.
        self._loader: weakref.ref[Loader] | None = weakref.ref(loader)
        self.root = str(folder)
        # Samples, classes and content id: what is added later is left out.
        self._content = content
        self._buffered = buffered

    def __len__(self) -> int:
        """Samples of the dataset."""
        return self._content[0]

    def __repr__(self) -> str:
        return f"PackedDataset({self.root!r}, samples={len(self)})"

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(
            f"the dataset of a Loader cannot be indexed: shade_load.ImageFolder({self.root!r}) is for that, and for a "
            f"DataLoader of your own"
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_loader": None}

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the Loader's next epoch, for scripts that tell it to the dataset, as timm's."""
        loader = None if self._loader is None else self._loader()
        if loader is None:
            raise ShadeError("set_epoch: the Loader of this dataset is gone")
        loader.set_epoch(epoch)

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes, by label. The first access reads the dataset's index.

        Raises: ShadeError: The index cannot be read, or the dataset was replaced since the Loader
            opened it.
        """
        return RecordReader.open(self.root, self._content, self._buffered).classes()

    @cached_property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class name."""
        return {name: label for label, name in enumerate(self.classes)}
