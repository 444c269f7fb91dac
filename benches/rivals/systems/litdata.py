"""LitData: `optimize` with its own workers, and StreamingDataset over chunks on the local disk."""

import os
from importlib import metadata
from pathlib import Path
from typing import Any

import litdata
from litdata import StreamingDataLoader, StreamingDataset

from benches.rivals.image_folder import list_samples, read_file
from benches.rivals.kinds import Kind
from benches.rivals.systems import DecodedSamples, DecodeImage, ImageEpochs

FOLDER = "litdata"
# As in its documentation.
CHUNK = "64MB"


def pack(source: Path, out: Path, _programs: Path, workers: int) -> None:
    # It works in two folders of its own and leaves them behind: below OUT they are removed with it.
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(out / "cache" / "chunks")
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(out / "cache" / "data")
    out.mkdir()
    litdata.optimize(
        fn=_sample,
        inputs=list_samples(source),
        output_dir=str(out / "chunks"),
        chunk_bytes=CHUNK,
        num_workers=workers,
        # Not spawned: then its workers would import PyTorch once more, and wait for that.
        start_method="fork",
        verbose=False,
    )


def _sample(sample: tuple[str, int]) -> dict[str, Any]:
    path, label = sample
    return {"image": read_file(path), "label": label}


def prepare(root: Path, programs: Path, _kind: Kind) -> str:
    pack(root / "files", root / FOLDER, programs, workers=2)
    return FOLDER


class Images(DecodedSamples, StreamingDataset):
    """The class that users derive from."""


def decode(root: Path, workers: int, size: int, _kind: Kind, decode_image: DecodeImage) -> ImageEpochs:
    images = Images(input_dir=str(root / FOLDER / "chunks"), shuffle=True)
    images.decode_image = decode_image
    loader = StreamingDataLoader(images, batch_size=size, num_workers=workers, persistent_workers=True)
    while True:
        yield ((images.numpy(), labels.numpy()) for images, labels in loader)


def version(_programs: Path) -> str:
    return metadata.version("litdata")
