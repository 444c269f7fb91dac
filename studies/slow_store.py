"""The slow store of demo and studies: shade-slow-store where a file system can be mounted, else a
simulation of it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Reports need no package that is built.
    from shade_load import Loader

PROGRAM = "shade-slow-store"
INTERRUPTED = 130
# What a network file system sends for a file that it does not have in memory: name, open, read.
FILE_OPERATIONS = 3

# Makes a command from the path at which it finds the data.
Command = Callable[[Path], list[Any]]


class Failed(Exception):
    """A training did not come to its end. It has said why."""


@dataclass(frozen=True)
class SlowStore:
    """A store whose operations take a while, and that serves a limited number at once."""

    delay_us: int
    at_once: int
    # The slow store's program. None: the trainings simulate the store.
    program: Path | None
    # Where it is mounted.
    mountpoint: Path
    simulated_because: str = ""

    @property
    def operations_per_second(self) -> float:
        """The most that it serves."""
        return self.at_once / self.delay_us * 1e6

    def __str__(self) -> str:
        limits = f"{self.delay_us / 1000:g} ms an operation, {self.at_once} at once: {self.operations_per_second:,.0f} a second"
        if self.program is None:
            return f"SIMULATED STORE: {limits}. No real one can be mounted: {self.simulated_because}"
        return f"Store: {limits}. A file system mounted for each run, without a page cache."

    def run(self, source: Path, command: Command) -> dict[str, int] | None:
        """Runs the command over `source`. Returns how many operations of each kind the store was
        sent; None if it is simulated.

        Raises:
            Failed: The command did.
            KeyboardInterrupt: Ctrl-C, after the command has ended.
        """
        if self.program is None:
            _run(command(source))
            return None
        counted = self.mountpoint.with_name("operations.json")
        _run(self._mounted(source, ["--out", counted], command(self.mountpoint)))
        return json.loads(counted.read_text())["operations"]

    def refusal(self, source: Path) -> str:
        """Why `source` cannot be mounted here; "" if it can."""
        words = [str(word) for word in self._mounted(source, [], ["true"])]
        try:
            tried = subprocess.run(words, capture_output=True, text=True, check=False)
        except OSError as error:
            return str(error)
        return "" if tried.returncode == 0 else (tried.stderr.strip() or f"status {tried.returncode}")

    def _mounted(self, source: Path, options: list[Any], command: list[Any]) -> list[Any]:
        # In a mount namespace of its own: nobody else sees the mount, and it ends with the last
        # process.
        words: list[Any] = ["unshare", "--mount"]
        words += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        words += [self.program, "--delay-us", self.delay_us, "--at-once", self.at_once, "--no-page-cache"]
        return [*words, *options, source, self.mountpoint, "--", *command]


def find(programs: Path, delay_us: int, at_once: int, out: Path) -> SlowStore:
    """The store, mounted if that is possible here. `out` gets its mount point."""
    mountpoint = out / "store"
    mountpoint.mkdir(exist_ok=True)
    program = shutil.which(PROGRAM, path=str(programs.resolve()))
    if program is None:
        why = f"{PROGRAM} is not in {programs}. `cargo build --release --package {PROGRAM}` builds it"
    else:
        store = SlowStore(delay_us, at_once, Path(program), mountpoint)
        why = store.refusal(out)
        if not why:
            return store
    return SlowStore(delay_us, at_once, None, mountpoint, why)


def leave(loader: Loader) -> None:
    """Leaves the daemon and waits for its end, as it has files of the store open."""
    daemon = os.pidfd_open(loader.daemon_pid)
    loader.close()
    select.select([daemon], [], [])
    os.close(daemon)


def _run(command: list[Any]) -> None:
    # Ctrl-C reaches all processes of a terminal. Here this one alone takes it, and ends the others
    # by SIGTERM, which the slow store passes on.
    process = subprocess.Popen(
        [str(word) for word in command], preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    )
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code != 0:
        raise Failed(f"a training ended with status {code}")
