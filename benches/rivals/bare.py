"""`python -m benches.rivals.bare ROOT WORKERS KIND`: the decoder alone, which bounds all who decode whole images.

All files are in this process's memory. So many threads decode each of them whole, the fastest way: no reading, no crop,
no resizing, no batch. The last line that it prints is JSON."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benches.rivals.decoders import fast
from benches.rivals.kinds import KINDS
from benches.rivals.whole_tree import cpu_seconds
from benches.rivals.writers.listing import read, samples


def main() -> int:
    root, workers, kind = Path(sys.argv[1]), int(sys.argv[2]), KINDS[sys.argv[3]]
    records = [read(path) for path, _label in samples(root / "files")]

    def decode(part: list[bytes]) -> None:
        for record in part:
            fast.decode_whole(record, kind)

    parts = [records[worker::workers] for worker in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        cpu, started = cpu_seconds(), time.perf_counter()
        list(pool.map(decode, parts))
        seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds() - cpu, "version": fast.version()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
