"""The places that records are read from: memory, a disk, a store far away. Each runs a command over
a folder there."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.rivals.rounds import LeftOut, run_json

# Makes a command from the folder's path.
Command = Callable[[Path], list[Any]]
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
DELAY_US = 2_000
# A trial mounts the store and does nothing else.
TRIAL_SECONDS_MAX = 30
# In the order of the table.
PLACES = ("in memory", "local disk", "2 ms a read", "2 ms an operation")


@dataclass(frozen=True)
class Disk:
    """The folder itself."""

    name: str

    def try_out(self, root: Path) -> None:
        """Raises `LeftOut` where it cannot be had."""
        kind = subprocess.run(["stat", "-f", "-c", "%T", root], capture_output=True, text=True, check=True).stdout
        if kind.strip() in MEMORY_FILE_SYSTEMS:
            raise LeftOut(f"{root} is in memory: set TMPDIR to a folder on a disk")
        if not os.access(DROP_CACHES, os.W_OK):
            raise LeftOut("only root can empty the page cache")

    def run(self, root: Path, _part: Path, command: Command, seconds_max: float) -> dict[str, Any]:
        """The command's result. It finds neither contents nor names in memory."""
        os.sync()
        DROP_CACHES.write_text("3")
        return run_json(command(root), seconds_max)


@dataclass(frozen=True)
class PageCache:
    """The folder itself, all of it in memory."""

    name: str

    def try_out(self, root: Path) -> None:
        """It can always be had."""

    def run(self, root: Path, part: Path, command: Command, seconds_max: float) -> dict[str, Any]:
        """The command's result. It finds `part` of the folder in the page cache."""
        _read(part)
        return run_json(command(root), seconds_max)


@dataclass(frozen=True)
class Store:
    """The folder through shade-slow-store, which is mounted for each run and has all of it in its
    own memory."""

    name: str
    programs: Path
    # Options that say which operations take 2 ms. Empty: all that a network file system sends.
    options: tuple[str, ...] = ()

    def try_out(self, root: Path) -> None:
        """Raises `LeftOut` where it cannot be had."""
        self._run(root, lambda _mount: ["echo", "{}"], TRIAL_SECONDS_MAX)

    def run(self, root: Path, part: Path, command: Command, seconds_max: float) -> dict[str, Any]:
        """The command's result, which uses `part` of the folder, and how many operations the store
        was sent."""
        _read(part)
        return self._run(root, command, seconds_max)

    def _run(self, root: Path, command: Command, seconds_max: float) -> dict[str, Any]:
        mount, counted = root.with_name("mount"), root.with_name("operations.json")
        mount.mkdir(exist_ok=True)
        # In a mount namespace of its own: nobody else sees the mount, and it ends with the last
        # process.
        words: list[Any] = ["unshare", "--mount"]
        words += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        words += [self.programs / "shade-slow-store", "--delay-us", str(DELAY_US), *self.options]
        result = run_json([*words, "--out", counted, root, mount, "--", *command(mount)], seconds_max)
        return {**result, "operations": sum(json.loads(counted.read_bytes())["operations"].values())}


def _read(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()


def all_of_them(programs: Path) -> list[Disk | PageCache | Store]:
    """As `PLACES` names them."""
    memory, disk, slow_reads, slow = PLACES
    return [
        PageCache(memory),
        Disk(disk),
        Store(slow_reads, programs, ("--operations", "read")),
        Store(slow, programs),
    ]
