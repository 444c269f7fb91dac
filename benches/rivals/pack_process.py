"""`python -m benches.rivals.pack_process ROW SOURCE OUT PROGRAMS WORKERS`: packs once, in a fresh
process.

The clock starts when the packer's modules are imported. The last line that it prints is JSON."""

import json
import sys
import time
from pathlib import Path

from benches.rivals import table

BORN = time.perf_counter()


def main() -> int:
    name, source, out, programs, workers = sys.argv[1:]
    row = table.PACK[name]
    try:
        pack = table.load(row.run)
    except (ImportError, OSError) as error:
        print(f"does not import: {error}", file=sys.stderr)
        return 1
    started = time.perf_counter()
    pack(Path(source), Path(out), Path(programs), int(workers))
    ended = time.perf_counter()
    version = table.version(row, Path(programs))
    print(json.dumps({"seconds": ended - started, "wall_seconds": ended - BORN, "version": version}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
