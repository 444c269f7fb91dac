"""Several hosts on one machine: network namespaces, each with its own address, name and daemons."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

# Where the ranks of a training meet, on its first host.
PORT = "29477"


class NoHosts(Exception):
    """This machine cannot have several hosts; has the reason."""


class Hosts:
    """Namespaces around a switch, which is a bridge in a namespace of its own."""

    def __init__(self, count: int) -> None:
        self.addresses = [f"10.77.0.{number + 1}" for number in range(count)]
        self.hostnames = [f"node-{chr(ord('a') + number)}" for number in range(count)]
        self.switch = f"shade-{uuid.uuid4().hex[:8]}"
        self.namespaces = [f"{self.switch}-{number}" for number in range(count)]

    def make(self) -> None:
        for namespace in (self.switch, *self.namespaces):
            _ip("netns", "add", namespace)
        _ip("-n", self.switch, "link", "add", "lan", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "lan", "up")
        for number, (namespace, address) in enumerate(zip(self.namespaces, self.addresses, strict=True)):
            port = f"port{number}"
            _ip("link", "add", "eth0", "netns", namespace, "type", "veth", "peer", "name", port, "netns", self.switch)
            _ip("-n", self.switch, "link", "set", port, "master", "lan", "up")
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Ends what still runs on the hosts, and removes them."""
        for namespace in (*self.namespaces, self.switch):
            while listed := _pids(namespace):
                for pid in listed:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)

    def start(self, host: int, command: Sequence[object], **environment: str) -> subprocess.Popen[str]:
        """Starts a program on a host."""
        words = shlex.join(map(str, command))
        inside = f"hostname {self.hostnames[host]} && exec {words}"
        return subprocess.Popen(
            ["ip", "netns", "exec", self.namespaces[host], "unshare", "--uts", "sh", "-c", inside],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", **environment},
        )

    def torchrun(self, host: int, ranks: int, *program: object, **environment: str) -> subprocess.Popen[str]:
        """Starts a host's part of a training on all of them, as its user would."""
        options = ["--nnodes", len(self.addresses), "--node-rank", host, "--nproc-per-node", ranks]
        options += ["--master-addr", self.addresses[0], "--master-port", PORT, "--local-addr", self.addresses[host]]
        return self.start(host, [sys.executable, "-m", "torch.distributed.run", *options, *program], **environment)


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """That many hosts.

    Raises:
        NoHosts: They cannot be had here.
    """
    for program in ("ip", "unshare", "hostname"):
        if shutil.which(program) is None:
            raise NoHosts(f"several hosts need network namespaces, and there is no program `{program}`")
    made = Hosts(count)
    try:
        try:
            made.make()
        except subprocess.CalledProcessError as error:
            raise NoHosts(f"several hosts need network namespaces: {error.stderr.strip()}") from error
        probe = made.start(0, ["true"])
        said, _ = probe.communicate()
        if probe.returncode != 0:
            raise NoHosts(f"several hosts need namespaces, which cannot be entered here: {said.strip()}")
        yield made
    finally:
        made.remove()


def _pids(namespace: str) -> list[int]:
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
