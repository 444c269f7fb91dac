"""WebDataset over the same shards, in the order in which they lie (it was shuffled when they were packed)."""

from importlib import metadata
from pathlib import Path
from typing import Any

import webdataset

from benches.rivals.readers import Epochs, shards

FOLDER = shards.FOLDER
prepare = shards.prepare


def epochs(root: Path, workers: int, size: int, _cached: bool) -> Epochs:
    samples = webdataset.WebDataset(shards.paths(root), shardshuffle=False).map(_record)
    batches = samples.batched(size, collation_fn=list)
    loader = webdataset.WebLoader(batches, batch_size=None, num_workers=workers, persistent_workers=True)
    while True:
        yield iter(loader)


def _record(sample: dict[str, Any]) -> bytes:
    return next(content for name, content in sample.items() if not name.startswith("__"))


def version(_programs: Path) -> str:
    return metadata.version("webdataset")
