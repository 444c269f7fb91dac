"""`python -m benches.rivals.read_process ROW ROOT PROGRAMS WHAT`: epochs of one reader, in a fresh
process.

WHAT is `prepare`, which makes the folder that it reads, or the number of epochs. The clock starts
when the reader's modules are imported and stops when an epoch's last batch has been touched. The
last line that it prints is JSON."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benches.rivals import process_tree, table, with_cpu_time
from benches.rivals.delivered import Delivered
from benches.rivals.kinds import BATCH
from benches.rivals.systems import RecordEpochs


def main() -> int:
    name, root, programs, what = sys.argv[1:]
    row = table.READ[name]
    try:
        read = table.load(row.run)
    except (ImportError, OSError) as error:
        print(f"does not import: {error}", file=sys.stderr)
        return 1
    if what == "prepare":
        result: dict[str, Any] = {"folder": table.prepare(row, Path(root), Path(programs))}
    else:
        result = run(read, Path(root), row.workers, int(what))
    print(json.dumps({**result, "version": table.version(row, Path(programs))}), flush=True)
    # CPU time from here on, such as for taking PyTorch apart, is not the reader's.
    os._exit(0)


def run(read: Callable[..., RecordEpochs], root: Path, workers: int, epochs: int) -> dict[str, Any]:
    """Takes every batch and touches it. Where there is a second epoch, records may be kept in
    memory for it."""
    # Our parent is with_cpu_time. All that we start, daemons too, is below it.
    tree = os.getppid()
    timed = []
    cpu, cpu_before = process_tree.cpu_seconds(tree), with_cpu_time.cpu_seconds()
    started = time.perf_counter()
    every = read(root, workers, BATCH, epochs > 1)
    for _ in range(epochs):
        delivered, of_first, first, ended = Delivered(), 0, 0.0, 0.0
        for batch in next(every):
            first = first or time.perf_counter()
            for record in batch:
                delivered.add(record)
            of_first = of_first or delivered.records
            ended = time.perf_counter()
        now = process_tree.cpu_seconds(tree)
        timed.append(
            {
                "seconds": ended - started,
                "first_seconds": first - started,
                "first_records": of_first,
                "cpu_seconds": now - cpu,
                "delivered": asdict(delivered),
            }
        )
        cpu, started = now, time.perf_counter()
    every.close()
    return {"epochs": timed, "cpu_seconds_before": cpu_before}


if __name__ == "__main__":
    sys.exit(main())
