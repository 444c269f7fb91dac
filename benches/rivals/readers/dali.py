"""DALI's CPU pipeline over the shards that shade packed. Outputs are used where they lie."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nvidia.dali
import wds2idx
from nvidia.dali import fn, pipeline_def
from nvidia.dali.pipeline import Pipeline

from benches.rivals.readers import Epochs, shards

FOLDER = shards.FOLDER
READER = "records"
# As many samples as WebDataset's documentation has in its buffer.
SHUFFLE_BUFFER = 1_000
# Of the records, whatever they are: what has none of them is an error.
EXTENSIONS = "jpg;jpeg;png;webp;bmp;ppm"


def prepare(root: Path, programs: Path) -> None:
    shards.prepare(root, programs)
    for path in shards.paths(root):
        with wds2idx.IndexCreator(path, _index(path), verbose=False) as creator:
            creator.create_index()


def _index(path: str) -> str:
    """Where its own tool puts what lies where in a shard."""
    return path.removesuffix(".tar") + ".idx"


@pipeline_def(device_id=None)
def records(paths: list[str], indices: list[str]) -> object:
    """An epoch ends with its own samples: the last batch is filled up, so that the next begins with a batch."""
    return fn.readers.webdataset(
        paths=paths,
        index_paths=indices,
        ext=EXTENSIONS,
        case_sensitive_extensions=False,
        missing_component_behavior="error",
        random_shuffle=True,
        initial_fill=SHUFFLE_BUFFER,
        pad_last_batch=True,
        name=READER,
        prefetch_queue_depth=2,
    )


def epochs(root: Path, workers: int, size: int, _cached: bool) -> Epochs:
    paths = shards.paths(root)
    pipe = records(paths, list(map(_index, paths)), batch_size=size, num_threads=workers, prefetch_queue_depth=2)
    yield from taken_from(pipe, size)


def taken_from(pipe: Pipeline, size: int) -> Epochs:
    """What its reader delivers, epoch after epoch."""
    pipe.build()
    samples = pipe.reader_meta(READER)["epoch_size"]
    while True:
        yield _epoch(pipe, samples, size)


def _epoch(pipe: Pipeline, samples: int, size: int) -> Iterator[list[Any]]:
    for start in range(0, samples, size):
        (batch,) = pipe.run()
        # Views, which have bytes themselves: its own `at` copies each, and NumPy's arrays over them take longer.
        yield [batch[row] for row in range(min(size, samples - start))]


def version(_programs: Path) -> str:
    return nvidia.dali.__version__
