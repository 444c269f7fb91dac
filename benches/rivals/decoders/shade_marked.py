"""Our own over JPEGs to which shade-pack has given restart markers: the same pixels in other bytes."""

import sys
from pathlib import Path

from benches.rivals.decoders import Epochs, shade
from benches.rivals.kinds import Kind
from benches.rivals.readers import shards

FOLDER = "marked-shards"
version = shade.version


def prepare(root: Path, programs: Path, kind: Kind) -> None:
    if not kind.crops:
        sys.exit("these images are no JPEGs, or not cropped")
    shards.prepare(root, programs, FOLDER, "--restart-markers")


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    return shade.epochs(root, workers, size, kind, FOLDER)
