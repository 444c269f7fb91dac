"""One run: the user's script with one cell and seed, as a process that is watched and leaves a record."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..plan import BY_LOSS
from ..socket_folder import socket_folder
from .cells import Cell
from .inside import RUN_FILE, VARIABLE
from .points import Notes, notes_in, reported, trained

# What a script's arguments and its launcher's may have in braces.
PLACES = ("epochs", "seed", "out", "cell")
LOG = "log.txt"
RECORD = "record.json"
# Lines of a log that an error has.
_LINES = 20
# How often a run is looked at, and how long it has to end once it is asked to.
_LOOK_SECONDS = 0.2
_END_SECONDS = 10.0
# With how many epochs losses must have come, where a sampler draws by them.
_EPOCHS_WITHOUT_LOSSES = 2
_PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """A run gave no record. The text says why, and has the path of its log."""


class Damaged(Exception):
    """A record cannot be read, or is of other settings. Names its file."""


@dataclass(frozen=True)
class Script:
    """The user's training, as it is launched."""

    path: Path
    arguments: tuple[str, ...]
    launch: tuple[str, ...] = (sys.executable,)

    def command(self, values: dict[str, object]) -> list[str]:
        """The command of a run: placeholders have their values, and all else stays as it is."""
        words = [*self.launch, str(self.path), *self.arguments]
        for name, value in values.items():
            words = [word.replace(f"{{{name}}}", str(value)) for word in words]
        return words

    def has(self, place: str) -> bool:
        """Whether a placeholder is somewhere in the command."""
        return any(f"{{{place}}}" in word for word in (*self.launch, *self.arguments))


@dataclass(frozen=True)
class Dataset:
    """The dataset that is compared on, as Loaders find it."""

    path: Path
    content_id: str
    samples: int


@dataclass(frozen=True, eq=False)
class Run:
    """A cell with a seed, and all that makes its record one of this comparison."""

    cell: Cell
    seed: int
    epochs: int
    cache: str | None
    script: Script
    dataset: Dataset
    version: str
    out: Path

    def __str__(self) -> str:
        return f"{self.cell.name}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return self.out / f"{self.cell.file_name}-{self.seed}"

    @property
    def log(self) -> Path:
        return self.folder / LOG

    def settings(self) -> dict[str, Any]:
        """What a record must have had to be one of this run."""
        return {
            "dataset": str(self.dataset.path),
            "content_id": self.dataset.content_id,
            "script": self.script.path.name,
            "script_sha256": hashlib.sha256(self.script.path.read_bytes()).hexdigest(),
            "arguments": list(self.script.arguments),
            "launch": list(self.script.launch),
            "cell": asdict(self.cell),
            "seed": self.seed,
            "epochs": self.epochs,
            "cache": self.cache,
            "version": self.version,
        }

    def command(self) -> list[str]:
        values = {"epochs": self.epochs, "seed": self.seed, "out": self.folder / "out", "cell": self.cell.name}
        return self.script.command({name: values[name] for name in PLACES})

    def record(self) -> dict[str, Any] | None:
        """The record of the run, if it has finished.

        Raises: Damaged: It cannot be read, or is of other settings.
        """
        path = self.folder / RECORD
        if not path.exists():
            return None
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            had = record["settings"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{path} is no record of a run: {error!r}. Without {self.folder} it is trained again") from None
        for name, value in json.loads(json.dumps(self.settings())).items():
            if had.get(name) != value:
                raise Damaged(
                    f"{self.folder} has a run with another {name}: {had.get(name)!r}, now {value!r}. Choose another "
                    f"--out, or remove {self.out}"
                )
        return record

    def train(self, seconds_max: float, look: Callable[[int], None]) -> dict[str, Any]:
        """Runs the script to its end, and returns the record, which is then in the folder.

        `look` is called with the number of epochs that have ended, again and again.

        Raises: Failed: The script failed, or did something else than this run.
        """
        # What an earlier command that was killed may have left.
        _end_all(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "out").mkdir(parents=True)
        settings = self.settings()
        _drop_pages(self.dataset.path)
        date, load, started = datetime.now(timezone.utc), os.getloadavg()[0], time.monotonic()
        with socket_folder("shade-compare-") as sockets:
            run = {"dataset": str(self.dataset.path), "plan": self.cell.plan, "seed": self.seed, "cache": self.cache}
            run |= {"log": str(self.log.resolve()), "sockets": sockets}
            (self.folder / RUN_FILE).write_text(json.dumps(run), encoding="utf-8")
            with _running(self.command(), self.folder, self.log) as process:
                self._watch(process, started + seconds_max, look)
            # The next run's daemons measure what memory is free.
            _end_all(self.folder)
        notes = notes_in(self.folder)
        first = self._trained(notes)
        gave_way = dict.fromkeys(each for of_loader in notes for each in of_loader.about["gave_way"])
        record = {
            "settings": settings,
            "date": date.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - started, 3),
            "load": load,
            "command": self.command(),
            # Arguments of other Loaders gave way, too, such as those of one that validates.
            "about": {**first.about, "gave_way": list(gave_way)},
            "began": next(row["began"] for row in first.rows if "began" in row),
            "epochs": first.epochs,
            "reported": reported(notes),
        }
        unfinished = self.folder / f"{RECORD}.new"
        unfinished.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self.folder / RECORD)
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        return record

    def _watch(self, process: subprocess.Popen[bytes], until: float, look: Callable[[int], None]) -> None:
        """Waits for the script's end."""
        while True:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(_LOOK_SECONDS)
                break
            notes = notes_in(self.folder)
            self._refuse(notes)
            look(max((len(each.epochs) for each in trained(notes)), default=0))
            if time.monotonic() > until:
                raise self._failed("ran longer than --timeout, and was ended")
        if code:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise self._failed(how)
        self._refuse(notes_in(self.folder))

    def _refuse(self, notes: Sequence[Notes]) -> None:
        """Ends a run early that would be of no use."""
        for each in trained(notes):
            epochs, sampler = each.epochs, each.about["job"]["plan"]["sampler"]
            if len(epochs) > self.epochs:
                raise self._failed(f"trains more epochs than {self.epochs}: does it read its argument with {{epochs}}?")
            if sampler in BY_LOSS and len(epochs) >= _EPOCHS_WITHOUT_LOSSES and epochs[-1]["reported"] == 0:
                raise self._failed(
                    f"reports no losses, and {sampler} draws by them: call loader.report(batch, losses) for each batch, "
                    f"with a loss for each sample, or leave {self.cell.name} out of --cells"
                )

    def _trained(self, notes: Sequence[Notes]) -> Notes:
        """The notes of the one Loader that trained for these epochs."""
        if not notes:
            raise self._failed(
                f"made no shade_load.Loader that knows of this comparison: use one in place of the DataLoader "
                f"(docs/in-your-script.md), and pass ${VARIABLE} on to the processes that train"
            )
        found = trained(notes)
        if not found:
            what = {(each.about["dataset"], "trains" if each.about["trains"] else "validates") for each in notes}
            read = ", ".join(f"{dataset} ({does})" for dataset, does in sorted(what))
            raise self._failed(
                f"trained no whole epoch on {self.dataset.path}; its Loaders read: {read}. An epoch that is left early "
                f"does not count"
            )
        if len(found) > 1:
            raise self._failed(f"made {len(found)} Loaders that train on {self.dataset.path}: only one can be compared")
        if len(found[0].epochs) < self.epochs:
            raise self._failed(
                f"trained {len(found[0].epochs)} epochs in place of {self.epochs}: it stops early, goes on from what "
                f"another run saved (give it a folder of its own: {{out}}), or does not read its argument with {{epochs}}"
            )
        return found[0]

    def _failed(self, what: str) -> Failed:
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        lines = text.splitlines()[-_LINES:]
        said = "\n  ".join(["and its log ends:", *lines]) if lines else "and its log is empty"
        return Failed(f"{self}: the script {what}\n  ({self.log})\n  {said}")


@contextmanager
def _running(command: Sequence[str], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The script as a process, which does not outlive this one, and whose output goes to the log."""
    # Lines must be in the log when they are printed: an epoch's end is compared with its length.
    environment = {**os.environ, VARIABLE: str(folder.resolve()), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as file:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True, preexec_fn=_end_with_parent,
            )  # fmt: skip
        except OSError as error:
            raise Failed(f"cannot run {command[0]}: {error}") from None
    try:
        yield process
    except BaseException:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        process.kill()
        process.wait()
        _end_all(folder)
        raise


def _end_with_parent() -> None:
    """Between fork and exec: this process gets SIGTERM when the one that compares is gone, however it went."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end_all(folder: Path) -> None:
    """Ends what is left of a run: daemons that linger, and ranks whose launcher is gone."""
    asked: set[int] = set()
    until = time.monotonic() + _END_SECONDS
    while (left := _left_of(folder)) and time.monotonic() < until + _END_SECONDS:
        is_late = time.monotonic() > until
        for pid in left if is_late else left - asked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
        asked |= left
        time.sleep(_LOOK_SECONDS / 4)


def _left_of(folder: Path) -> set[int]:
    """Processes that have the run's variable."""
    mark, found = f"{VARIABLE}={folder.resolve()}".encode(), set()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in environment.read_bytes().split(b"\0"):
                found.add(int(environment.parent.name))
    return found


def _drop_pages(dataset: Path) -> None:
    """Asks the kernel to forget the shards, so that each run finds them as cold as the first."""
    for path in dataset.glob("**/*.tar"):
        with suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
