"""WebDataset over the same shards, in the order in which they lie (it was shuffled when they were packed)."""

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import webdataset

from benches.rivals.readers import shards

FOLDER = shards.FOLDER
prepare = shards.prepare


def batches(root: Path, workers: int, size: int) -> Iterator[list[bytes]]:
    samples = webdataset.WebDataset(shards.paths(root), shardshuffle=False).map(_record)
    yield from webdataset.WebLoader(samples.batched(size, collation_fn=list), batch_size=None, num_workers=workers)


def _record(sample: dict[str, Any]) -> bytes:
    return next(content for name, content in sample.items() if not name.startswith("__"))


def version(_programs: Path) -> str:
    return metadata.version("webdataset")
