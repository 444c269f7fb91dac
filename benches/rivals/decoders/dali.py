"""DALI's CPU pipeline: file reader, decoder with a random crop, resize, flip. Outputs are used where they lie."""

from collections.abc import Iterator
from pathlib import Path

import numpy
import nvidia.dali
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.pipeline import Pipeline

from benches.rivals.decoders import Batch, Epochs
from benches.rivals.kinds import RATIO, SCALE, Kind

FOLDER = "files"
READER = "files"


def prepare(_root: Path, _programs: Path, _kind: Kind) -> None:
    """The files are there."""


@pipeline_def(device_id=None)
def decoded(files: str, kind: Kind) -> tuple[object, object]:
    """A whole permutation an epoch. The last batch is filled up, so that an epoch begins with a batch."""
    records, labels = fn.readers.file(
        file_root=files, shuffle_after_epoch=True, pad_last_batch=True, name=READER, prefetch_queue_depth=2
    )
    if not kind.crops:
        return fn.decoders.image(records, output_type=types.RGB), labels
    images = fn.decoders.image_random_crop(
        records, output_type=types.RGB, random_area=list(SCALE), random_aspect_ratio=list(RATIO)
    )
    images = fn.resize(images, size=(kind.side, kind.side))
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    pipe = decoded(str(root / FOLDER), kind, batch_size=size, num_threads=workers, prefetch_queue_depth=2)
    pipe.build()
    samples = pipe.reader_meta(READER)["epoch_size"]
    while True:
        yield _epoch(pipe, samples, size)


def _epoch(pipe: Pipeline, samples: int, size: int) -> Iterator[Batch]:
    for start in range(0, samples, size):
        images, labels = (numpy.asarray(output.as_tensor()) for output in pipe.run())
        there = min(size, samples - start)
        yield images[:there], labels[:there].reshape(-1)


def version(_programs: Path) -> str:
    return nvidia.dali.__version__
