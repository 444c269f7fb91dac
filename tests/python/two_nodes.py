"""Two nodes on one machine: network namespaces, each with its own address, host name and daemons."""

import os
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

PORT = "29477"
# Only a training that hangs gets here.
HANG_SECONDS = 600


class Nodes:
    """Two namespaces, joined by a pair of virtual interfaces."""

    addresses = ("10.77.0.1", "10.77.0.2")
    hosts = ("node-a", "node-b")

    def __init__(self) -> None:
        self.names = [f"shade-{uuid.uuid4().hex[:8]}" for _ in self.addresses]

    def make(self) -> None:
        for name in self.names:
            _ip("netns", "add", name)
        first, second = self.names
        _ip("link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second)
        for name, address in zip(self.names, self.addresses, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def start(self, node: int, command: Sequence[object], **environment: str) -> subprocess.Popen[str]:
        """Starts a program on a node."""
        words = shlex.join(map(str, command))
        inside = f"hostname {self.hosts[node]} && exec {words}"
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[node], "unshare", "--uts", "sh", "-c", inside],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", **environment},
        )

    def torchrun(self, node: int, ranks: int, script: Path, *arguments: object) -> subprocess.Popen[str]:
        """Starts a node's part of a training, as its user would."""
        options = ["--nnodes", "2", "--node-rank", node, "--nproc-per-node", ranks, "--master-addr", self.addresses[0]]
        options += ["--master-port", PORT, "--local-addr", self.addresses[node]]
        return self.start(node, [sys.executable, "-m", "torch.distributed.run", *options, script, *arguments])


@contextmanager
def two_nodes() -> Iterator[Nodes]:
    """Two nodes; the test is skipped where they cannot be had."""
    for program in ("ip", "unshare", "hostname"):
        if shutil.which(program) is None:
            pytest.skip(f"LEFT OUT: two nodes need network namespaces, and there is no program `{program}`")
    nodes = Nodes()
    try:
        try:
            nodes.make()
            probe = nodes.start(0, ["true"])
            said, _ = probe.communicate()
            if probe.returncode != 0:
                pytest.skip(f"LEFT OUT: two nodes need namespaces, which cannot be entered here: {said.strip()}")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"LEFT OUT: two nodes need network namespaces: {error.stderr.strip()}")
        yield nodes
    finally:
        nodes.remove()


def finish(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Waits for the end of all, which must be good."""
    outputs = [process.communicate(timeout=HANG_SECONDS)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
