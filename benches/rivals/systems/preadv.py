"""A stand-in for FFRecord, of stock parts: a list of offsets, a random order, threads that read by
the batch.

It is no product. It reads through the page cache, compares no checksums and knows no labels."""

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

from benches.rivals.systems import RecordEpochs, shade_pack

OFFSETS = "offsets.json"
# Batches being read while one is used: what a DataLoader with two workers has.
BATCHES_AHEAD = 4


def prepare(root: Path, programs: Path) -> str:
    """shade's shards, with a list of what lies where."""
    folder = shade_pack.prepare_shards(root, programs)
    offsets = []
    for shard, path in enumerate(shade_pack.shard_paths(root)):
        with tarfile.open(path) as tar:
            offsets += [(shard, member.offset_data, member.size) for member in tar]
    (root / folder / OFFSETS).write_text(json.dumps(offsets))
    return folder


def read(root: Path, workers: int, size: int, _keep: bool) -> RecordEpochs:
    offsets = json.loads((root / shade_pack.SHARDS / OFFSETS).read_bytes())
    files = [os.open(path, os.O_RDONLY) for path in shade_pack.shard_paths(root)]

    def read_record(shard: int, offset: int, length: int) -> numpy.ndarray:
        record = numpy.empty(length, numpy.uint8)
        if os.preadv(files[shard], [record], offset) != length:
            raise OSError(f"shard {shard}: short read at {offset}")
        return record

    order = random.Random(0)
    with ThreadPoolExecutor(workers) as pool:
        while True:
            order.shuffle(offsets)
            yield _epoch(pool, read_record, offsets, size)


def _epoch(
    pool: ThreadPoolExecutor, read_record: Callable[..., numpy.ndarray], offsets: list[list[int]], size: int
) -> Iterator[list[numpy.ndarray]]:
    ahead: deque = deque()
    for start in range(0, len(offsets), size):
        ahead.append([pool.submit(read_record, *record) for record in offsets[start : start + size]])
        if len(ahead) > BATCHES_AHEAD:
            yield [record.result() for record in ahead.popleft()]
    for batch in ahead:
        yield [record.result() for record in batch]


def version(_programs: Path) -> str:
    return f"Python {platform.python_version()}"
