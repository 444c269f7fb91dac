"""The dataset behind a Loader: its length and classes, named as in torchvision's ImageFolder."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ._native import RecordReader


class PackedDataset:
    """The dataset that a Loader reads. It opens nothing before the first access to its classes.

    `root` is its folder. It cannot be indexed: use `ImageFolder` for that.
    """

    def __init__(self, folder: Path, samples: int, content_id: str, buffered: bool) -> None:
        self.root = str(folder)
        self._samples = samples
        self._content_id = content_id
        self._buffered = buffered

    def __len__(self) -> int:
        """Samples of the dataset."""
        return self._samples

    def __repr__(self) -> str:
        return f"PackedDataset({self.root!r}, samples={self._samples})"

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes, by label. The first access reads the dataset's index.

        Raises: ShadeError: The index cannot be read, or the dataset was replaced since the Loader
            opened it.
        """
        return RecordReader.open(self.root, self._content_id, self._buffered).classes()

    @cached_property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class name."""
        return {name: label for label, name in enumerate(self.classes)}
