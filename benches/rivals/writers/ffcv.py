"""FFCV's DatasetWriter with a BytesField: no image is decoded. It has workers of its own."""

from importlib import metadata
from pathlib import Path

import numpy
from ffcv.fields import BytesField, IntField
from ffcv.writer import DatasetWriter

from benches.rivals.writers.listing import samples

WANTS_FOLDER = True


class Files:
    """What it takes samples from."""

    def __init__(self, source: Path) -> None:
        self._samples = samples(source)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, number: int) -> tuple[numpy.ndarray, int]:
        path, label = self._samples[number]
        return numpy.fromfile(path, numpy.uint8), label


def pack(source: Path, out: Path, _programs: Path, workers: int) -> None:
    fields = {"image": BytesField(), "label": IntField()}
    DatasetWriter(str(out / "data.beton"), fields, num_workers=workers).from_indexed_dataset(Files(source))


def version(_programs: Path) -> str:
    return metadata.version("ffcv")
