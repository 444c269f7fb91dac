"""Public image sets, written as ImageFolders with train/ and val/.

    python -m studies.image_sets cifar10 OUT
    python -m studies.image_sets fashion-mnist OUT --label-noise 0.1
"""

from __future__ import annotations

from studies.image_sets import cifar10, fashion_mnist
from studies.image_sets.image_set import ImageSet, NotAvailable

SETS = {"cifar10": cifar10, "fashion-mnist": fashion_mnist}


def load(name: str) -> ImageSet:
    """The image set of that name, in memory.

    Raises:
        NotAvailable: It is not on this machine and cannot be fetched; has the reason.
    """
    return SETS[name].load()


__all__ = ["SETS", "ImageSet", "NotAvailable", "load"]
