"""LitData's optimize, with its own workers and the chunk size of its documentation."""

import os
from importlib import metadata
from pathlib import Path
from typing import Any

import litdata

from benches.rivals.writers.listing import read, samples

WANTS_FOLDER = True
CHUNK = "64MB"


def pack(source: Path, out: Path, _programs: Path, workers: int) -> None:
    # It works in two folders of its own and leaves them behind: below OUT they are removed with it.
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(out / "cache" / "chunks")
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(out / "cache" / "data")
    litdata.optimize(
        fn=_sample,
        inputs=samples(source),
        output_dir=str(out / "chunks"),
        chunk_bytes=CHUNK,
        num_workers=workers,
        # Not spawned: then its workers would import PyTorch once more, and wait for that.
        start_method="fork",
        verbose=False,
    )


def _sample(sample: tuple[str, int]) -> dict[str, Any]:
    path, label = sample
    return {"image": read(path), "label": label}


def version(_programs: Path) -> str:
    return metadata.version("litdata")
