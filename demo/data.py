"""The demo's ImageFolders with train/ and val/: CIFAR-10, Fashion-MNIST, stripes drawn here, or a
folder of yours."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from studies import image_sets

# Training images that are taken of a public set, for runs of some minutes. Their order is random,
# and the first ones have all classes.
SAMPLES = 25_000
PUBLIC = {"cifar10": 32, "fashion-mnist": 28}
STRIPES_TRAIN, STRIPES_VAL, STRIPES_SIDE = 12_000, 2_000, 32
# A mirrored one is at 99 to 180 degrees, so it is like no other class.
STRIPES = [f"stripes-at-{9 * label:02}-degrees" for label in range(10)]
SIDE = 64
# The file in the demo's folder that names what demos have made there.
MADE = ".made-by-the-demo"


@dataclass(frozen=True)
class Images:
    """An ImageFolder with train/ and val/, and how its images become equally large."""

    folder: Path
    # Pixels of a side of what the network sees.
    side: int
    # Whether all files have that size already.
    has_side: bool


def anew(out: Path, name: str) -> Path:
    """`out`/`name`, which is not there any more. Only what a demo has made is removed."""
    notes, target = out / MADE, out / name
    made = notes.read_text().splitlines() if notes.is_file() else []
    if os.path.lexists(target):
        if name not in made or target.is_symlink():
            raise SystemExit(f"{target} is there, and no demo has made it: choose another folder with --out")
        shutil.rmtree(target)
    if name not in made:
        notes.write_text("".join(f"{line}\n" for line in [*made, name]))
    return target


def built_in(out: Path) -> Images:
    """The first of CIFAR-10, Fashion-MNIST and stripes that can be had. Written below `out` once."""
    for name, side in PUBLIC.items():
        target = out / f"{name}-{SAMPLES}"
        try:
            if not target.is_dir():
                images = image_sets.load(name).first(SAMPLES)
                print(f"writing an ImageFolder: {target}", flush=True)
                images.write(target)
            return Images(target, side, has_side=True)
        except image_sets.NotAvailable as why:
            print(f"not {name}: {why}", flush=True)
    target = out / "stripes"
    if not target.is_dir():
        print(f"writing an ImageFolder: {target}", flush=True)
        with tempfile.TemporaryDirectory(prefix=".stripes-", dir=out) as scratch:
            write_stripes(Path(scratch) / target.name)
            (Path(scratch) / target.name).rename(target)
    return Images(target, STRIPES_SIDE, has_side=True)


def given(source: Path, out: Path, side: int | None) -> Images:
    """The user's folder as it is or, without train/ and val/, its files with a tenth of each class
    in val/."""
    if (source / "train").is_dir() and (source / "val").is_dir():
        return Images(source, side or SIDE, has_side=False)
    target = anew(out, f"{source.name}-held-out")
    print(f"{source}: no train/ and val/: every tenth image of each class is held out in {target}", flush=True)
    for folder in (path for path in source.iterdir() if path.is_dir()):
        for number, image in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
            copy = target / ("train" if number % 10 else "val") / image.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            _link(image.resolve(), copy)
    return Images(target, side or SIDE, has_side=False)


def _link(source: Path, target: Path) -> None:
    """A hard link where that is possible, else a copy. A symbolic link would lead past the store."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_stripes(target: Path) -> None:
    """Pictures as JPEGs, always the same ones."""
    for split, samples in (("train", STRIPES_TRAIN), ("val", STRIPES_VAL)):
        for number in range(samples):
            label = number % 10
            path = target / split / STRIPES[label] / f"{number:05}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture = draw_picture(label, np.random.default_rng((len(split), number)))
            Image.fromarray(picture).save(path)


def draw_picture(label: int, generator: np.random.Generator, size: int = STRIPES_SIDE) -> np.ndarray:
    """Stripes at one of ten angles. Their width, colours, place and noise say nothing about the
    class."""
    across, down = np.meshgrid(np.arange(size), np.arange(size))
    distance = across * np.cos(np.pi * label / 20) + down * np.sin(np.pi * label / 20)
    wave = np.sin(distance * generator.uniform(0.3, 0.9) + generator.uniform(0, 2 * np.pi))[..., None]
    ink, paper = generator.uniform(0, 255, size=(2, 3))
    picture = paper + (ink - paper) * (wave + 1) / 2 + generator.normal(0, 18, size=(size, size, 3))
    return np.clip(picture, 0, 255).astype(np.uint8)
