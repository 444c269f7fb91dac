"""Fashion-MNIST (Xiao et al., 2017) from Debian's package `dataset-fashion-mnist`: 60,000 + 10,000
images of 28 x 28, grey."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from studies.image_sets.image_set import ImageSet, NotAvailable, Split

FOLDER = Path("/usr/share/datasets/fashion-mnist")
# In the order of the labels. A folder's name has no "/".
CLASSES = tuple("t-shirt trouser pullover dress coat sandal shirt sneaker bag ankle-boot".split())


def load() -> ImageSet:
    """The set, in memory.

    Raises:
        NotAvailable: The package is not installed.
    """
    if not FOLDER.is_dir():
        raise NotAvailable(f"{FOLDER} is not there: install Debian's package dataset-fashion-mnist")
    return ImageSet(CLASSES, _split("train"), _split("t10k"))


def _split(name: str) -> Split:
    return Split(*(_idx(FOLDER / f"{name}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")))


def _idx(path: Path) -> np.ndarray:
    """IDX: two zero bytes, the type, the rank, the dimensions, the data."""
    with gzip.open(path) as file:
        shape = np.frombuffer(file.read(4 * file.read(4)[3]), ">u4")
        return np.frombuffer(file.read(), np.uint8).reshape(shape)
