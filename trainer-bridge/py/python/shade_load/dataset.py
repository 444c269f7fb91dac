"""The dataset behind a Loader: its length and classes, named as in torchvision's ImageFolder."""

from __future__ import annotations

import operator
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from ._native import RecordReader, ShadeError

if TYPE_CHECKING:
    from PIL import Image

    from .image_folder import ImageFolder
    from .loader import Loader


class PackedDataset:
    """The dataset that a Loader reads. It opens nothing before the first access to its classes.

    `root` is its folder. `dataset[i]` is one sample, for a look; `ImageFolder` is for a DataLoader.
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

    def __getitem__(self, index: SupportsIndex) -> tuple[Image.Image, int]:
        """One sample's image and label, by sample id: by Pillow, as RGB, without any transform.

        Raises:
            IndexError: There is no such sample.
            RecordError: It is damaged, or no image.
            ShadeError: The dataset was replaced since the Loader opened it.
        """
        sample = operator.index(index)
        if not -len(self) <= sample < len(self):
            raise IndexError(f"sample {sample} of a dataset of {len(self)}")
        image, label = self._samples[sample % len(self)]
        return image, label

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_loader": None}

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the Loader's next epoch, for scripts that tell it to the dataset, as timm's."""
        loader = None if self._loader is None else self._loader()
        if loader is None:
            raise ShadeError("set_epoch: the Loader of this dataset is gone")
        loader.set_epoch(epoch)

    @cached_property
    def _samples(self) -> ImageFolder:
        # Not above: it imports torch.
        from .image_folder import ImageFolder

        samples = ImageFolder(self.root, io="buffered" if self._buffered else "direct")
        # Refuses another dataset.
        RecordReader.open(self.root, self._content, self._buffered)
        return samples

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes, by label. The first access reads the dataset's index.

        Raises: ShadeError: The index cannot be read, or the dataset was replaced since the Loader
            opened it.
        """
        return RecordReader.open(self.root, self._content, self._buffered).classes()

    def path_of(self, sample: int) -> str:
        """The original path of a sample, by id: for messages, as it reads the dataset's index.

        Raises: ShadeError: As for `classes`.
        """
        return RecordReader.open(self.root, self._content, self._buffered).sample(sample)[0]

    @cached_property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class name."""
        return {name: label for label, name in enumerate(self.classes)}
