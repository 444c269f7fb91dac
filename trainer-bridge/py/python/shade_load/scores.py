"""Scores of a training on several nodes: a thread tells each node's daemon what the others have learned.

One rank of each node, its leader, asks its daemon once an epoch is drawn, and sends that to the other
leaders over a group of gloo of their own. Then any rank's state has all scores. The training never
waits for it; after a failure it goes on without.

Where nodes pool their scores, to draw one plan from them, it is before an epoch is drawn. Each epoch
waits for it, and a failure ends the training.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from queue import SimpleQueue
from typing import Any

from . import _native
from ._native import ShadeError

# Pause between two looks at whether the other leaders have drawn the epoch.
_PAUSE_SECONDS = 0.05
# How long closing waits for the thread, which may be sending.
_CLOSING_SECONDS = 2.0
# How long two leaders wait for different occasions before that is an error.
_APART_SECONDS = 5.0
# How long a state waits for the scores of other nodes, which come soon after an epoch has begun.
SCORES_SECONDS = 5.0


class Leaders:
    """The leaders of all nodes. Every rank of the training makes it, at the same point."""

    def __init__(self, leaders: Sequence[int], rank: int, seconds: float, job: Mapping[str, Any]) -> None:
        # Whether each epoch waits for what the leaders exchange.
        self.pools = _native.pools_scores(json.dumps(job))
        self._distributed: Any = sys.modules["torch.distributed"]
        self._leaders, self._rank = list(leaders), rank
        self.has_this_rank = rank in leaders
        # For its collectives. Nothing is sent before all leaders are there. It is of one Loader:
        # their threads gather in any order.
        self._gloo = self._distributed.new_group(
            ranks=list(leaders), backend="gloo", timeout=timedelta(seconds=seconds), group_desc="shade_load scores"
        )
        self._store = self._distributed.distributed_c10d._get_default_store()
        # Equal on all ranks, and another one for each Loader.
        number = self._store.add(f"shade_load/leaders/{rank}", 1)
        self._prefix = f"shade_load/scores/{number}"
        self._warned = False

    def has_failed(self) -> bool:
        """Whether a leader has failed, after which nothing is exchanged."""
        return self._store.check([f"{self._prefix}/failed"])

    def fail(self, text: str) -> None:
        """Lets the others know that this one exchanges nothing any more, and why: the first reason counts."""
        if self._store.add(f"{self._prefix}/failures", 1) == 1:
            self._store.set(f"{self._prefix}/failed", text.encode())

    def check(self) -> None:
        """Raises what ends a training whose epochs wait for the scores of all nodes."""
        if self.pools and self.has_failed():
            text = self._store.get(f"{self._prefix}/failed").decode()
            raise ShadeError(f"the next epoch is drawn from the scores of all nodes, which were not exchanged: {text}")

    def wait(self, is_missing: Callable[[], bool]) -> None:
        """Waits until the other nodes have told their scores, but not for long."""
        deadline = time.monotonic() + SCORES_SECONDS
        while is_missing() and not self.has_failed():
            if time.monotonic() < deadline:
                time.sleep(SCORES_SECONDS / 100)
                continue
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"the other nodes' scores did not come within {SCORES_SECONDS:g} s: this state goes back to the ranks of "
                    f"this node only",
                    RuntimeWarning,
                    stacklevel=3,
                )
            return

    def leave(self) -> None:
        """Ends the group, if torch.distributed has not ended before, or begun anew."""
        if self._distributed.is_initialized():
            with suppress(ValueError):
                self._distributed.destroy_process_group(self._gloo)

    def gather(self, occasion: str, mine: tuple[bytes, bytes], gives_up: Callable[[], bool]) -> list[tuple[bytes, bytes]]:
        """What all leaders have for this one's; nothing if one of them has given up before all had come."""
        store, prefix = self._store, f"{self._prefix}/{occasion}"
        verdict = f"{prefix}/verdict"

        def decide(all_come: bytes) -> None:
            # The first to decide does so for all.
            if store.add(f"{prefix}/decided", 1) == 1:
                store.set(verdict, all_come)

        if store.add(f"{prefix}/count", 1) == len(self._leaders):
            decide(b"yes")
        self._say_where(occasion)
        apart_since = time.monotonic()
        while not store.check([verdict]):
            if self.has_failed():
                raise ShadeError("another node could not")
            if gives_up():
                decide(b"no")
                continue
            time.sleep(_PAUSE_SECONDS)
            if not self.pools:
                continue
            if (apart := self._apart(occasion)) is None:
                apart_since = time.monotonic()
            elif time.monotonic() - apart_since > _APART_SECONDS:
                raise ShadeError(apart)
        self._say_where("")
        if store.get(verdict) != b"yes":
            return []
        gathered: list[Any] = [None] * len(self._leaders)
        self._distributed.all_gather_object(gathered, mine, group=self._gloo)
        return gathered

    def _say_where(self, occasion: str) -> None:
        self._store.set(f"{self._prefix}/at/{self._rank}", occasion.encode())

    def _apart(self, occasion: str) -> str | None:
        """Why the leaders will not meet: all wait, and one of them for another occasion."""
        for rank in self._leaders:
            key = f"{self._prefix}/at/{rank}"
            other = self._store.get(key).decode() if self._store.check([key]) else ""
            if other not in ("", occasion):
                here, there = occasion.split("/"), other.split("/")
                return (
                    f"the nodes have gone apart: rank {self._rank} waits for epoch {here[2]} after {here[0]} loaded states, and "
                    f"rank {rank} for epoch {there[2]} after {there[0]}: let all ranks load the state that one of them saved, and "
                    f"give all the same epochs"
                )
        return None


class ScoreExchange:
    """The thread of a leader's Loader."""

    def __init__(self, session: _native.Session, leaders: Leaders) -> None:
        self._session = session
        self._leaders = leaders
        # Epochs that have begun, each with the numbers of states loaded and epochs begun before,
        # and what tells the last of these states. At the end None.
        self._begun: SimpleQueue[tuple[int, int, int, bytes] | None] = SimpleQueue()
        self._last: tuple[int, int] | None = None
        self._loads = self._visits = 0
        # Number of the epochs begun of which the last has given its first batch.
        self._arrived = 0
        # Tells the state that was loaded last.
        self._state = b""
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="shade-scores", daemon=True)
        self._thread.start()

    def start(self, epoch: int) -> None:
        """An epoch is asked for."""
        if self._leaders.pools:
            self._begin(epoch)

    def arrive(self, epoch: int) -> None:
        """An epoch's first batch has come, so it is drawn."""
        if self._leaders.pools:
            self._arrived = self._visits
        else:
            self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        if self._last != (self._loads, epoch):
            self._last = (self._loads, epoch)
            self._begun.put((self._loads, self._visits, epoch, self._state))
            self._visits += 1

    def restart(self, state: bytes) -> None:
        """A state was loaded, on all ranks."""
        self._loads += 1
        self._visits = self._arrived = 0
        self._state = sha256(state).digest()

    def close(self) -> None:
        self._is_closing = True
        self._begun.put(None)
        self._thread.join(_CLOSING_SECONDS)
        if not self._thread.is_alive():
            self._leaders.leave()

    def _run(self) -> None:
        while (begun := self._begun.get()) is not None:
            try:
                self._exchange(begun)
            except Exception as error:
                with suppress(Exception):
                    self._leaders.fail(str(error))
                if not self._is_closing and not self._leaders.pools:
                    warnings.warn(
                        f"the nodes' scores were not exchanged, and are no more: {error}. The training goes on. A state that it "
                        f"saves goes back to the ranks of its node only",
                        RuntimeWarning,
                        stacklevel=1,
                    )
                return

    def _exchange(self, begun: tuple[int, int, int, bytes]) -> None:
        loads, visits, epoch, state = begun

        def gives_up() -> bool:
            return not self._begun.empty() or self._loads != loads

        mine = self._session.tell_scores(epoch)
        while self._leaders.pools and not mine:
            # Not all ranks here want it yet, or it goes on, as after a state was loaded.
            if gives_up() or self._arrived > visits:
                return
            time.sleep(_PAUSE_SECONDS)
            mine = self._session.tell_scores(epoch)
        # One that goes on to another epoch, or ends, lets the others go, too.
        everyone = self._leaders.gather(f"{loads}/{visits}/{epoch}", (state, mine), gives_up)
        if self._leaders.pools and any(of_other != state for of_other, _ in everyone):
            raise ShadeError("the nodes have loaded different states: let all ranks load the state that one of them saved")
        for _, scores in everyone:
            if scores and scores != mine:
                self._session.take_scores(scores)
