"""`python -m benches.buckets BENCH`: reading from a bucket whose answers take 30 ms, and one in 1,000 a second.

BENCH is `rivals`, an epoch beside other loaders, or `requests`, what an epoch costs. The server is
`shade-test-bucket`, on this machine."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benches.buckets import requests, rivals
from benches.rivals import report
from benches.rivals.rounds import NotMeasured

ROOT = Path(__file__).parents[2]
BENCHES = {"rivals": rivals, "requests": requests}


def main() -> int:
    """Measures, prints a table, writes the record; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benches.buckets", description=__doc__.splitlines()[0])
    benches = parser.add_subparsers(dest="bench", required=True)
    for name, bench in BENCHES.items():
        of_bench = benches.add_parser(name, help=bench.__doc__.splitlines()[0])
        of_bench.add_argument("--programs", type=Path, default=ROOT / "target/release", help="release builds of programs")
        of_bench.add_argument("--out", type=Path, help="file of the record (default: one in benches/record, by date)")
        bench.add_arguments(of_bench)
        of_bench.add_argument("--records", type=int, help=f"how many, of 110 KB (default {bench.RECORDS})")
    arguments = parser.parse_args()
    arguments.programs = arguments.programs.resolve()
    try:
        return _measure(arguments)
    except KeyboardInterrupt:
        return 130
    except (NotMeasured, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _measure(arguments: argparse.Namespace) -> int:
    bench, started = BENCHES[arguments.bench], report.Start()
    with tempfile.TemporaryDirectory(prefix="shade-bucket-") as scratch:
        versions, rows = bench.compare(arguments, Path(scratch))
    command = f"python -m benches.buckets {arguments.bench} --records {arguments.records}"
    result = {**started.finish(versions, rows), "command": command}
    print(report.table(result, bench.details))
    out = arguments.out or ROOT / f"benches/record/{result['date'][:10]}-bucket-{arguments.bench}.json"
    report.write(result, out)
    print(f"written: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
