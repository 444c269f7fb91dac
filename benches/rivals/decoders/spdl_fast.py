"""SPDL's threads in the training process, each record decoded the fastest way into its place in the batch."""

from pathlib import Path

import numpy

from benches.rivals.decoders import Batch, Epochs, fast, spdl
from benches.rivals.kinds import Kind
from benches.rivals.writers.listing import read

FOLDER = spdl.FOLDER
prepare = spdl.prepare
version = spdl.version


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    return spdl.shuffled(root, workers, size, lambda batch: _decode(batch, kind))


def _decode(batch: spdl.Samples, kind: Kind) -> Batch:
    images = numpy.empty((len(batch), kind.side, kind.side, 3), numpy.uint8)
    for (path, _label), image in zip(batch, images, strict=True):
        fast.decode(read(path), kind, into=image)
    return images, numpy.array([label for _path, label in batch])
