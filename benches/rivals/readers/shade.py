"""Our own, as a user would call it, but for the cache: it has room for nothing, or for all records."""

import sys
from collections.abc import Iterator
from pathlib import Path

import shade_load
import torch  # noqa: F401  The Loader would import it when it is made; the others' modules have.

from benches.rivals.readers import Epochs, shards

FOLDER = shards.FOLDER
prepare = shards.prepare
# In the page cache before the clock starts, as the others' modules are.
shade_load.find_daemon().read_bytes()


def epochs(root: Path, _workers: int, size: int, cached: bool) -> Epochs:
    with shade_load.Loader(
        root / FOLDER, size, cache="100%" if cached else 0, plan=shade_load.Plan(sampler="uniform")
    ) as loader:
        yield _epoch(loader, hits=0)
        while True:
            yield _epoch(loader, hits=loader.samples if cached else 0)


def _epoch(loader: shade_load.Loader, hits: int) -> Iterator[Iterator[memoryview]]:
    for batch in loader:
        yield batch.records.memoryviews()
    # What is not served from where it should be is not what is measured.
    if (were := loader.stats()["epoch"]["hits"]) != hits:
        sys.exit(f"{were} records came from the cache, expected {hits}")


def version(_programs: Path) -> str:
    return shade_load.__version__
