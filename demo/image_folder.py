"""What the demo trains on: two ImageFolders, one for training and one for validation."""

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo import fashion_mnist, procedural

# torchvision's list: only these files are samples.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
VALIDATION_NAMES = ("val", "valid", "validation", "test")
HELD_OUT_SHARE = 0.1

_DEFAULT_IMAGE_SIZE = 64


class DataError(Exception):
    """The data given cannot be trained on; the text says why."""


@dataclass(frozen=True)
class Splits:
    """Two ImageFolders and the side of the square that the loader makes of their images, in pixels."""

    name: str
    train: Path
    val: Path
    image_size: int


def built_in(folder: Path, samples: int | None) -> Splits:
    """Fashion-MNIST where its Debian package is installed, else the procedural set; written below `folder` once."""
    name, size = "fashion-mnist", fashion_mnist.IMAGE_SIZE
    if not fashion_mnist.available():
        name, size = "textured-shapes", procedural.IMAGE_SIZE
    target = folder / (name if samples is None else f"{name}-{samples}")
    if not target.is_dir():
        print(f"writing {name} as an ImageFolder: {target}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        if fashion_mnist.available():
            fashion_mnist.write_image_folder(target, samples)
        else:
            procedural.write_image_folder(target, samples or procedural.TRAIN_SAMPLES)
    return Splits(name, target / "train", target / "val", size)


def given(source: Path, folder: Path, seed: int) -> Splits:
    """An ImageFolder of the user's: with train/ and val/ as it is, else with a held-out tenth linked below `folder`."""
    source = source.resolve()
    if not source.is_dir():
        raise DataError(f"{source}: no such folder")
    validation = next((source / name for name in VALIDATION_NAMES if (source / name).is_dir()), None)
    if (source / "train").is_dir() and validation is not None:
        return Splits(source.name, source / "train", validation, _DEFAULT_IMAGE_SIZE)
    target = folder / f"{source.name}-held-out"
    print(
        f"{source}: no train/ and val/: holding out {HELD_OUT_SHARE:.0%} of each class, linked in {target}", flush=True
    )
    hold_out(source, target, seed)
    return Splits(source.name, target / "train", target / "val", _DEFAULT_IMAGE_SIZE)


def hold_out(source: Path, target: Path, seed: int) -> None:
    """Links every image of `source` into `target`/train or, for a seeded tenth of each class, `target`/val."""
    classes = sorted(path for path in source.iterdir() if path.is_dir())
    if len(classes) < 2:
        raise DataError(f"{source}: {len(classes)} class folders; an ImageFolder has one folder for each class")
    if target.is_dir():
        shutil.rmtree(target)  # links only: an image that is gone must not stay behind as one
    generator = random.Random(seed)
    for folder in classes:
        images = sorted(_images(folder))
        if len(images) < 2:
            raise DataError(f"{folder}: {len(images)} images; holding some out takes at least 2")
        held_out = set(generator.sample(images, max(1, round(len(images) * HELD_OUT_SHARE))))
        for image in images:
            link = target / ("val" if image in held_out else "train") / image.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(image)


def _images(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder, followlinks=True):
        yield from (Path(parent, name) for name in names if name.lower().endswith(EXTENSIONS))
