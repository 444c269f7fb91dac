"""`python -m benches.rivals.one WRITER SOURCE OUT PROGRAMS WORKERS`: one run of one writer, in a fresh process.

The clock starts when the writer's modules are imported. The last line it prints is JSON."""

import importlib
import json
import sys
import time
from pathlib import Path

BORN = time.perf_counter()


def main() -> int:
    name, source, out, programs, workers = sys.argv[1:]
    try:
        writer = importlib.import_module(f"benches.rivals.writers.{name}")
    except (ImportError, OSError) as error:
        print(f"does not import: {error}", file=sys.stderr)
        return 1
    out = Path(out)
    if writer.WANTS_FOLDER:
        out.mkdir()
    started = time.perf_counter()
    writer.pack(Path(source), out, Path(programs), int(workers))
    ended = time.perf_counter()
    told = {"seconds": ended - started, "wall_seconds": ended - BORN, "version": writer.version(Path(programs))}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
