"""Checks images that are only decoded: every pixel of every image must be the file's, as Pillow
reads it."""

import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy
from PIL import Image

from benches.rivals.image_folder import list_samples


@dataclass
class Epoch:
    """The samples of an epoch by checksum of label and pixels. Equal for the same samples in the
    same order."""

    order: list[int] = field(default_factory=list)

    def add(self, image: numpy.ndarray, label: int) -> None:
        """Takes an image, height by width by RGB."""
        self.order.append(zlib.crc32(numpy.ascontiguousarray(image).data, label))

    def faults(self, files: Path) -> list[str]:
        """What differs from the ImageFolder `files`; empty if nothing does."""
        expected = Epoch()
        for path, label in list_samples(files):
            with Image.open(path) as image:
                expected.add(numpy.asarray(image.convert("RGB")), label)
        if sorted(self.order) == sorted(expected.order):
            return []
        alike = len(set(self.order) & set(expected.order))
        return [f"{len(self.order)} samples of {len(expected.order)}, {alike} of them with their pixels and label"]
