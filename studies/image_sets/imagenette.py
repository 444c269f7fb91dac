"""Imagenette (Howard, 2019): ten classes of ImageNet, 9,469 + 3,925 photographs, from a folder of the user's with train/ and
val/. They are JPEGs, and stay what they are.

The study's are of 224 x 224, some 10 KB each, from the public repository thunderInfy/imagenette at commit b850f03:

    git clone https://github.com/thunderInfy/imagenette && git -C imagenette checkout b850f03
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.image_sets.image_set import ImageSet, NotAvailable, Split

TRAIN, VAL = 9469, 3925


def load(folder: Path | None) -> ImageSet:
    """The set, as paths in `folder`.

    Raises:
        NotAvailable: There is no folder, or it has other images.
    """
    if folder is None or not (folder / "train").is_dir():
        raise NotAvailable(f"Imagenette is not in {folder}: put the folder that has its train/ and val/ there, or a link to it")
    classes = tuple(sorted(path.name for path in (folder / "train").iterdir()))
    loaded = ImageSet(classes, _split(folder / "train", classes), _split(folder / "val", classes))
    found = (len(loaded.train.labels), len(loaded.val.labels))
    if found != (TRAIN, VAL):
        raise NotAvailable(f"{folder} has {found[0]} + {found[1]} images, and Imagenette has {TRAIN} + {VAL}")
    return loaded


def _split(folder: Path, classes: tuple[str, ...]) -> Split:
    paths = [(path, label) for label, name in enumerate(classes) for path in sorted((folder / name).glob("*.JPEG"))]
    return Split(np.array([path for path, _ in paths], dtype=object), np.array([label for _, label in paths], dtype=int))
