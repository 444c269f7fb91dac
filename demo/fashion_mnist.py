"""Fashion-MNIST from Debian's package `dataset-fashion-mnist`, written out as an ImageFolder of PNG files."""

import gzip
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

PACKAGE_FOLDER = Path("/usr/share/datasets/fashion-mnist")
# Label order of the data set; "/" is not allowed in a folder name.
CLASSES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot",
)  # fmt: skip
IMAGE_SIZE = 28

_UNSIGNED_BYTES = 0x08


def available(folder: Path = PACKAGE_FOLDER) -> bool:
    """Whether the package's files are on this machine."""
    return all(path.is_file() for split in ("train", "t10k") for path in _files(folder, split))


def read_idx(path: Path) -> np.ndarray:
    """Decodes one gzipped IDX file of unsigned bytes: magic 0 0 type rank, big-endian dimensions, then the data."""
    with gzip.open(path, "rb") as file:
        content = file.read()
    if len(content) < 4 or content[:2] != b"\0\0":
        raise ValueError(f"{path}: not an IDX file (it starts with {content[:4].hex()})")
    kind, rank = content[2], content[3]
    if kind != _UNSIGNED_BYTES:
        raise ValueError(f"{path}: IDX type {kind:#04x}, expected unsigned bytes (0x08)")
    header = 4 + 4 * rank
    if len(content) < header:
        raise ValueError(f"{path}: IDX header cut off: {len(content)} bytes, expected {header}")
    shape = struct.unpack(f">{rank}I", content[4:header])
    expected = int(np.prod(shape, dtype=np.int64))
    if len(content) - header != expected:
        raise ValueError(f"{path}: {len(content) - header} bytes of data, expected {expected} for shape {shape}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def write_image_folder(target: Path, train_samples: int | None = None, source: Path = PACKAGE_FOLDER) -> None:
    """Writes `target`/train and `target`/val, one folder a class; `target` appears only when it is complete.

    `train_samples` keeps the first so many of the 60,000, and a sixth of that for validation."""
    part = target.with_name(target.name + ".part")
    for split, name, limit in (
        ("train", "train", train_samples),
        ("t10k", "val", None if train_samples is None else max(1, train_samples // 6)),
    ):
        images, labels = (read_idx(path)[:limit] for path in _files(source, split))
        if len(images) != len(labels):
            raise ValueError(f"{source}: {len(images)} images but {len(labels)} labels in split {split}")
        _write_split(part / name, images, labels)
    part.rename(target)


def _files(folder: Path, split: str) -> tuple[Path, Path]:
    return folder / f"{split}-images-idx3-ubyte.gz", folder / f"{split}-labels-idx1-ubyte.gz"


def _write_split(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)

    def write(number: int) -> None:
        path = folder / CLASSES[labels[number]] / f"{number:05}.png"
        Image.fromarray(images[number]).save(path)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(write, range(len(images)), chunksize=256):
            pass
