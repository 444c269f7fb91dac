"""Why a batch does not come: whether the wait goes on, and the daemon's own reason if not."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

from . import _native
from ._native import LoaderTimeout, ShadeError

# A running daemon gives a sign of life several times a second; one silent for longer is stuck.
SILENCE_SECONDS = 5.0


class Patience:
    """How long a Loader waits for batches: `Daemon.timeout` bounds the wait for the daemon."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # Raises what ends the wait, if something else than the daemon may.
        self.check: Callable[[], None] | None = None
        self._warned_of_ranks = False

    def next_batch(self, session: _native.Session, start: int) -> _native.Batch | None:
        """The next batch of the epoch with this start, or none at its end.

        A rank that is attached and has not asked for the epoch is no fault: the wait for it goes on,
        and a warning says so once.

        Raises: LoaderTimeout: Nothing came, for another reason.
        """
        while True:
            try:
                return session.next(self.seconds, start, self.check)
            except LoaderTimeout as error:
                stats = _stats(error, session)
                if not (late := _late_ranks(stats, session.job)):
                    raise LoaderTimeout(f"{error}; {_reason(stats, session.job)}") from None
                if not self._warned_of_ranks:
                    self._warned_of_ranks = True
                    warnings.warn(
                        f"{error}; the epoch starts when ranks {late} ask for it too: they are attached, and perhaps validate "
                        f"or save. This rank goes on waiting for them, and does not say so again",
                        RuntimeWarning,
                        stacklevel=4,
                    )


def _stats(error: LoaderTimeout, session: _native.Session) -> dict[str, Any]:
    """The daemon's figures. A daemon that gives no sign of life is the reason itself."""
    silent = session.heartbeat_age
    if silent is None or silent > SILENCE_SECONDS:
        since = "none was ever seen" if silent is None else f"the last was {silent:.1f} s ago"
        raise LoaderTimeout(f"{error}; it gives no sign of life: {since}") from None
    try:
        stats: dict[str, Any] = json.loads(session.stats())
    except LoaderTimeout as unanswered:
        raise LoaderTimeout(f"{error}; {unanswered}") from None
    return stats


def _ranks_here(stats: dict[str, Any], job: str) -> dict[int, str | None]:
    """The job's ranks that are attached to the daemon, as far as it tells, and what each waits for."""
    ours = (told["by_rank"] for told in stats["jobs"] if told["name"] == job)
    return {rank["rank"]: rank["waits_for"] for rank in next(ours, [])}


def _late_ranks(stats: dict[str, Any], job: str) -> list[int]:
    """The ranks that the epoch waits for, if all of them live and none asks for another epoch."""
    waiting: list[int] = stats["waiting_for_ranks"]
    here = _ranks_here(stats, job)
    is_late = stats["ranks_to_attach"] == 0 and all(here.get(rank) != "ranks" for rank in waiting)
    return waiting if is_late else []


def _reason(stats: dict[str, Any], job: str) -> str:
    here, waiting = _ranks_here(stats, job), stats["waiting_for_ranks"]
    if to_attach := stats["ranks_to_attach"]:
        absent = [rank for rank in waiting if rank not in here]
        named = f"ranks {absent}" if absent else f"{to_attach} ranks"
        return f"the epoch starts when {named} ask for it too, which are not attached: they did not come, or have ended"
    if waiting:
        return f"the epoch starts when ranks {waiting} ask for it too, but they wait for another epoch: give all ranks the same"
    if nodes := stats["waiting_for_scores_of"]:
        return (
            f"the epoch is drawn from the scores of all nodes, and those of ranks {nodes} have not come: they have ended, or "
            f"validate or save; Daemon(timeout=...) is how long they may"
        )
    rank = stats["rank"] or {"waits_for": "storage"}
    # It has batches in its ring, and no other is on its way.
    if rank["waits_for"] is None and rank["in_ring"] > 0 and rank["open"] == 0:
        return (
            f"the ring has no room for the next batch beside {rank['in_ring']} that this training keeps: let go "
            "of batches, or give Daemon(ring=...) more memory"
        )
    if late := stats["reads_late"]:
        return f"{late} reads have had no answer for long, is the store's server up? ({stats['engine']})"
    if rank["waits_for"] == "workers":
        return "its records are there, and the daemon's workers have not filled it yet: they are busy, or have no processor"
    if rank["waits_for"] == "plan":
        return "the daemon has not drawn the epoch's plan yet, or not begun the batch"
    return f"{stats['reads_submitted']} reads are under way ({stats['engine']})"
