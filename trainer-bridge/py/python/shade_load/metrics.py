"""A Loader's figures for a logger: flat names, numbers only, of the time between two looks."""

from __future__ import annotations

import time
from typing import Any

CAUSES = ("storage", "workers", "plan", "ranks")


class Looks:
    """The figures of the last look, and its time by this process's clock; at first, the Loader's beginning."""

    def __init__(self) -> None:
        self._before: dict[str, Any] | None = None
        self._at = time.monotonic()

    def look(self, now: dict[str, Any]) -> dict[str, float]:
        """The metrics of the time since the last look, from the Loader's `stats()` of this moment."""
        before, began = self._before, self._at
        self._before, self._at = now, time.monotonic()
        return between(before, now, self._at - began)


def between(before: dict[str, Any] | None, now: dict[str, Any], own_seconds: float) -> dict[str, float]:
    """The metrics of the time between two of a Loader's `stats()`; `None`: since it attached.

    `own_seconds` is that time by this process's clock, which a daemon's death does not set back, as it
    does not set back `stall_seconds`.
    """
    rank, total, epoch = now["rank"], now["total"], now["epoch"]
    stalled = now["stall_seconds"] - (before["stall_seconds"] if before else 0)
    if before is not None and before["successors"] != now["successors"]:
        # Another daemon, which counts from its own beginning.
        before = None
    old_rank = before["rank"] if before else dict.fromkeys(rank, 0)
    old_total = before["total"] if before else dict.fromkeys(total, 0)
    seconds = max(rank["attached_ns"] - old_rank["attached_ns"], 1) / 1e9

    def share(name: str) -> float:
        return (rank[name] - old_rank[name]) / 1e9 / seconds

    def rate(*names: str) -> float:
        return sum(total[name] - old_total[name] for name in names) / seconds

    metrics = {
        "wait_share": min(stalled / max(own_seconds, 1e-9), 1.0),
        **{f"wait_{cause}": share(f"{cause}_ns") for cause in CAUSES},
        "ring_full": share("ring_full_ns"),
        "samples_per_s": rate("delivered"),
        "read_mb_per_s": rate("bytes_read", "tier_bytes") / 1e6,
        "distinct_share": epoch["distinct_share"],
    }
    accesses = total["accesses"] - old_total["accesses"]
    if accesses > 0:
        metrics["hit_ratio"] = (total["hits"] - old_total["hits"]) / accesses
    if now["read_latency"] is not None:
        metrics |= {f"{name}_ms": now["read_latency"][f"{name}_us"] / 1e3 for name in ("p50", "p99")}
    return {f"shade/{name}": float(value) for name, value in metrics.items()}
