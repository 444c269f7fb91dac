"""An image set in memory, its variants, and writing it as an ImageFolder."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

# Length, type and checksum of a chunk.
PNG_CHUNK_BYTES = 12


class NotAvailable(Exception):
    """An image set is not on this machine and cannot be fetched."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Images [n, height, width] or [n, height, width, 3] of uint8, or the paths [n] of image files, and labels [n], in
    the original order."""

    images: np.ndarray
    labels: np.ndarray


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """A labelled image set. Folder names are `classes`, in the order of the labels."""

    classes: tuple[str, ...]
    train: Split
    val: Split
    # Bytes of a record, for images that are written as PNGs; 0: what the image needs.
    record_bytes: int = 0

    def with_held_out(self, share: float, seed: int) -> ImageSet:
        """This set with `share` of the training images, chosen at random, in place of the validation images."""
        order = np.random.default_rng(seed).permutation(len(self.train.labels))
        held_out, kept = (np.sort(part) for part in np.split(order, [round(share * len(order))]))
        return dataclasses.replace(
            self,
            train=Split(self.train.images[kept], self.train.labels[kept]),
            val=Split(self.train.images[held_out], self.train.labels[held_out]),
        )

    def with_label_noise(self, share: float, seed: int) -> ImageSet:
        """This set with `share` of the training labels replaced by another class, each equally
        likely. The validation labels stay right."""
        random = np.random.default_rng(seed)
        labels = self.train.labels.copy()
        chosen = random.permutation(len(labels))[: round(share * len(labels))]
        shift = random.integers(1, len(self.classes), len(chosen))
        labels[chosen] = (labels[chosen] + shift) % len(self.classes)
        return dataclasses.replace(self, train=Split(self.train.images, labels))

    def with_imbalance(self, ratio: float) -> ImageSet:
        """This set with ever fewer training images from the first class to the last, which keeps
        1/`ratio` (the exponential profile of Cao et al., NeurIPS 2019). A class keeps its first
        ones. The validation images stay."""
        last = max(1, len(self.classes) - 1)
        labels = self.train.labels
        kept = np.zeros(len(labels), bool)
        for label in range(len(self.classes)):
            of_class = np.flatnonzero(labels == label)
            kept[of_class[: max(1, round(len(of_class) * ratio ** (-label / last)))]] = True
        return dataclasses.replace(self, train=Split(self.train.images[kept], labels[kept]))

    def first(self, samples: int) -> ImageSet:
        """This set with the first `samples` training images only."""
        return dataclasses.replace(self, train=Split(self.train.images[:samples], self.train.labels[:samples]))

    def write(self, target: Path) -> None:
        """Writes PNGs, or copies of the files, to `target`/train and `target`/val. A file's name is the image's number, so
        the order within a class is the original one. `target` is there whole or not at all."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            unfinished = Path(scratch) / target.name
            for name, split in (("train", self.train), ("val", self.val)):
                self._write(split, unfinished / name)
            unfinished.rename(target)

    def _write(self, split: Split, folder: Path) -> None:
        for name in self.classes:
            (folder / name).mkdir(parents=True)

        def write(number: int) -> None:
            path = folder / self.classes[split.labels[number]] / f"{number:05}.png"
            image = split.images[number]
            if isinstance(image, Path):
                shutil.copyfile(image, path.with_suffix(image.suffix))
            else:
                self._write_png(Image.fromarray(image), path, number)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(write, range(len(split.labels))))

    def _write_png(self, image: Image.Image, path: Path, number: int) -> None:
        """Writes an image, of `record_bytes` if it needs fewer: decoders skip the chunk that fills it up."""
        image.save(path)
        missing = self.record_bytes - path.stat().st_size - PNG_CHUNK_BYTES
        if missing > 0:
            info = PngInfo()
            info.add(b"shAd", np.random.default_rng(number).bytes(missing))
            image.save(path, pnginfo=info)
