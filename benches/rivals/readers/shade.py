"""Our own, as a user would call it, but for the cache: nothing is served from memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy
import shade_load
import torch  # noqa: F401  The Loader would import it when it is made; the others' modules have.

from benches.rivals.readers import shards

FOLDER = shards.FOLDER
prepare = shards.prepare
# In the page cache before the clock starts, as the others' modules are.
shade_load.find_daemon().read_bytes()


def batches(root: Path, _workers: int, size: int) -> Iterator[list[numpy.ndarray]]:
    with shade_load.Loader(root / FOLDER, size, cache=0, sampler="uniform") as loader:
        for batch in loader:
            yield [record.numpy() for record in batch.records]


def version(_programs: Path) -> str:
    return shade_load.__version__
