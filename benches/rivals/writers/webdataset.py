"""WebDataset's ShardWriter: tar files. It has no workers of its own."""

from importlib import metadata
from pathlib import Path

import webdataset

from benches.rivals.writers.listing import read, samples

WANTS_FOLDER = True
# Its documentation's advice, and the size of our shards.
SHARD_BYTES_MAX = 1e9


def pack(source: Path, out: Path, _programs: Path, _workers: int) -> None:
    with webdataset.ShardWriter(str(out / "%06d.tar"), maxsize=SHARD_BYTES_MAX, verbose=0) as writer:
        for number, (path, label) in enumerate(samples(source)):
            writer.write({"__key__": f"{number:09d}", "jpg": read(path), "cls": label})


def version(_programs: Path) -> str:
    return metadata.version("webdataset")
