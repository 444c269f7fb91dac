"""FFCV: JPEGs encoded anew, or raw pixels of small images, in its own file; its own decoder, crop and threads."""

from importlib import metadata
from pathlib import Path

from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, ToTensor
from ffcv.writer import DatasetWriter
from torchvision.datasets import ImageFolder

from benches.rivals.decoders import Epochs
from benches.rivals.kinds import RATIO, SCALE, Kind

FOLDER = "ffcv"
FILE = "data.beton"
# Of its documentation, and of the files.
QUALITY = 90


def prepare(root: Path, _programs: Path, kind: Kind) -> None:
    (root / FOLDER).mkdir()
    image = RGBImageField(write_mode="jpg", jpeg_quality=QUALITY) if kind.crops else RGBImageField(write_mode="raw")
    # Its writer takes images, not files: what is in the file is a JPEG of a JPEG.
    writer = DatasetWriter(str(root / FOLDER / FILE), {"image": image, "label": IntField()}, num_workers=2)
    writer.from_indexed_dataset(ImageFolder(str(root / "files")))


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    if kind.crops:
        image = [RandomResizedCropRGBImageDecoder((kind.side, kind.side), SCALE, RATIO), RandomHorizontalFlip()]
    else:
        image = [SimpleRGBImageDecoder()]
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
