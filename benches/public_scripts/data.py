"""Small data for the scripts: photographs as an ImageFolder, CIFAR's pickles and their export, a small ViT."""

from __future__ import annotations

import pickle
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from shade_load import find_daemon

from demo.data import draw_picture

CLASSES = 6
# No batch size divides them, so that last batches are short.
TRAIN, VAL = 103, 41
# By the number of classes: two batches of 256 and a tail, as one script has that size; four of 64.
CIFAR_TRAIN, CIFAR_TEST = {10: 520, 100: 260}, 110
CIFAR_FILES = {10: [f"data_batch_{number}" for number in range(1, 6)], 100: ["train"]}
SIDE_CIFAR = 32


@dataclass(frozen=True)
class Data:
    """A folder with the splits as ImageFolders, and beside each the packed one: `train` and `train.shade`."""

    root: Path
    train: str
    val: str
    # For each sample id of the packed split, the original loader's index, and the label.
    index: dict[str, list[int]]
    labels: dict[str, list[int]]

    def files(self, split: str) -> list[Path]:
        """The split's files by sample id."""
        return _files(self.root / split)


def photos(root: Path, given: Path | None, train: int = TRAIN) -> Data:
    """An ImageFolder of drawn pictures, or the user's, whose `train` and `val` are linked to and not changed."""
    root.mkdir(parents=True)
    for split, count in (("train", train), ("val", VAL)):
        if given is not None:
            if not (given / split).is_dir():
                raise OSError(f"{given}: has no folder {split}: give an ImageFolder with train and val")
            (root / split).symlink_to((given / split).absolute())
        else:
            _draw(root / split, count, seed=count)
        pack(root / split, root / f"{split}.shade")
    index = {split: list(range(len(_files(root / split)))) for split in ("train", "val")}
    return Data(root, "train", "val", index, {split: _labels(root / split) for split in index})


def cifar(root: Path, classes: int) -> Data:
    """Pickles in CIFAR-10's or CIFAR-100's layout with drawn pictures, and the same exported as PNG files.

    Each file is called by its place in the pickles, in a folder of its class.
    """
    folder = root / ("cifar-10-batches-py" if classes == 10 else "cifar-100-python")
    folder.mkdir(parents=True)
    names = [f"class-{label:03}" for label in range(classes)]
    is_10 = classes == 10
    meta, names_are = ("batches.meta", "label_names") if is_10 else ("meta", "fine_label_names")
    labels_are = "labels" if is_10 else "fine_labels"
    (folder / meta).write_bytes(pickle.dumps({names_are: names}))
    index = {}
    for split, count, files in (
        ("train", CIFAR_TRAIN[classes], CIFAR_FILES[classes]),
        ("test", CIFAR_TEST, ["test_batch" if is_10 else "test"]),
    ):
        generator = np.random.default_rng(count)
        labels = [int(label) for label in generator.permutation(np.arange(count) % classes)]
        pixels = np.stack([draw_picture(label % CLASSES, generator, size=SIDE_CIFAR) for label in labels])
        for file, places in zip(files, np.array_split(np.arange(count), len(files)), strict=True):
            rows = pixels[places].transpose(0, 3, 1, 2).reshape(len(places), -1)
            (folder / file).write_bytes(pickle.dumps({"data": rows, labels_are: [labels[place] for place in places]}))
        _export(root / split, pixels, labels, names)
        pack(root / split, root / f"{split}.shade")
        index[split] = [int(file.stem) for file in _files(root / split)]
    return Data(root, "train", "test", index, {split: _labels(root / split) for split in index})


def small_vit(folder: Path) -> Path:
    """A ViT of random weights with its image processor, as `from_pretrained` reads them."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=64, patch_size=16,
        num_labels=CLASSES,
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def pack(images: Path, target: Path) -> None:
    """An ImageFolder, packed."""
    subprocess.run([find_daemon().with_name("shade-pack"), "create", "--quiet", images, target], check=True)


def _files(folder: Path) -> list[Path]:
    """In torchvision's order, which is that of sample ids."""
    names = sorted(path for path in folder.iterdir() if path.is_dir())
    return [file for name in names for file in sorted(name.iterdir())]


def _labels(folder: Path) -> list[int]:
    """A sample's label is the place of its folder among all."""
    files = _files(folder)
    names = sorted({file.parent.name for file in files})
    return [names.index(file.parent.name) for file in files]


def _draw(folder: Path, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for number in range(count):
        label = number % CLASSES
        height, width = generator.integers(80, 161, size=2)
        picture = draw_picture(label, generator, size=160)[:height, :width]
        target = folder / f"class-{label}" / f"{number:03}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(target, quality=92)


def _export(folder: Path, pixels: np.ndarray, labels: list[int], names: list[str]) -> None:
    for place, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        target = folder / names[label] / f"{place:05}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(target)
