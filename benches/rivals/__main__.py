"""`python -m benches.rivals pack`: packs one ImageFolder with shade and with every rival that is installed.

Each run is a process of its own; the writers take turns. `make bench-rivals` sets everything up and runs this."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benches.rivals import packing, report

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Runs the comparison; returns the exit status: 0 done, 1 failed, 130 interrupted."""
    arguments = parse_arguments()
    try:
        run(arguments)
    except KeyboardInterrupt:
        return 130
    except (packing.NotMeasured, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.rivals", description=__doc__.splitlines()[0])
    parser.add_argument("bench", choices=["pack"], help="what to compare: pack = making the dataset")
    parser.add_argument("--data", type=Path, help="an ImageFolder of yours (default: 4,000 made JPEGs, 110 KB each)")
    parser.add_argument("--rounds", type=_positive, default=3, help="runs of each writer (default 3)")
    parser.add_argument("--workers", type=_positive, default=2, help="processes or threads of each (default 2)")
    parser.add_argument("--only", action="append", choices=list(packing.WRITERS), help="this writer; may be repeated")
    parser.add_argument("--out", type=Path, help="the file of results (default: one in benches/record, by date)")
    parser.add_argument(
        "--programs", type=Path, default=ROOT / "target/release", help="where shade-pack and shade-benches are"
    )
    parser.add_argument("--scratch", type=Path, help="where data is written and removed (default: as TMPDIR says)")
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    started = report.Start()
    if started.is_busy():
        print(f"warning: {report.BUSY}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="shade-rivals-", dir=arguments.scratch) as scratch:
        source = arguments.data or _make_images(arguments.programs, Path(scratch))
        task = packing.Task(source, Path(scratch), arguments.programs.resolve(), arguments.workers)
        runs = packing.take_turns(task, arguments.only or list(packing.WRITERS), arguments.rounds)
        rows = packing.rows(runs, packing.measure(source))
    versions = {name: each[0].version for name, each in runs.items()}
    result = started.finish(versions, rows)
    print(report.table(result))
    out = arguments.out or ROOT / "benches/record" / f"{result['date'][:10]}-rivals-pack.json"
    report.write(result, out)
    print(f"written: {out}")


def _make_images(programs: Path, scratch: Path) -> Path:
    """The JPEGs that the bench `pack` packs, made by it."""
    folder = scratch / "images"
    subprocess.run([programs / "shade-benches", "--images", folder], check=True)
    (tree,) = folder.iterdir()
    return tree


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
