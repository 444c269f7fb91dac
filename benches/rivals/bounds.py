"""`python -m benches.rivals.bounds NAME ROOT [WORKERS KIND]`: what the hardware gives, without a
loader.

NAME is `memcpy`, `fio`, `touch`, `gather` or `bare`. The last line that it prints is JSON: the time
of an epoch."""

import ctypes
import json
import mmap
import multiprocessing
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy

from benches.rivals.image_folder import list_samples, read_file
from benches.rivals.kinds import BATCH, KINDS
from benches.rivals.systems import shade_pack
from benches.rivals.with_cpu_time import cpu_seconds

COPIERS = 2
# Batches that each copier uses again and again. shade's ring has room for eight in all.
BATCHES = 4
# An epoch of copies takes a tenth of a second.
EPOCHS = 10
# fio's reads in flight, as many as shade has, and the unit of its block size.
DEPTH = 32
ALIGNED_BYTES = 4096
# Does a copier's share of the epoch with this number.
Share = Callable[[int], None]


def memcpy(root: Path) -> dict[str, Any]:
    """Copies records in random order from one piece of memory into batches, with libc's memcpy."""
    records = [read_file(path) for path, _label in list_samples(root / "files")]
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
    """Copies raw pixels of images in random order from an array into batches: numpy's take."""
    side = KINDS["pixels"].side
    # Before the pixels a file has a header.
    files = [numpy.frombuffer(read_file(path), numpy.uint8) for path, _label in list_samples(root / "files")]
    source = numpy.stack([file[-side * side * 3 :] for file in files])

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
    """What a copier copies in each epoch: its part of an order that all copiers draw alike."""
    draw = numpy.random.default_rng(0)
    return [draw.permutation(count)[copier::COPIERS].copy() for _ in range(1 + EPOCHS)]


def _together(share_of: Callable[[int], Share]) -> dict[str, float]:
    """The mean epoch, with all copiers at work at the same time."""
    # Processes: Python's threads would wait for each other between two copies.
    fork = multiprocessing.get_context("fork")
    ready, results = fork.Barrier(COPIERS), fork.SimpleQueue()

    def copy(copier: int) -> None:
        share = share_of(copier)
        # The batches get their memory.
        share(0)
        ready.wait()
        cpu, started = cpu_seconds(), time.perf_counter()
        for epoch in range(1, 1 + EPOCHS):
            share(epoch)
        results.put((time.perf_counter() - started, cpu_seconds() - cpu))

    copiers = [fork.Process(target=copy, args=(copier,)) for copier in range(COPIERS)]
    for copier in copiers:
        copier.start()
    each = [results.get() for _ in copiers]
    for copier in copiers:
        copier.join()
    return {
        "seconds": max(seconds for seconds, _cpu in each) / EPOCHS,
        "cpu_seconds": sum(cpu for _seconds, cpu in each) / EPOCHS,
    }


def fio(root: Path) -> dict[str, Any]:
    """Reads each block of the shards once, in random order, past the page cache. A block is a mean
    record long."""
    sizes = [Path(path).stat().st_size for path, _label in list_samples(root / "files")]
    block_bytes = -(-sum(sizes) // len(sizes) // ALIGNED_BYTES) * ALIGNED_BYTES
    words = ["fio", "--name=read", "--readonly", "--rw=randread", "--ioengine=io_uring", "--direct=1"]
    words += [f"--filename={':'.join(shade_pack.shard_paths(root))}", f"--iodepth={DEPTH}", f"--bs={block_bytes}"]
    words += ["--output-format=json"]
    result = json.loads(subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout)
    (job,) = result["jobs"]
    # fio gives milliseconds, and CPU time in percent of them.
    seconds = job["job_runtime"] / 1e3
    return {
        "bytes": job["read"]["io_bytes"],
        "version": result["fio version"],
        "seconds": seconds,
        "cpu_seconds": (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds,
    }


def touch(root: Path) -> dict[str, Any]:
    """Writes to each small page of fresh memory once, on one thread: as many bytes as the records
    have."""
    length = sum(Path(path).stat().st_size for path, _label in list_samples(root / "files"))
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    pages = numpy.frombuffer(memory, numpy.uint8)[:: mmap.PAGESIZE]
    cpu, started = cpu_seconds(), time.perf_counter()
    pages.fill(1)
    seconds = time.perf_counter() - started
    return {"bytes": length, "version": platform.release(), "seconds": seconds, "cpu_seconds": cpu_seconds() - cpu}


def bare(root: Path, workers: int, kind_name: str) -> dict[str, Any]:
    """Decodes all files from memory on so many threads: no crop, no resizing, no batch."""
    # Imported here, as no other bound needs its libraries.
    from benches.rivals import fast_decoder

    kind = KINDS[kind_name]
    records = [read_file(path) for path, _label in list_samples(root / "files")]

    def decode(part: list[bytes]) -> None:
        for record in part:
            fast_decoder.decode_whole(record, kind)

    parts = [records[worker::workers] for worker in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        cpu, started = cpu_seconds(), time.perf_counter()
        list(pool.map(decode, parts))
        seconds = time.perf_counter() - started
    return {"version": fast_decoder.version(), "seconds": seconds, "cpu_seconds": cpu_seconds() - cpu}


def main() -> int:
    name, root, *more = sys.argv[1:]
    if name == "bare":
        workers, kind_name = more
        result = bare(Path(root), int(workers), kind_name)
    else:
        result = {"memcpy": memcpy, "gather": gather, "fio": fio, "touch": touch}[name](Path(root))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
