"""`python -m benches.nodes.live_process TASK`: a training whose ranks sleep where others compute, over
daemons of its own, as a process that the slow store runs.

A rank is a thread, and a node is a daemon with a socket of its own. All ranks end a step together."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy

# It needs no torch, whose import takes seconds.
sys.modules["torch"] = None  # type: ignore[assignment]

from shade_load import Daemon, Loader, Plan, ShadeError  # noqa: E402

from benches.jobs.sleeping_trainer import LEARNING, NOISE_SIGMA, RING_BATCHES  # noqa: E402
from benches.rivals.process_tree import cpu_seconds  # noqa: E402
from studies.slow_store import leave  # noqa: E402

# As `shade-load simulate` has it.
HARDNESS_SIGMA = 1.0
COUNTS = ("accesses", "hits", "prefetched", "reads", "coalesced")


@dataclass(frozen=True)
class Task:
    """One training."""

    dataset: str
    # Bytes of its largest record.
    record_bytes: int
    nodes: int
    # Ranks of a node.
    ranks: int
    # "pads" or "uniform", and how many times as often cached samples are drawn.
    sampler: str
    rep: float
    # Share of the dataset that all caches together hold.
    cache: float
    batch: int
    # Compute time of a sample.
    compute_us: int
    epochs: int
    seed: int
    # Where the figures go.
    result: str

    def write(self, path: Path) -> None:
        """Writes it for `main`."""
        path.write_text(json.dumps(asdict(self)))


class Training:
    """The ranks of a training."""

    def __init__(self, task: Task, sockets: Path) -> None:
        self.task, self.sockets = task, sockets
        self.world = task.nodes * task.ranks
        self.step = Barrier(self.world)
        self._messages: list[bytes] = []
        self._daemons: set[int] = set()
        for node in range(task.nodes):
            (sockets / str(node)).mkdir()

    def run(self) -> list[dict[str, Any]]:
        """Trains. Returns the figures of each epoch, of all ranks together.

        Raises the error of the first rank that fails; the others end, too.
        """
        with ThreadPoolExecutor(self.world) as pool:
            outcomes = [pool.submit(self._rank, rank) for rank in range(self.world)]
        broken = [error for outcome in outcomes if (error := outcome.exception())]
        for error in sorted(broken, key=lambda error: isinstance(error, BrokenBarrierError)):
            raise error
        return [_together(of_ranks) for of_ranks in zip(*(outcome.result() for outcome in outcomes), strict=True)]

    def _rank(self, rank: int) -> list[dict[str, Any]]:
        try:
            loader = self._loader(rank)
            self._daemons.add(loader.daemon_pid)
            # From here on all know all daemons.
            self.step.wait()
            figures = self._epochs(rank, loader)
            leave(loader)
        except BaseException:
            # None waits for this one.
            self.step.abort()
            raise
        return figures

    def _loader(self, rank: int) -> Loader:
        task = self.task
        return Loader(
            task.dataset,
            task.batch,
            cache=f"{100 * task.cache / task.nodes:g}%",
            seed=task.seed,
            rank=rank,
            world_size=self.world,
            plan=Plan(sampler=task.sampler, rep=task.rep),
            daemon=Daemon(
                job="nodes",
                # Its folder says which ranks are on one node.
                socket=self.sockets / str(rank // task.ranks) / "socket",
                # Past the page cache, as it chooses itself on NFS.
                io="direct",
                ring=RING_BATCHES * task.batch * task.record_bytes,
                linger=0.0,
                exchange=self._exchange,
            ),
        )

    def _exchange(self, mine: bytes) -> list[bytes]:
        """Gives the messages of all. Once: there is no second one where no daemon holds anything."""
        self._messages.append(mine)
        self.step.wait()
        return list(self._messages)

    def _epochs(self, rank: int, loader: Loader) -> list[dict[str, Any]]:
        """The figures of each epoch."""
        # A daemon's figures are those of all ranks of its node, and time is that of all.
        tells, is_clock = rank % self.task.ranks == 0, rank == 0
        losses = _Losses(self.task.seed, rank, loader.samples)
        figures = []
        before = _counts(loader)
        for epoch in range(self.task.epochs):
            cpu = self._cpu_seconds() if is_clock else {}
            self.step.wait()
            started = time.perf_counter()
            waits, ends = self._epoch(loader, losses, epoch)
            self.step.wait()
            figure = {"started": started, "seconds": time.perf_counter() - started, "waits": waits, "ends": ends}
            # Meanwhile the others wait in front of the next epoch.
            figure["cpu_seconds"] = {name: self._cpu_seconds()[name] - value for name, value in cpu.items()}
            after = _counts(loader)
            figure["counts"] = {name: after[name] - before[name] if tells else 0 for name in COUNTS}
            figure["latency"] = loader.stats()["read_latency"] if tells else None
            figures.append(figure)
            before = after
        self.step.wait()
        return figures

    def _epoch(self, loader: Loader, losses: _Losses, epoch: int) -> tuple[list[float], list[float]]:
        """Trains one. Returns how long this rank waited for each batch, and when it had computed it."""
        batches = iter(loader)
        waits, ends = [], []
        for _ in range(len(loader)):
            asked = time.perf_counter()
            batch = next(batches)
            came = time.perf_counter()
            ids = numpy.from_dlpack(batch.ids)
            if self.task.sampler != "uniform":
                loader.report(batch, losses.of(epoch, ids))
            wanted = came + len(ids) * self.task.compute_us / 1e6
            # Its place in the ring is free again before the next one is asked for.
            del batch, ids
            time.sleep(max(0.0, wanted - time.perf_counter()))
            waits.append(came - asked)
            ends.append(time.perf_counter())
            self.step.wait()
        # A Loader tells the end of its epoch after the last batch.
        next(batches, None)
        return waits, ends

    def _cpu_seconds(self) -> dict[str, float]:
        """CPU time so far: of these trainers, of their daemons, and of the store that runs this process."""
        daemons = sum(cpu_seconds(pid) for pid in self._daemons)
        with_store = cpu_seconds(os.getppid())
        return {"trainers": time.process_time(), "daemons": daemons, "store": with_store - cpu_seconds(os.getpid())}


class _Losses:
    """Losses as `shade-load simulate` has them: samples differ, reports vary, and all become less."""

    def __init__(self, seed: int, rank: int, samples: int) -> None:
        self._hardness = numpy.exp(HARDNESS_SIGMA * numpy.random.default_rng(seed).normal(size=samples))
        self._noise = numpy.random.default_rng((seed, rank))

    def of(self, epoch: int, ids: numpy.ndarray) -> list[float]:
        """The losses of a batch."""
        noise = self._noise.normal(0.0, NOISE_SIGMA, len(ids))
        losses: list[float] = (self._hardness[ids] * numpy.exp(noise - LEARNING * epoch)).tolist()
        return losses


def _counts(loader: Loader) -> dict[str, int]:
    total = loader.stats()["total"]
    return {name: total[name] for name in COUNTS}


def _together(ranks: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """An epoch's figures of all ranks: counts are sums, a stall is the mean, latencies are each node's."""
    waits, ends = (numpy.array([rank[name] for rank in ranks]) for name in ("waits", "ends"))
    # A step begins when the last rank has ended the one before.
    begun = numpy.append(ranks[0]["started"], ends.max(0)[:-1])
    latencies = [rank["latency"] for rank in ranks if rank["latency"] is not None]
    return {
        "steps": ends.shape[1],
        "seconds": round(ranks[0]["seconds"], 4),
        # The same steps, if no rank had waited for data.
        "computing_seconds": round(float((ends - waits - begun).max(0).sum()), 4),
        "stall_seconds": round(float(waits.sum()) / len(ranks), 4),
        "cpu_seconds": {name: round(value, 3) for name, value in ranks[0]["cpu_seconds"].items()},
        "p50_ms": [round(latency["p50_us"] / 1e3, 2) for latency in latencies],
        "p99_ms": [round(latency["p99_us"] / 1e3, 2) for latency in latencies],
        **{name: sum(rank["counts"][name] for rank in ranks) for name in COUNTS},
    }


def main() -> int:
    """Returns the exit status: 0 done, 1 failed."""
    os.environ.setdefault("SHADE_LOG", "warn")
    task = Task(**json.loads(Path(sys.argv[1]).read_text()))
    result = Path(task.result)
    with tempfile.TemporaryDirectory(dir=result.parent) as sockets:
        try:
            epochs = Training(task, Path(sockets)).run()
        except (OSError, ShadeError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    result.write_text(json.dumps(epochs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
