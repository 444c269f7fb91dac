"""Attaches a Loader to its dataset's daemon."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _native
from .daemon import differences
from .indices import Indices


@dataclass(frozen=True)
class Attach:
    """All that a rank needs to attach, except its job's name."""

    dataset: Path
    socket: str | None
    rank: int
    spec: Mapping[str, Any]
    # The table that the sampler "weighted" draws by.
    weights: bytes | None
    # The samples that the job delivers; None: all of the dataset.
    indices: Indices | None
    settings: dict[str, Any]
    program: Path
    timeout: float
    # Whether a daemon that dies is replaced.
    survive: bool
    # How many may die within an hour.
    deaths_max: int

    def __call__(self, job: str, or_free_name: bool) -> _native.Session:
        """Attaches as a rank of `job`, starting a daemon if needed, and warns of other settings.

        With `or_free_name` the daemon takes the next free name if another training has this one.
        """
        daemon: _native.Daemon = {
            "socket": self.socket,
            "binary": str(self.program),
            "settings": json.dumps(self.settings),
            "timeout_seconds": self.timeout,
            "or_free_name": or_free_name,
            "survive": self.survive,
            "deaths_max": self.deaths_max,
        }
        tables = (self.weights, None if self.indices is None else self.indices.data)
        session = _native.Session.connect(str(self.dataset), job, self.rank, json.dumps(self.spec), daemon, tables)
        try:
            self._compare(session)
        except BaseException:
            # The error, or a warning that is one, would keep the rank.
            session.close()
            raise
        return session

    def _compare(self, session: _native.Session) -> None:
        """Refuses a mask of another length, and warns of other settings and of samples that are left out."""
        if self.indices is not None:
            self.indices.check(session.samples)
        if (present := session.samples_present) != session.samples:
            warnings.warn(
                f"the dataset was added to while it is in use: this Loader gets the {session.samples} samples that the daemon "
                f"(process {session.daemon_pid}) serves, as the trainings that are attached to it do, and not all {present}. "
                f"Those come once these trainings have left, or with Daemon(socket=...)",
                RuntimeWarning,
                stacklevel=5,
            )
        if found := differences(self.settings, json.loads(session.settings), trains=self.spec["admit"]):
            warnings.warn(
                f"the daemon of this dataset (process {session.daemon_pid}) has other settings, which apply to all its jobs: "
                f"{'; '.join(found)}. Give all Loaders on a dataset the same settings, or this one a daemon of "
                f"its own with Daemon(socket=...)",
                RuntimeWarning,
                stacklevel=5,
            )
