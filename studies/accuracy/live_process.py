"""`python -m studies.accuracy.live_process TASK`: one live run, as a process that the store runs."""

import json
import os
import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shade_load import ShadeError

from studies.accuracy import recording, training
from studies.accuracy.cells import CELLS
from studies.accuracy.recipes import RECIPES
from studies.slow_store import leave


@dataclass(frozen=True)
class Task:
    """What the process trains."""

    recipe: str
    cell: str
    seed: int
    epochs: int
    # The packed data, as the store shows it.
    train: str
    # The text of a simulated store; None where `train` is slow itself, or is not slow.
    store: str | None
    # Where the run is recorded for `shade-load simulate`; None: it is not.
    trace: str | None
    # Where its figures go.
    result: str

    def write(self, path: Path) -> None:
        """Writes it for `main`."""
        path.write_text(json.dumps(asdict(self)))


def train(task: Task) -> dict[str, Any]:
    """The training through the Loader, without tests of the network. Returns its figures."""
    recipe, cell = RECIPES[task.recipe], CELLS[task.cell]
    # Past the page cache, as the daemon chooses itself on NFS.
    daemon = {"store": task.store, "io": "auto" if task.store else "direct"}
    folder = tempfile.TemporaryDirectory()
    socket = Path(folder.name) / "socket"
    loader = training.loader_of(recipe, cell, task.seed, task.epochs, Path(task.train), socket, **daemon)
    try:
        recorded = nullcontext()
        if task.trace is not None:
            recorded = recording.recorded(Path(task.train), socket, Path(task.trace))
        with recorded:
            run = training.Training(recipe, cell, loader, task.seed, task.epochs)
            cpu_started = time.process_time()
            curve = [{"epoch": epoch, **run.epoch()} for epoch in range(task.epochs)]
            cpu_seconds = time.process_time() - cpu_started
        stats = loader.stats()
        return {
            "dataset_samples": loader.samples,
            "cpu_seconds": round(cpu_seconds, 3),
            "bytes_read": stats["total"]["bytes_read"],
            "hit_ratio": stats["total"]["hit_ratio"],
            **training.here(recipe),
            "options": training.options_of(recipe, cell, loader),
            "daemon": recording.daemon_of(socket),
            # Equal in two runs that were delivered the same samples in the same order.
            "ids_sha256": run.ids.hexdigest(),
            "curve": curve,
        }
    finally:
        leave(loader)
        folder.cleanup()


def main() -> int:
    """Returns the exit status: 0 done, 1 failed."""
    # The store passes SIGTERM on: the daemon is left before the process ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.setdefault("SHADE_LOG", "warn")
    task = Task(**json.loads(Path(sys.argv[1]).read_text()))
    try:
        result = train(task)
    except (OSError, ShadeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    Path(task.result).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
