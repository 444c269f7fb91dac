"""Scores of a training on several nodes: a thread tells each node's daemon what the others have learned.

One rank of each node, its leader, asks its daemon once an epoch is drawn, and sends that to the other
leaders over a group of gloo of their own. Then any rank's state has all scores. The training never
waits for it; after a failure it goes on without.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from . import _native

# Pause between two looks at whether the other leaders have drawn the epoch.
_PAUSE_SECONDS = 0.05
# How long closing waits for the thread, which may be sending.
_CLOSING_SECONDS = 2.0
# The group of leaders that was made last, with the default group and leaders that it is for.
_group: tuple[Any, tuple[int, ...], Any] | None = None


class Leaders:
    """The leaders of all nodes. Every rank of the training makes it, at the same point."""

    def __init__(self, leaders: Sequence[int], rank: int, seconds: float) -> None:
        global _group
        self._distributed: Any = sys.modules["torch.distributed"]
        self._count = len(leaders)
        self.has_this_rank = rank in leaders
        default = self._distributed.group.WORLD
        if _group is None or _group[:2] != (default, tuple(leaders)):
            # For its collectives. Nothing is sent before all leaders are there.
            timeout = timedelta(seconds=seconds)
            group = self._distributed.new_group(
                ranks=list(leaders), backend="gloo", timeout=timeout, group_desc="shade_load scores"
            )
            _group = (default, tuple(leaders), group)
        self._gloo = _group[2]
        self._store = self._distributed.distributed_c10d._get_default_store()
        # Equal on all ranks, and another one for each Loader.
        self._number = self._store.add(f"shade_load/leaders/{rank}", 1)

    def gather(self, occasion: str, mine: bytes, gives_up: Callable[[], bool]) -> list[bytes]:
        """The bytes of all leaders for this one's; nothing if one of them has given up before all had come."""
        store, prefix = self._store, f"shade_load/scores/{self._number}/{occasion}"
        verdict = f"{prefix}/verdict"

        def decide(all_come: bytes) -> None:
            # The first to decide does so for all.
            if store.add(f"{prefix}/decided", 1) == 1:
                store.set(verdict, all_come)

        if store.add(f"{prefix}/count", 1) == self._count:
            decide(b"yes")
        while not store.check([verdict]):
            if gives_up():
                decide(b"no")
            else:
                time.sleep(_PAUSE_SECONDS)
        if store.get(verdict) != b"yes":
            return []
        gathered: list[Any] = [None] * self._count
        self._distributed.all_gather_object(gathered, mine, group=self._gloo)
        return gathered


class ScoreExchange:
    """The thread of a leader's Loader."""

    def __init__(self, session: _native.Session, leaders: Leaders) -> None:
        self._session = session
        self._leaders = leaders
        # Epochs that have begun, each with the number of states loaded before; None at the end.
        self._begun: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._last: tuple[int, int] | None = None
        self._loads = 0
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="shade-scores", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether scores are still exchanged: not after a failure."""
        return self._thread.is_alive()

    def begin(self, epoch: int) -> None:
        """An epoch's first batch has come, so it is drawn."""
        if self._last != (self._loads, epoch):
            self._last = (self._loads, epoch)
            self._begun.put(self._last)

    def restart(self) -> None:
        """A state was loaded, on all ranks."""
        self._loads += 1

    def close(self) -> None:
        self._is_closing = True
        self._begun.put(None)
        self._thread.join(_CLOSING_SECONDS)

    def _run(self) -> None:
        while (begun := self._begun.get()) is not None:
            try:
                self._exchange(begun)
            except Exception as error:
                if not self._is_closing:
                    warnings.warn(
                        f"the nodes' scores were not exchanged, and are no more: {error}. The training goes on. A state that it "
                        f"saves goes back to the ranks of its node only",
                        RuntimeWarning,
                        stacklevel=1,
                    )
                return

    def _exchange(self, begun: tuple[int, int]) -> None:
        loads, epoch = begun
        mine = self._session.tell_scores(epoch)
        # One that goes on to another epoch, or ends, lets the others go, too.
        everyone = self._leaders.gather(f"{loads}/{epoch}", mine, lambda: not self._begun.empty())
        for scores in everyone:
            if scores and scores != mine:
                self._session.take_scores(scores)
