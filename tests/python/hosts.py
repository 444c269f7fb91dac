"""Several hosts on one machine, for tests: skipped where they cannot be had."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from studies.hosts import PORT, Hosts, NoHosts
from studies.hosts import hosts as make_hosts

# Only a training that hangs gets here.
HANG_SECONDS = 600
FORKED = Path(__file__).with_name("forked_ranks.py")


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """That many hosts; the test is skipped where they cannot be had."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(make_hosts(count))
        except NoHosts as why:
            pytest.skip(f"LEFT OUT: {why}")
        yield made


def start_ranks(nodes: Hosts, node: int, ranks: int, *script: object) -> subprocess.Popen[str]:
    """Starts a host's ranks of a training on all of them."""
    where = [len(nodes.addresses), node, ranks, nodes.addresses[0], PORT]
    return nodes.start(node, [sys.executable, FORKED, *where, *script])


def run_ranks(ranks: int, *script: object) -> None:
    """Runs a training of this many ranks on this machine to its end, which must be good."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, FORKED, 1, 0, ranks, "127.0.0.1", port, *script]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def finish(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Waits for the end of all, which must be good."""
    outputs = [process.communicate(timeout=HANG_SECONDS)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
