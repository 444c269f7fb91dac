"""`python -m benches.jobs.sleeping_trainer TASK`: one training of several, which sleeps where others
compute, and keeps a ledger.

It says in lines of JSON when it is attached, and what it was given; it begins at a line, and leaves
at the end of its input."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy

# It needs no torch, whose import would cost each trainer seconds.
sys.modules["torch"] = None  # type: ignore[assignment]

from shade_load import Batch, Daemon, Loader, Plan  # noqa: E402
from shade_load.transforms import RandomHorizontalFlip, RandomResizedCrop  # noqa: E402

from benches.jobs.ledger import RATIO, SCALE, Ledger  # noqa: E402

SIDE = 160
BATCH = 16
# As `shade-load simulate` has them.
RING_BATCHES = 8
CORRELATION = 0.7
LEARNING, NOISE_SIGMA = 0.15, 0.5


@dataclass(frozen=True)
class Task:
    """One training."""

    # The packed data as the store shows it.
    dataset: str
    # The daemon's socket, and its cache.
    socket: str
    cache: str
    job: int
    group: str | None
    # Compute time of a sample.
    compute_us: int
    # None: until it is killed.
    epochs: int | None
    # The first epoch that counts.
    skip_epochs: int

    def text(self) -> str:
        """The task as an argument."""
        return json.dumps(asdict(self))


class Trainer:
    """The training under way."""

    def __init__(self, task: Task, loader: Loader) -> None:
        self.task, self.loader = task, loader
        self.ledger = Ledger(loader.samples)
        self.stall = self.compute = 0.0
        # As of the simulator's jobs: a sample's difficulty in two of them is correlated.
        of_all, of_one = (numpy.random.default_rng(seed).normal(size=loader.samples) for seed in (0, 1 + task.job))
        self._hardness = numpy.exp(CORRELATION**0.5 * of_all + (1 - CORRELATION) ** 0.5 * of_one)
        self._random = numpy.random.default_rng(1000 + task.job)

    def epoch(self, number: int) -> None:
        """Trains one."""
        asked = time.perf_counter()
        batches: Iterator[Batch] = iter(self.loader)
        for batch in batches:
            came = time.perf_counter()
            self.stall += came - asked
            self._compute(number, batch, came)
            # Its place in the ring is free again before the next one is asked for.
            del batch
            asked = time.perf_counter()
            self.compute += asked - came
        self.stall += time.perf_counter() - asked
        plan = self.loader.stats()["epoch"]
        self.ledger.end_epoch(plan["planned"], plan["distinct"])

    def _compute(self, epoch: int, batch: Batch, came: float) -> None:
        """Takes as long as computing would, with the ledger's own work."""
        ids, labels, images = (numpy.from_dlpack(column) for column in (batch.ids, batch.labels, batch.images))
        self.ledger.add(ids, labels, images)
        noise = self._random.normal(0.0, NOISE_SIGMA, len(ids))
        losses = self._hardness[ids] * numpy.exp(noise - LEARNING * epoch)
        self.loader.report(batch, losses.tolist())
        left = came + len(ids) * self.task.compute_us / 1e6 - time.perf_counter()
        time.sleep(max(0.0, left))

    def train(self) -> dict[str, Any]:
        """Trains all epochs. Returns the figures, those of the epochs that count apart."""
        before: dict[str, Any] = {"stall": 0.0, "compute": 0.0, "total": self.loader.stats()["total"]}
        epochs = self.task.epochs
        number = 0
        while epochs is None or number < epochs:
            if number == self.task.skip_epochs:
                before = {"stall": self.stall, "compute": self.compute, "total": self.loader.stats()["total"]}
            self.epoch(number)
            number += 1
        after = self.loader.stats()["total"]
        counted = {name: after[name] - before["total"][name] for name in ("accesses", "hits", "reads", "coalesced", "bytes_read")}
        return {
            "job": self.loader.job,
            "stall_seconds": self.stall - before["stall"],
            "compute_seconds": self.compute - before["compute"],
            "reads_in_all": after["reads"],
            "records_in_all": after["reads"] + after["coalesced"],
            **counted,
            "ledger": self.ledger.result(),
        }


def main() -> int:
    """Returns the exit status."""
    task = Task(**json.loads(sys.argv[1]))
    with Loader(
        Path(task.dataset),
        BATCH,
        decode=[RandomResizedCrop(SIDE, SCALE, RATIO), RandomHorizontalFlip()],
        cache=task.cache,
        seed=1000 * task.job,
        preset="clairvoyant",
        plan=Plan(group=task.group),
        daemon=Daemon(
            socket=task.socket,
            # Past the page cache, as it chooses itself on NFS.
            io="direct",
            ring=RING_BATCHES * BATCH * 3 * SIDE**2,
            linger=0.0,
        ),
    ) as loader:
        trainer = Trainer(task, loader)
        print(json.dumps({"daemon_pid": loader.daemon_pid}), flush=True)
        if sys.stdin.readline():
            print(json.dumps(trainer.train()), flush=True)
            sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
