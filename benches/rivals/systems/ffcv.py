"""FFCV: its own file, decoder, crop and threads."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy
from ffcv.fields import BytesField, IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomBrightness, RandomContrast, RandomHorizontalFlip, RandomSaturation, ToTensor
from ffcv.writer import DatasetWriter

from benches.rivals.image_folder import list_samples
from benches.rivals.kinds import COLOURS, RATIO, SCALE, Kind
from benches.rivals.systems import ImageEpochs

FOLDER = "ffcv"
FILE = "data.beton"
# As in its documentation, and as in the files.
JPEG_QUALITY = 90


class Files:
    """The bytes of each file: what the writer takes samples from. No image is decoded."""

    def __init__(self, source: Path) -> None:
        self._samples = list_samples(source)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, number: int) -> tuple[numpy.ndarray, int]:
        path, label = self._samples[number]
        return numpy.fromfile(path, numpy.uint8), label


def pack(source: Path, out: Path, _programs: Path, workers: int) -> None:
    out.mkdir()
    fields = {"image": BytesField(), "label": IntField()}
    DatasetWriter(str(out / FILE), fields, num_workers=workers).from_indexed_dataset(Files(source))


def prepare(root: Path, _programs: Path, kind: Kind) -> str:
    """JPEGs encoded anew, or raw pixels of small images."""
    # Imported here, as only `prepare` needs it and it takes a second.
    from torchvision.datasets import ImageFolder

    (root / FOLDER).mkdir()
    jpeg = RGBImageField(write_mode="jpg", jpeg_quality=JPEG_QUALITY)
    image = jpeg if kind.crops else RGBImageField(write_mode="raw")
    # The writer takes images, not files: what is in its file is a JPEG of a JPEG.
    writer = DatasetWriter(str(root / FOLDER / FILE), {"image": image, "label": IntField()}, num_workers=2)
    writer.from_indexed_dataset(ImageFolder(str(root / "files")))
    return FOLDER


def decode(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    return _epochs(root, workers, size, _cropped(kind) if kind.crops else [SimpleRGBImageDecoder()])


def augment(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """The jitter, in one order. FFCV has no hue, grey, blur or solarize of its own."""
    if kind.augments != "colours":
        sys.exit("FFCV has no hue, grey, blur and solarize")
    kinds = (RandomBrightness, RandomContrast, RandomSaturation)
    colours = [transform(by, p=1.0) for transform, by in zip(kinds, COLOURS, strict=True)]
    return _epochs(root, workers, size, [*_cropped(kind), *colours])


def _cropped(kind: Kind) -> list[Any]:
    return [RandomResizedCropRGBImageDecoder((kind.side, kind.side), SCALE, RATIO), RandomHorizontalFlip()]


def _epochs(root: Path, workers: int, size: int, image: list[Any]) -> ImageEpochs:
    loader = Loader(
        str(root / FOLDER / FILE),
        batch_size=size,
        num_workers=workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        pipelines={"image": [*image, ToTensor()], "label": [IntDecoder(), ToTensor()]},
    )
    while True:
        yield ((images.numpy(), labels.numpy().reshape(-1)) for images, labels in loader)


def version(_programs: Path) -> str:
    return metadata.version("ffcv")
