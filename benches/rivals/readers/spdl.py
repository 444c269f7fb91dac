"""SPDL's threads in the training process, each of which reads a batch of files, in a whole permutation an epoch."""

from pathlib import Path

from benches.rivals.decoders import spdl
from benches.rivals.readers import Epochs
from benches.rivals.writers.listing import read

FOLDER = "files"
version = spdl.version


def prepare(_root: Path, _programs: Path) -> None:
    """The files are there."""


def epochs(root: Path, workers: int, size: int, _cached: bool) -> Epochs:
    yield from spdl.shuffled(root, workers, size, lambda batch: [read(path) for path, _label in batch])
