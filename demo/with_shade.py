"""The same training with shade: a Loader over the packed dataset."""

import os
from collections.abc import Iterator
from typing import Any

import torch
from shade_load import Batch, Daemon, Loader, Plan

from demo.augmentation import for_training
from demo.task import ECHO, Task
from studies.slow_store import leave

# Little beside the dataset, as where the data is larger than memory.
RING_BATCHES = 10


class Shade:
    """Batches of a Loader. Its daemon ends with it."""

    def __init__(self, task: Task, batch_size: int) -> None:
        self._loader = Loader(
            task.train,
            batch_size,
            decode=for_training(task.side, task.has_side),
            channels_last=True,
            cache=task.cache,
            seed=task.seed,
            plan=Plan(sampler="echo") if task.run == ECHO else Plan(),
            daemon=Daemon(
                store=f"latency={task.delay_us}us,depth={task.at_once}" if task.simulated else None,
                # Past the page cache, as it chooses itself on NFS.
                io="auto" if task.simulated else "direct",
                ring=RING_BATCHES * batch_size * 3 * task.side**2,
                job=f"demo-{os.getpid()}",
                linger=0.0,
            ),
        )
        self.classes = len(self._loader.classes)
        self.sampler: str = self._loader.state_dict()["job"]["plan"]["sampler"]

    def epoch(self) -> Iterator[Batch]:
        """An epoch's batches."""
        return iter(self._loader)

    def planned(self) -> int:
        """Samples of the epoch that has begun."""
        return self._loader.stats()["epoch"]["planned"]

    def report(self, batch: Batch, losses: torch.Tensor) -> None:
        """Passes the losses on, for the next epoch's draws."""
        self._loader.report(batch, losses)

    def counts(self) -> dict[str, Any]:
        """Figures of the last epoch."""
        counts = self._loader.stats()["epoch"]
        return {
            "read MB": counts["bytes_read"] / 1e6,
            "hit ratio": counts["hit_ratio"],
            "distinct": counts["distinct_share"],
        }

    def close(self) -> None:
        """Leaves the daemon, which ends."""
        leave(self._loader)
