"""Memory for ranks and daemon: a control group with a limit, in which is also what they cache of files.

`python -m benches.dlio.memory` says how long this machine takes to find memory, twice."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy

# Where a version of cgroups is mounted, its limit, what it used most, and its kills.
VERSIONS = {
    "": (Path("/sys/fs/cgroup"), "memory.max", "memory.peak"),
    "memory": (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
}
# Until when a group is empty by itself, as a daemon lingers; then its processes are killed.
EMPTY_SECONDS_MAX = 15
GIB = 1 << 30


@dataclass(frozen=True)
class Group:
    """The group. Without a folder there is none, and memory is not limited."""

    folder: Path | None
    limit_bytes: int
    peak: str = ""
    refused: str = ""

    def around(self, command: list[str]) -> list[str]:
        """The command, in the group."""
        if self.folder is None:
            return command
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh", *command]

    def peak_bytes(self) -> int | None:
        """The most that it had."""
        try:
            return int((self.folder / self.peak).read_text()) if self.folder else None
        except (OSError, ValueError):
            return None


@contextmanager
def limited(limit_bytes: int) -> Iterator[Group]:
    """A group with this limit, removed when its processes have ended."""
    group = _make(limit_bytes)
    try:
        yield group
    finally:
        _remove(group)


def touched(limit_bytes: int) -> list[float]:
    """Writes to so much memory, if it is free, and gives it back; seconds for each GiB.

    The host of a virtual machine may give it memory only as that is touched for the first time,
    which is slow. Who comes first would pay for all who come later.
    """
    seconds, taken = [], []
    for _ in range(min(limit_bytes, _available_bytes()) // GIB):
        begun = time.perf_counter()
        taken.append(numpy.ones(GIB, numpy.uint8))
        seconds.append(round(time.perf_counter() - begun, 3))
    return seconds


def _available_bytes() -> int:
    """What programs can have without swapping, less what this one may need itself."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return max(int(lines["MemAvailable"].split()[0]) * 1024 - GIB, 0)


def _make(limit_bytes: int) -> Group:
    """As tests/memory_killed.rs: below this process's group, or beside one above it."""
    tried = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers not in VERSIONS:
            continue
        mount, limit, peak = VERSIONS[controllers]
        own_path = Path(own.lstrip("/"))
        for above in (own_path, *own_path.parents):
            folder = mount / above / f"shade-dlio-{time.monotonic_ns()}"
            try:
                folder.mkdir()
            except OSError as error:
                tried.append(f"{folder}: {error.strerror}")
                continue
            if (folder / limit).exists():
                (folder / limit).write_text(str(limit_bytes))
                return Group(folder, limit_bytes, peak)
            folder.rmdir()
            tried.append(f"{folder} has no {limit}")
    return Group(None, limit_bytes, refused="; ".join(tried))


def _remove(group: Group) -> None:
    if group.folder is None:
        return
    until = time.monotonic() + EMPTY_SECONDS_MAX
    while True:
        try:
            group.folder.rmdir()
            return
        except OSError:
            if time.monotonic() > until:
                _kill_all(group.folder)
            time.sleep(0.2)


def _kill_all(folder: Path) -> None:
    """Ranks may outlive mpirun, each in a session of its own."""
    for pid in (folder / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    for time_of in ("first", "second"):
        print(f"seconds for each GiB, the {time_of} time:", *touched(sys.maxsize))
