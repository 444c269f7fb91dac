"""What a Loader does in a run of `python -m shade_load.compare`: takes its cell's arguments, notes each epoch."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._native import ShadeError, __version__
from ..daemon import Daemon
from ..options import dataset_path
from ..plan import Plan

if TYPE_CHECKING:
    from ..loader import Loader

# Names the folder of the run that this process is a part of. The package reads it here only.
VARIABLE = "SHADE_COMPARE_RUN"
# In that folder: what the command says to Loaders, and the folder of what they note.
RUN_FILE = "run.json"
NOTES = "loaders"
# Tells the Loaders of this process apart.
_serial = count()


class Arguments(NamedTuple):
    """Those of a Loader's arguments that a run may replace."""

    plan: Plan
    daemon: Daemon
    cache: int | str | None
    seed: int


class InRun:
    """A Loader's part in a run: which of its arguments give way, and its notes, one JSON object a line.

    The first line says what the Loader is. A Loader that trains on the dataset that is compared adds a line when its
    first epoch begins, for each epoch that ends, and for each validation score.
    """

    def __init__(self, folder: Path, dataset: Path, trains: bool) -> None:
        try:
            self._run: dict[str, Any] = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ShadeError(
                f"{VARIABLE} names {folder}, which is no run of python -m shade_load.compare: {error}; unset it"
            ) from None
        self._folder, self._dataset, self._trains = folder, dataset, trains
        self._reads_compared = str(dataset) == self._run["dataset"]
        self.is_compared = trains and self._reads_compared
        self._gave_way: list[str] = []
        self._note_file: int | None = None
        # The epoch that began last, the log's length then, the epoch whose end was noted last, and
        # whether the first one was asked for.
        self._begun: int | None = None
        self._log_begun = 0
        self._ended: int | None = None
        self._has_begun = False

    @classmethod
    def of(cls, dataset: str | os.PathLike[str], trains: bool) -> InRun | None:
        """A Loader's part in the run that the environment names; None, as ever, outside of one."""
        folder = os.environ.get(VARIABLE)
        return cls(Path(folder), dataset_path(dataset), trains) if folder else None

    def replaced(self, given: Arguments) -> Arguments:
        """The arguments of this run.

        Every Loader gets daemons that only this run has, without a tier, whose servers keep what earlier
        runs read: so each run begins cold. Every Loader on the compared dataset gets the run's cache, as
        the first one starts the daemon of all.
        """
        name = hashlib.sha256(os.fsencode(self._dataset)).hexdigest()[:16]
        for option in ("tier", "tier_cache"):
            self._tell(f"Daemon.{option}", getattr(given.daemon, option), None, None)
        daemon = replace(given.daemon, socket=Path(self._run["sockets"]) / name, tier=None, tier_cache=None)
        cache = self._run["cache"] if self._reads_compared else None
        if cache is not None:
            self._tell("cache", given.cache, None, cache)
        given = given._replace(daemon=daemon, cache=given.cache if cache is None else cache)
        if not self.is_compared:
            return given
        options, seed = dict(self._run["plan"]), self._run["seed"]
        if options.get("sampler", "weighted") != "weighted" and given.plan.weights is not None:
            options["weights"] = None
        for option, value in options.items():
            self._tell(f"Plan.{option}", getattr(given.plan, option), getattr(Plan, option), value)
        self._tell("seed", given.seed, 0, seed)
        return given._replace(plan=replace(given.plan, **options), seed=seed)

    def attached(self, loader: Loader, settings: str, content_id: str) -> None:
        """Notes what the Loader is."""
        folder = self._folder / NOTES
        folder.mkdir(exist_ok=True)
        path = folder / f"{loader.rank:05}-{os.getpid()}-{next(_serial)}.jsonl"
        # Open to the end: an orphan of an earlier try must not write into a new one's file.
        self._note_file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        torch = sys.modules.get("torch")
        self._note(
            rank=loader.rank,
            world_size=loader.world_size,
            trains=self._trains,
            is_compared=self.is_compared,
            dataset=str(self._dataset),
            content_id=content_id,
            samples=loader.samples,
            batch_size=loader.batch_size,
            daemon_pid=loader.daemon_pid,
            daemon=json.loads(settings),
            job=loader._job,
            gave_way=self._gave_way,
            versions={
                "client": __version__,
                "daemon": loader.stats()["version"],
                "python": platform.python_version(),
                "torch": None if torch is None else torch.__version__,
            },
        )

    def began(self) -> None:
        """An epoch was asked for: with the first the clock starts."""
        if self.is_compared and not self._has_begun:
            self._has_begun = True
            self._note(began=time.monotonic())

    def delivered(self, loader: Loader, epoch: int, is_last: bool) -> None:
        """A batch came, or the epoch's end. A loop may count batches and never ask for the end."""
        if not self.is_compared or epoch == self._ended:
            return
        if epoch != self._begun:
            self._begun, self._log_begun = epoch, self._log_bytes()
        if not is_last:
            return
        self._ended = epoch
        # Ranks of a node share a job, which the first one asks for.
        if loader.rank == 0:
            stats = loader.stats()
            total = stats["total"]
            self._note(
                epoch=epoch,
                at=time.monotonic(),
                # What the script printed between these places is of this epoch, and before the
                # first of earlier ones.
                log_begun=self._log_begun,
                log=self._log_bytes(),
                bytes=total["bytes_read"] + total["bytes_between"],
                stall=stats["stall_seconds"],
                successors=stats["successors"],
                cache_bytes=stats["cache_bytes"],
                **{name: total[name] for name in ("reads", "accesses", "hits", "delivered", "reported")},
            )

    def scored(self, score: float) -> None:
        """The script reported a validation score."""
        if self.is_compared:
            self._note(score=score, at=time.monotonic(), within=self._begun != self._ended)

    def _log_bytes(self) -> int:
        log = Path(self._run["log"])
        return log.stat().st_size if log.exists() else 0

    def close(self) -> None:
        """Ends the notes."""
        if self._note_file is not None:
            os.close(self._note_file)
        self._note_file = None

    def _tell(self, name: str, given: Any, default: Any, value: Any) -> None:
        """Remembers an argument that the script gave and that the run replaces by another."""
        if given not in (default, value):
            self._gave_way.append(f"{name}={given!r} of the script gave way to {value!r}")

    def _note(self, **fields: Any) -> None:
        if self._note_file is not None:
            os.write(self._note_file, (json.dumps(fields) + "\n").encode())
