"""`python -m benches.jobs.live_process TASK`: several trainers side by side, as a process that the
slow store runs. Measures their daemons."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benches.jobs import sleeping_trainer
from benches.rivals.process_tree import cpu_seconds

# The one that is stopped or killed is in its first epoch then.
ENDED_AFTER_SECONDS = 1.0


@dataclass(frozen=True)
class Task:
    """Jobs that train at the same time."""

    dataset: str
    jobs: int
    # Whether each has a daemon, and its part of the cache. Else they share one.
    separate: bool
    group: bool
    # Share of the dataset that all caches together hold.
    cache: float
    compute_us: int
    epochs: int
    skip_epochs: int
    # What else there is: a job that is "greedy", so takes batches as fast as it can, or one that is
    # "stopped" or "killed" once it has begun. It is not among the results.
    beside: str | None
    # Where the figures go.
    result: str

    def write(self, path: Path) -> None:
        """Writes it for `main`."""
        path.write_text(json.dumps(asdict(self)))

    def trainers(self, sockets: Path) -> list[sleeping_trainer.Task]:
        """Those that end by themselves."""
        share = self.cache / self.jobs if self.separate else self.cache
        return [
            sleeping_trainer.Task(
                dataset=self.dataset,
                socket=str(sockets / (str(job) if self.separate else "0")),
                cache=f"{100 * share:g}%",
                job=job,
                group="sweep" if self.group else None,
                compute_us=self.compute_us,
                epochs=self.epochs,
                skip_epochs=self.skip_epochs,
            )
            for job in range(self.jobs)
        ]


class Trainer:
    """A trainer's process."""

    def __init__(self, task: sleeping_trainer.Task) -> None:
        command = [sys.executable, "-m", sleeping_trainer.__name__, task.text()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def heard(self) -> dict[str, Any]:
        """What it says next.

        Raises:
            ChildProcessError: It has ended; it has said why.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ChildProcessError(f"a trainer ended with status {self._process.wait()}")
        return json.loads(line)

    def begin(self) -> None:
        """It trains from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """It does nothing from now on."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """It ends now."""
        self._process.kill()
        self._process.communicate()

    def leave(self) -> None:
        """It leaves its daemon, and ends."""
        self._process.communicate()


def run(task: Task, sockets: Path) -> dict[str, Any]:
    """Trains all jobs. Returns their figures, and the CPU seconds that their daemons took for it."""
    tasks = task.trainers(sockets)
    if task.beside is not None:
        compute_us = 0 if task.beside == "greedy" else task.compute_us
        tasks.append(replace(tasks[0], job=task.jobs, compute_us=compute_us, epochs=None))
    trainers = [Trainer(of_job) for of_job in tasks]
    try:
        daemons = {trainer.heard()["daemon_pid"] for trainer in trainers}
        before = {pid: cpu_seconds(pid) for pid in daemons}
        for trainer in trainers:
            trainer.begin()
        if task.beside in ("stopped", "killed"):
            time.sleep(ENDED_AFTER_SECONDS)
            if task.beside == "stopped":
                trainers[-1].stop()
            else:
                trainers[-1].kill()
        results = [trainer.heard() for trainer in trainers[: task.jobs]]
        used = sum(cpu_seconds(pid) - before[pid] for pid in daemons)
        # They have files of the store open, so the store outlives them.
        ends = [os.pidfd_open(pid) for pid in daemons]
        for trainer in trainers[: task.jobs]:
            trainer.leave()
    finally:
        for trainer in trainers:
            trainer.kill()
    for end in ends:
        select.select([end], [], [])
        os.close(end)
    return {"trainers": results, "daemons": len(daemons), "daemon_cpu_seconds": round(used, 3)}


def main() -> int:
    """Returns the exit status: 0 done, 1 failed."""
    os.environ.setdefault("SHADE_LOG", "warn")
    task = Task(**json.loads(Path(sys.argv[1]).read_text()))
    with tempfile.TemporaryDirectory() as sockets:
        try:
            result = run(task, Path(sockets))
        except (OSError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    Path(task.result).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
