"""`python -m benches.rivals.bounds memcpy|gather|fio|touch ROOT`: what the hardware gives, without a loader.

The last line that it prints is JSON: an epoch's bytes, in so many seconds."""

import ctypes
import json
import mmap
import multiprocessing
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy

from benches.rivals.epoch import BATCH
from benches.rivals.kinds import KINDS
from benches.rivals.readers import shards
from benches.rivals.whole_tree import cpu_seconds
from benches.rivals.writers.listing import read, samples

COPIERS = 2
# Of each copier, used again and again: shade's ring has room for eight in all.
BATCHES = 4
# An epoch of copies takes a tenth of a second.
EPOCHS = 10
# fio's reads in flight, as many as shade has, and what blocks are multiples of.
DEPTH = 32
ALIGNED_BYTES = 4096
# Does a copier's share of one of the epochs, by number.
Share = Callable[[int], None]


def memcpy(root: Path) -> dict[str, Any]:
    """Records in random order, from all over one piece of memory into batches, with libc's memcpy."""
    records = [read(path) for path, _label in samples(root / "files")]
    lengths = [len(record) for record in records]
    source = numpy.frombuffer(b"".join(records), numpy.uint8).copy()
    starts = accumulate(lengths[:-1], initial=source.ctypes.data)
    places = list(zip(starts, lengths, strict=True))
    copy = ctypes.CDLL(None).memcpy
    copy.argtypes, copy.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), None

    def share_of(copier: int) -> Share:
        batches = numpy.empty((BATCHES, BATCH * max(lengths)), numpy.uint8)
        orders = [[places[at] for at in order] for order in _orders(len(records), copier)]

        def share(epoch: int) -> None:
            for first in range(0, len(orders[epoch]), BATCH):
                into = batches[first // BATCH % BATCHES].ctypes.data
                for start, length in orders[epoch][first : first + BATCH]:
                    copy(into, start, length)
                    into += length

        return share

    return {"bytes": len(source), "version": " ".join(platform.libc_ver()), **_together(share_of)}


def gather(root: Path) -> dict[str, Any]:
    """Raw pixels of images in random order, out of one array into batches, with numpy's take."""
    side = KINDS["pixels"].side
    # What is before the pixels in a file is a header.
    files = [numpy.frombuffer(read(path), numpy.uint8)[-side * side * 3 :] for path, _label in samples(root / "files")]
    source = numpy.stack(files)

    def share_of(copier: int) -> Share:
        batches = numpy.empty((BATCHES, BATCH, source.shape[1]), numpy.uint8)
        orders = _orders(len(source), copier)

        def share(epoch: int) -> None:
            for first in range(0, len(orders[epoch]), BATCH):
                ids = orders[epoch][first : first + BATCH]
                # With its default mode, take would copy twice.
                source.take(ids, axis=0, out=batches[first // BATCH % BATCHES, : len(ids)], mode="clip")

        return share

    return {"bytes": source.nbytes, "version": f"numpy {numpy.__version__}", **_together(share_of)}


def _orders(count: int, copier: int) -> list[numpy.ndarray]:
    """What a copier copies in each epoch: a part of orders that all of them draw alike."""
    draw = numpy.random.default_rng(0)
    return [draw.permutation(count)[copier::COPIERS].copy() for _ in range(1 + EPOCHS)]


def _together(share_of: Callable[[int], Share]) -> dict[str, float]:
    """The mean epoch, when all copiers do their shares at the same time."""
    # Processes: Python's threads would wait for each other between two copies.
    fork = multiprocessing.get_context("fork")
    ready, told = fork.Barrier(COPIERS), fork.SimpleQueue()

    def copy(copier: int) -> None:
        share = share_of(copier)
        # Its batches get their memory.
        share(0)
        ready.wait()
        cpu, started = cpu_seconds(), time.perf_counter()
        for epoch in range(1, 1 + EPOCHS):
            share(epoch)
        told.put((time.perf_counter() - started, cpu_seconds() - cpu))

    copiers = [fork.Process(target=copy, args=(copier,)) for copier in range(COPIERS)]
    for copier in copiers:
        copier.start()
    each = [told.get() for _ in copiers]
    for copier in copiers:
        copier.join()
    return {
        "seconds": max(seconds for seconds, _cpu in each) / EPOCHS,
        "cpu_seconds": sum(cpu for _seconds, cpu in each) / EPOCHS,
    }


def fio(root: Path) -> dict[str, Any]:
    """Each block of the shards once, in random order, past the page cache; blocks are as large as the mean record."""
    sizes = [Path(path).stat().st_size for path, _label in samples(root / "files")]
    block_bytes = -(-sum(sizes) // len(sizes) // ALIGNED_BYTES) * ALIGNED_BYTES
    words = ["fio", "--name=read", "--readonly", "--rw=randread", "--ioengine=io_uring", "--direct=1"]
    words += [f"--filename={':'.join(shards.paths(root))}", f"--iodepth={DEPTH}", f"--bs={block_bytes}"]
    words += ["--output-format=json"]
    told = json.loads(subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout)
    (job,) = told["jobs"]
    # It tells milliseconds, and percents of them.
    seconds = job["job_runtime"] / 1e3
    return {
        "bytes": job["read"]["io_bytes"],
        "version": told["fio version"],
        "seconds": seconds,
        "cpu_seconds": (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds,
    }


def touch(root: Path) -> dict[str, Any]:
    """As many bytes of memory that nobody has used as the records have, each small page written to once, by one thread."""
    length = sum(Path(path).stat().st_size for path, _label in samples(root / "files"))
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    pages = numpy.frombuffer(memory, numpy.uint8)[:: mmap.PAGESIZE]
    cpu, started = cpu_seconds(), time.perf_counter()
    pages.fill(1)
    seconds = time.perf_counter() - started
    return {"bytes": length, "version": platform.release(), "seconds": seconds, "cpu_seconds": cpu_seconds() - cpu}


def main() -> int:
    name, root = sys.argv[1:]
    print(json.dumps({"memcpy": memcpy, "gather": gather, "fio": fio, "touch": touch}[name](Path(root))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
