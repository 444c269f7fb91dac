"""An exchange of bytes between all ranks of a training, through torch.distributed.

A rank that never comes is named on all others, whatever carries the bytes: the ranks first count
each other in the store with which torch.distributed was initialised. Then the bytes travel in one
all-gather over gloo. A group of NCCL is not used: its collectives need one order on all ranks, which
the training decides.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ._native import LoaderTimeout

# Gives the bytes of all ranks for this rank's bytes, on every rank.
Exchange = Callable[[bytes], list[bytes]]

# The first and the longest pause between two looks into the store.
_PAUSES_SECONDS = (0.005, 0.5)
# The group of gloo for a default group of another backend, with that one.
_own_group: tuple[Any, Any] | None = None


def torch_exchange(rank: int, world_size: int, seconds: float) -> Exchange | None:
    """The exchange over torch.distributed, if it is initialised with this rank and world size.

    It ends with LoaderTimeout if a rank has not come after `seconds`.
    """
    # Not imported here: if a process group is initialised, the module is imported.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    if (distributed.get_rank(), distributed.get_world_size()) != (rank, world_size):
        return None

    def exchange(mine: bytes) -> list[bytes]:
        absent = _absent(distributed.distributed_c10d._get_default_store(), rank, world_size, seconds)
        if absent:
            raise LoaderTimeout(_never_came(absent, world_size, seconds))
        gathered: list[Any] = [None] * world_size
        distributed.all_gather_object(gathered, mine, group=_gloo(distributed, seconds))
        return gathered

    return exchange


def _absent(store: Any, rank: int, world_size: int, seconds: float) -> list[int]:
    """Waits until all ranks have called this as often as this one. Returns those that have not.

    All ranks return the same, also one that comes too late: the first to decide does so for all.
    """
    calls = store.add(f"shade_load/calls/{rank}", 1)
    prefix = f"shade_load/{calls}"
    verdict = f"{prefix}/verdict"

    def decide(absent: list[int]) -> None:
        if store.add(f"{prefix}/decided", 1) == 1:
            store.set(verdict, json.dumps(absent))

    store.set(f"{prefix}/rank/{rank}", b"here")
    if store.add(f"{prefix}/count", 1) == world_size:
        decide([])
    deadline = time.monotonic() + seconds
    pause, longest = _PAUSES_SECONDS
    while not store.check([verdict]) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, longest)
    if not store.check([verdict]):
        decide([other for other in range(world_size) if not store.check([f"{prefix}/rank/{other}"])])
    absent: list[int] = json.loads(store.get(verdict))
    return absent


def _never_came(absent: list[int], world_size: int, seconds: float) -> str:
    named = ", ".join(map(str, absent[:20])) + (", ..." if len(absent) > 20 else "")
    return (
        f"rank{'s' if len(absent) > 1 else ''} {named} of {world_size} made no Loader for training within {seconds:g} s "
        f"(a fifth of Daemon(timeout=...)), and this one waits for all of them: every rank of a training makes it, in "
        f"the same order. A Loader of this rank alone needs rank=0, world_size=1; one that validates, train=False. "
        f"Daemon(exchange=None) does without the others"
    )


def _gloo(distributed: Any, seconds: float) -> Any:
    """A group with the backend gloo: the default one, or one of our own."""
    global _own_group
    default = distributed.group.WORLD
    if distributed.get_backend() == "gloo":
        return default
    if _own_group is None or _own_group[0] is not default:
        group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=seconds), group_desc="shade_load")
        _own_group = (default, group)
    return _own_group[1]
