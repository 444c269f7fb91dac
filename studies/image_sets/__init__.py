"""Public image sets, written as ImageFolders with train/ and val/.

    python -m studies.image_sets cifar10 OUT
    python -m studies.image_sets fashion-mnist OUT --label-noise 0.1
    python -m studies.image_sets imagenette OUT --source FOLDER --imbalance 20
"""

from __future__ import annotations

from pathlib import Path

from studies.image_sets import cifar10, fashion_mnist, imagenette
from studies.image_sets.image_set import ImageSet, NotAvailable

SETS = {"cifar10": cifar10, "fashion-mnist": fashion_mnist, "imagenette": imagenette}


def load(name: str, source: Path | None = None) -> ImageSet:
    """The image set of that name, in memory, or as paths below `source`, which only Imagenette needs.

    Raises:
        NotAvailable: It is not on this machine and cannot be fetched; has the reason.
    """
    return imagenette.load(source) if name == "imagenette" else SETS[name].load()


__all__ = ["SETS", "ImageSet", "NotAvailable", "load"]
