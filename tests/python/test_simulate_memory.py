"""Memory of `shade-load simulate`: at most 88 bytes a sample, in addition to the program itself."""

import os
import subprocess

import packed
import pytest

HALF = 250_000
# 18 of them are the core's loss weights and samples of late losses, which a simulation does not
# need.
BYTES = 88
# Bytes that the allocator keeps of freed vectors.
SLACK = 6


def peak_bytes(samples: int, policy: str) -> int:
    """Largest resident set over three epochs, with a cache for nearly all samples."""
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
