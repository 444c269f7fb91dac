"""`python -m benches.rivals.epoch READER ROOT PROGRAMS WORKERS EPOCHS`: epochs of one reader, in a fresh process.

With `prepare` for WORKERS it makes what the reader reads. The clock starts when the reader's modules are imported and
stops when an epoch's last batch has been touched. The last line that it prints is JSON."""

import importlib
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from benches.rivals import process_tree, whole_tree
from benches.rivals.seen import Seen

BATCH = 256


def main() -> int:
    name, root, programs, workers, *epochs = sys.argv[1:]
    try:
        reader = importlib.import_module(f"benches.rivals.readers.{name}")
    except (ImportError, OSError) as error:
        print(f"does not import: {error}", file=sys.stderr)
        return 1
    if workers == "prepare":
        reader.prepare(Path(root), Path(programs))
        told: dict[str, Any] = {"folder": reader.FOLDER}
    else:
        told = run(reader, Path(root), int(workers), int(epochs[0]))
    print(json.dumps({**told, "version": reader.version(Path(programs))}), flush=True)
    # Nothing that took CPU time hereafter, as taking PyTorch apart does, would be the reader's.
    os._exit(0)


def run(reader: ModuleType, root: Path, workers: int, epochs: int) -> dict[str, Any]:
    """Takes every batch and touches it. Where there is a second epoch, records may be kept in memory for it."""
    # Our parent is whole_tree, below which is all that we start, daemons too.
    tree = os.getppid()
    told = []
    cpu, cpu_before = process_tree.cpu_seconds(tree), whole_tree.cpu_seconds()
    started = time.perf_counter()
    every = reader.epochs(root, workers, BATCH, epochs > 1)
    for _ in range(epochs):
        seen, of_first, first, ended = Seen(), 0, 0.0, 0.0
        for batch in next(every):
            first = first or time.perf_counter()
            for record in batch:
                seen.touch(record)
            of_first = of_first or seen.records
            ended = time.perf_counter()
        now = process_tree.cpu_seconds(tree)
        told.append(
            {
                "seconds": ended - started,
                "first_seconds": first - started,
                "first_records": of_first,
                "cpu_seconds": now - cpu,
                "seen": asdict(seen),
            }
        )
        cpu, started = now, time.perf_counter()
    every.close()
    return {"epochs": told, "cpu_seconds_before": cpu_before}


if __name__ == "__main__":
    sys.exit(main())
