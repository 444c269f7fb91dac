"""A Redis cluster with a server on each host, made as SHADE's README makes it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from studies.hosts import Hosts

PORT = 6379
# The fewest servers that redis-cli makes a cluster of.
SERVERS_MIN = 3
SETTINGS = {
    "cluster-enabled": "yes",
    "cluster-require-full-coverage": "no",
    "maxmemory": "1gb",
    "maxmemory-policy": "noeviction",
    "save": "",
    "appendonly": "no",
    "protected-mode": "no",
    "logfile": "log",
}
# Longest wait for a server, and the pause between two looks.
PATIENCE, PAUSE = 60.0, 0.05


def missing() -> str:
    """Why there is no Redis here; "" if there is one."""
    if shutil.which("redis-cli") is None or _server() is None:
        return "Debian's redis-tools are not installed: setup/system-packages.sh cache"
    return ""


def _server() -> str | None:
    # Debian's redis-tools have the server under this name, and it goes by the name it is called by.
    return shutil.which("redis-server") or shutil.which("redis-check-rdb")


@contextmanager
def cluster(hosts: Hosts, folder: Path) -> Iterator[str]:
    """A server on each host. Gives what `Daemon(tier=...)` takes.

    Raises:
        OSError: The cluster does not come about.
    """
    program = folder / "redis-server"
    program.symlink_to(_server() or "redis-server")
    servers = []
    try:
        for host, address in enumerate(hosts.addresses):
            place = folder / f"redis-{host}"
            place.mkdir()
            options = {"port": PORT, "bind": address, "dir": place, **SETTINGS}
            words = [word for name, value in options.items() for word in (f"--{name}", value)]
            servers.append(hosts.start(host, [program, *words]))
        until = time.monotonic() + PATIENCE
        for address in hosts.addresses:
            while _said(hosts, "-h", address, "ping") != "PONG":
                if time.monotonic() > until:
                    raise OSError(f"no Redis server answers at {address}:{PORT}")
                time.sleep(PAUSE)
        ends = [f"{address}:{PORT}" for address in hosts.addresses]
        told = _said(hosts, "--cluster", "create", *ends, "--cluster-replicas", "0", "--cluster-yes")
        if "All 16384 slots covered" not in told:
            raise OSError(f"redis-cli made no cluster: {told}")
        yield f"redis://{','.join(ends)}"
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def _said(hosts: Hosts, *words: str) -> str:
    said, _ = hosts.start(0, ["redis-cli", *words]).communicate()
    return said.strip()
