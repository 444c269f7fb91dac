"""DALI's CPU pipeline over the files themselves, in a whole permutation an epoch."""

from pathlib import Path

from nvidia.dali import fn, pipeline_def

from benches.rivals.readers import Epochs, dali

FOLDER = "files"
version = dali.version


def prepare(_root: Path, _programs: Path) -> None:
    """The files are there."""


@pipeline_def(device_id=None)
def records(files: str) -> object:
    contents, _labels = fn.readers.file(
        file_root=files, shuffle_after_epoch=True, pad_last_batch=True, name=dali.READER, prefetch_queue_depth=2
    )
    return contents


def epochs(root: Path, workers: int, size: int, _cached: bool) -> Epochs:
    pipe = records(str(root / FOLDER), batch_size=size, num_threads=workers, prefetch_queue_depth=2)
    yield from dali.taken_from(pipe, size)
