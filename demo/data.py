"""The demo's ImageFolders with train/ and val/: Fashion-MNIST, stripes drawn here, or a folder of
yours."""

import gzip
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

# Debian's package dataset-fashion-mnist.
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
# In the order of the labels. A folder's name has no "/".
GARMENTS = "t-shirt trouser pullover dress coat sandal shirt sneaker bag ankle-boot".split()
STRIPES = [f"stripes-at-{18 * label:03}-degrees" for label in range(10)]
STRIPES_TRAIN, STRIPES_VAL = 12_000, 2_000


def built_in(out: Path) -> Path:
    """Fashion-MNIST, or stripes where it is not installed. Written below `out` once."""
    name, write = ("fashion-mnist", write_fashion_mnist) if FASHION_MNIST.is_dir() else ("stripes", write_stripes)
    if not (out / name).is_dir():
        print(f"writing an ImageFolder: {out / name}", flush=True)
        write(out / "unfinished")
        (out / "unfinished").rename(out / name)
    return out / name


def given(source: Path, out: Path) -> Path:
    """The user's folder as it is or, without train/ and val/, links to it with a tenth of each
    class in val/."""
    if (source / "train").is_dir() and (source / "val").is_dir():
        return source
    target = out / f"{source.name}-held-out"
    print(f"{source}: no train/ and val/: every tenth image of each class is held out in {target}", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    for folder in (path for path in source.iterdir() if path.is_dir()):
        for number, image in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
            link = target / ("train" if number % 10 else "val") / image.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(image.resolve())
    return target


def write_fashion_mnist(target: Path, train_samples: int | None = None) -> None:
    """60,000 and 10,000 PNGs of 28x28, or the first `train_samples` of the former."""
    for split, source, limit in (("train", "train", train_samples), ("val", "t10k", None)):
        images = _read_idx(FASHION_MNIST / f"{source}-images-idx3-ubyte.gz")[:limit]
        labels = _read_idx(FASHION_MNIST / f"{source}-labels-idx1-ubyte.gz")[:limit]
        _write(target / split, GARMENTS, "png", labels, images.__getitem__)


def _read_idx(path: Path) -> np.ndarray:
    """IDX: two zero bytes, the type, the rank, the dimensions, the data."""
    with gzip.open(path) as file:
        shape = np.frombuffer(file.read(4 * file.read(4)[3]), ">u4")
        return np.frombuffer(file.read(), np.uint8).reshape(shape)


def write_stripes(target: Path) -> None:
    """Pictures of 64x64 as JPEGs, always the same ones."""
    for split, samples in (("train", STRIPES_TRAIN), ("val", STRIPES_VAL)):

        def draw(number: int, split: str = split) -> np.ndarray:
            return draw_picture(number % 10, np.random.default_rng((len(split), number)))

        _write(target / split, STRIPES, "jpg", np.arange(samples) % 10, draw)


def draw_picture(label: int, generator: np.random.Generator, size: int = 64) -> np.ndarray:
    """Stripes at one of ten angles. Their width, colours, place and noise say nothing about the
    class."""
    across, down = np.meshgrid(np.arange(size), np.arange(size))
    distance = across * np.cos(np.pi * label / 10) + down * np.sin(np.pi * label / 10)
    wave = np.sin(distance * generator.uniform(0.3, 0.9) + generator.uniform(0, 2 * np.pi))[..., None]
    ink, paper = generator.uniform(0, 255, size=(2, 3))
    picture = paper + (ink - paper) * (wave + 1) / 2 + generator.normal(0, 18, size=(size, size, 3))
    return np.clip(picture, 0, 255).astype(np.uint8)


def _write(
    folder: Path, classes: Sequence[str], extension: str, labels: np.ndarray, pixels_of: Callable[[int], np.ndarray]
) -> None:
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)

    def write(number: int) -> None:
        path = folder / classes[labels[number]] / f"{number:05}.{extension}"
        Image.fromarray(pixels_of(number)).save(path)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write, range(len(labels))))
