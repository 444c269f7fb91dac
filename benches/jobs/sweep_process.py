"""`python -m benches.jobs.sweep_process TASK RESULT`: starts the trainings of a sweep by a shell loop, as
a process that the slow store runs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benches.jobs.sweep_training import Task

LOOP = 'seed=0; for rate in $3; do seed=$((seed + 1)); "$0" -m "$1" "$2" $rate $seed & done; wait'


def run(task: Task, told: Path) -> dict[str, Any]:
    """Runs the loop. Returns its seconds up to the last training's end, those in which any trained,
    and the trainings' figures."""
    started = time.time()
    rates = " ".join(map(str, task.rates))
    subprocess.run(["sh", "-c", LOOP, sys.executable, "benches.jobs.sweep_training", told, rates], check=True)
    trainings = [json.loads(Path(task.results, f"{seed}.json").read_text()) for seed in range(1, len(task.rates) + 1)]
    # They have files of the store open, so the store outlives them.
    for daemon in {training["daemon_pid"] for training in trainings} - {None}:
        _wait_for(daemon)
    ended = max(training["ended"] for training in trainings)
    trained = ended - min(training["began"] for training in trainings)
    return {"seconds": round(ended - started, 3), "trained_seconds": round(trained, 3), "trainings": trainings}


def _wait_for(process: int) -> None:
    try:
        end = os.pidfd_open(process)
    except ProcessLookupError:
        return
    select.select([end], [], [])
    os.close(end)


def main() -> int:
    """Returns the exit status: 0 done, 1 failed."""
    told, result = map(Path, sys.argv[1:])
    try:
        found = run(Task.read(told), told)
    except OSError as error:
        print(f"error: a training failed: {error}", file=sys.stderr)
        return 1
    result.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
