"""What stock parts give, in the manner of FFRecord: a list of offsets, a random order, threads that read by the batch.

No product, and not FFRecord: it reads through the page cache, looks at no checksum, and knows no label."""

import json
import os
import platform
import random
import tarfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy

from benches.rivals.readers import Epochs, shards

FOLDER = shards.FOLDER
OFFSETS = "offsets.json"
# Batches being read while one is used: what a DataLoader with two workers has.
BATCHES_AHEAD = 4


def prepare(root: Path, programs: Path) -> None:
    shards.prepare(root, programs)
    offsets = []
    for shard, path in enumerate(shards.paths(root)):
        with tarfile.open(path) as tar:
            offsets += [(shard, member.offset_data, member.size) for member in tar]
    (root / FOLDER / OFFSETS).write_text(json.dumps(offsets))


def epochs(root: Path, workers: int, size: int, _cached: bool) -> Epochs:
    offsets = json.loads((root / FOLDER / OFFSETS).read_bytes())
    files = [os.open(path, os.O_RDONLY) for path in shards.paths(root)]

    def read(shard: int, offset: int, length: int) -> numpy.ndarray:
        record = numpy.empty(length, numpy.uint8)
        if os.preadv(files[shard], [record], offset) != length:
            raise OSError(f"shard {shard}: short read at {offset}")
        return record

    order = random.Random(0)
    with ThreadPoolExecutor(workers) as pool:
        while True:
            order.shuffle(offsets)
            yield _epoch(pool, read, offsets, size)


def _epoch(
    pool: ThreadPoolExecutor, read: Callable[..., numpy.ndarray], offsets: list[list[int]], size: int
) -> Iterator[list[numpy.ndarray]]:
    ahead: deque = deque()
    for start in range(0, len(offsets), size):
        ahead.append([pool.submit(read, *record) for record in offsets[start : start + size]])
        if len(ahead) > BATCHES_AHEAD:
            yield [record.result() for record in ahead.popleft()]
    for batch in ahead:
        yield [record.result() for record in batch]


def version(_programs: Path) -> str:
    return f"Python {platform.python_version()}"
