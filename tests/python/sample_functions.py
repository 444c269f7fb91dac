"""Functions of single samples for the tests of PerSample: processes import them from here."""

import os
import random
import resource
import signal
import sys
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from shade_load import Sample


def content(sample: Sample) -> bytes:
    """All bytes of what a function gets."""
    if sample.record is not None:
        return sample.record
    views = sample.image if isinstance(sample.image, list) else [sample.image]
    return b"".join(view.tobytes() for view in views)


def described(sample: Sample) -> dict[str, Any]:
    """Each kind of result that there is, and numbers that transforms would draw."""
    import torch

    return {
        "crc": zlib.crc32(content(sample)),
        "sample": (sample.id, sample.label, sample.epoch),
        "seed": np.uint64(sample.seed),
        "drawn": np.array([random.random(), np.random.rand(), torch.rand(1).item()]),
        "tensor": torch.full((2, 3), sample.label, dtype=torch.float16),
        "flag": sample.label == 1,
        "text": f"number {sample.id}",
        "fields": sample.fields,
    }


def seed_alone(sample: Sample) -> Any:
    """What its random numbers follow from."""
    return np.uint64(sample.seed)


def pixels(sample: Sample) -> Any:
    """The image upside down: an array that is not contiguous."""
    return sample.image[::-1]


def with_process(sample: Sample) -> tuple[Any, int]:
    """The image, and the process that has it."""
    return sample.image, os.getpid()


def with_page_faults(sample: Sample) -> int:
    """Page faults of this process so far. Blocks such as a decoder's are used, and given back together."""
    blocks = [bytearray(1 << 20) for _ in range(4)]
    assert len(blocks) == 4
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def hangs_later(sample: Sample) -> tuple[Any, int]:
    """As `with_process`, but from the second epoch on it says that it is there, and does not return."""
    if sample.epoch > 0:
        # In one piece: both processes may be here at once.
        os.write(1, b"hangs\n")
        time.sleep(10_000)
    return with_process(sample)


class FailsOnce:
    """Fails with one sample in the first epoch."""

    def __init__(self, sample: int) -> None:
        self.sample = sample

    def __call__(self, sample: Sample) -> Any:
        if sample.epoch == 0 and sample.id == self.sample:
            raise KeyError("no box of this name")
        return sample.image


def of_own_sizes(sample: Sample) -> Any:
    """Images of several sizes."""
    return sample.image[: 1 + sample.id % 2]


def nothing(sample: Sample) -> None:
    """What a function without `return` does."""


class DiesAt:
    """Its process is killed at one sample of the first epoch."""

    def __init__(self, sample: int) -> None:
        self.sample = sample

    def __call__(self, sample: Sample) -> Any:
        if sample.epoch == 0 and sample.id == self.sample:
            os.kill(os.getpid(), signal.SIGKILL)
        return sample.image


class Waits:
    """Waits until there is a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, sample: Sample) -> Any:
        while not self.file.exists():
            time.sleep(0.01)
        return sample.id


class NotThere:
    """Pickled here, it cannot be unpickled elsewhere."""

    def __reduce__(self) -> Any:
        return os.path.expandvars, (1,)

    def __call__(self, sample: Sample) -> Any:
        return sample


class Pair(NamedTuple):
    """A result that a batch has by name."""

    mean: float
    least: float


def of_lists(sample: Sample) -> Any:
    """Objects: arrays of different lengths in a list, a tensor in a list, and a named tuple in a list."""
    # Not above: a test runs without it.
    import torch

    values = np.arange(sample.id % 3, dtype=np.float32)
    return [values], [torch.tensor([sample.id])], [Pair(0.5, float(sample.id))]


def without_bytes(sample: Sample) -> Any:
    """An object that cannot be pickled."""
    return [sample.id, lambda: 0]


def ends(sample: Sample) -> Any:
    """A function that wants to end its process."""
    sys.exit(f"enough of {sample.id}")
