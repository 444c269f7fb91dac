"""Attaches a Loader to its daemon, under the job's name or under a free one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _native
from ._native import RankTaken
from .daemon import differences, serve_arguments
from .ranks import default_job, may_be_one_of_several

# Trainings of one user on one dataset at once. Each taken name costs a second.
NAMES_MAX = 16


@dataclass(frozen=True)
class Attach:
    """All that a rank needs to attach, except its job's name."""

    dataset: Path
    socket: str | None
    rank: int
    spec: Mapping[str, Any]
    # The table that the sampler "weighted" draws by.
    weights: bytes | None
    settings: dict[str, str]
    program: Path
    timeout: float

    def __call__(self, job: str) -> _native.Session:
        """Attaches to the daemon of `job`, starting one if needed, and warns of other settings."""
        daemon: _native.Daemon = {
            "socket": self.socket,
            "binary": str(self.program),
            "arguments": serve_arguments(self.settings, self.dataset, job, self.socket),
            "settings": list(self.settings.items()),
            "timeout_seconds": self.timeout,
        }
        session = _native.Session.connect(str(self.dataset), job, self.rank, self.spec, daemon, self.weights)
        if found := differences(self.settings, dict(session.settings)):
            warnings.warn(
                f"the daemon of job {job!r} (process {session.daemon_pid}) was started with other settings, which apply: "
                f"{'; '.join(found)}. Give all Loaders of a job the same settings, or this one another Daemon(job=...)",
                RuntimeWarning,
                stacklevel=3,
            )
        return session

    def by_free_name(self, suffix: str, has_own_socket: bool) -> tuple[str, _native.Session]:
        """Attaches under the default name, or, with one rank, under a free one if that is taken."""
        world_size = self.spec["world_size"]
        first = default_job(world_size)
        try:
            return first + suffix, self(first + suffix)
        except RankTaken:
            # Ranks of one training need the same name. A socket's daemon serves one job.
            if world_size > 1 or has_own_socket or may_be_one_of_several():
                raise
        for number in range(2, NAMES_MAX + 1):
            job = f"{first}-{number}{suffix}"
            try:
                session = self(job)
            except RankTaken:
                continue
            warnings.warn(
                f"another training has job {first + suffix!r} on this dataset: this Loader is job {job!r}, with a daemon and a "
                f"cache of its own. Name it with Daemon(job=...), or close the other Loader if it is yours",
                RuntimeWarning,
                stacklevel=3,
            )
            return job, session
        return first + suffix, self(first + suffix)
