"""The daemon's reason why a batch does not come."""

from __future__ import annotations

import json
from typing import Any

from . import _native
from ._native import LoaderTimeout, ShadeError

# A running daemon gives a sign of life several times a second; one silent for longer is stuck.
SILENCE_SECONDS = 5.0


def explained(error: LoaderTimeout, session: _native.Session) -> LoaderTimeout:
    """The error with the daemon's own reason, if it answers."""
    silent = session.heartbeat_age
    if silent is None or silent > SILENCE_SECONDS:
        since = "none was ever seen" if silent is None else f"the last was {silent:.1f} s ago"
        return LoaderTimeout(f"{error}; it gives no sign of life: {since}")
    try:
        stats = json.loads(session.stats())
    except ShadeError:
        return error
    if absent := stats["waiting_for_ranks"]:
        reason = f"the epoch starts when ranks {absent} ask for it too"
    elif _ring_is_full(stats["rank"]):
        reason = (
            f"the ring has no room for the next batch beside {stats['rank']['in_ring']} that this training keeps: let go "
            "of batches, or give Daemon(ring=...) more memory"
        )
    elif late := stats["reads_late"]:
        reason = f"{late} reads have had no answer for long, is the store's server up? ({stats['engine']})"
    else:
        reason = f"{stats['reads_submitted']} reads are under way ({stats['engine']})"
    return LoaderTimeout(f"{error}; {reason}")


def _ring_is_full(rank: dict[str, Any] | None) -> bool:
    """Whether a rank that waits has batches in its ring, and no other is on its way."""
    return rank is not None and rank["in_ring"] > 0 and rank["open"] == 0 and rank["waits_for"] is None
