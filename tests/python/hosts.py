"""Several hosts on one machine, for tests: skipped where they cannot be had."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from studies.hosts import Hosts, NoHosts
from studies.hosts import hosts as make_hosts

# Only a training that hangs gets here.
HANG_SECONDS = 600


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """That many hosts; the test is skipped where they cannot be had."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(make_hosts(count))
        except NoHosts as why:
            pytest.skip(f"LEFT OUT: {why}")
        yield made


def finish(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Waits for the end of all, which must be good."""
    outputs = [process.communicate(timeout=HANG_SECONDS)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
