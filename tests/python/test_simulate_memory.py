"""Memory of `shade-load simulate`: at most 88 bytes a sample, in addition to the program itself."""

import os
import subprocess

import packed
import pytest

HALF = 500_000
# The core keeps 18 of them for what a simulation does not need: loss weights, and which samples late losses belong to.
BYTES = 88
# Of the allocator: what it keeps between vectors that were given back.
SLACK = 6


def peak_bytes(samples: int, policy: str) -> int:
    """Of memory that was there at once, over three epochs with a cache that holds nearly everything, and so has to evict."""
    options = ["--samples", str(samples), "--policy", policy, "--cache", "98%", "--epochs", "3"]
    process = subprocess.Popen(
        [packed.program("shade-load"), "simulate", *options], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss << 10


@pytest.mark.parametrize("policy", ["lru", "arc", "app", "lookahead"])
def test_a_sample_takes_88_bytes(policy: str) -> None:
    per_sample = (peak_bytes(2 * HALF, policy) - peak_bytes(HALF, policy)) / HALF
    assert per_sample < BYTES + SLACK, f"{per_sample:.1f} bytes"
