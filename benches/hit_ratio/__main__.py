"""`python -m benches.hit_ratio --program PATH --out FOLDER`: hit ratios, stall, and a report.

Everything is simulated by `shade-load simulate`; `make bench-hit-ratio` builds it and runs this."""

import argparse
import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

from benches.hit_ratio import by_capacity, expected, lookahead, presets, published, report, stall
from benches.hit_ratio.results import FULL, QUICK, NotSimulated, Results

STUDIES = (by_capacity, published, lookahead, stall, presets, expected)


def main() -> int:
    """Runs all studies; returns the exit status: 0 done, 1 failed, 130 interrupted."""
    arguments = parse_arguments()
    try:
        run(arguments)
    except KeyboardInterrupt:
        return 130
    except (NotSimulated, OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.hit_ratio", description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=lambda text: Path(text).resolve(), required=True, help="where shade-load is")
    parser.add_argument(
        "--out", type=Path, help="folder of results, plots and report.md (default: one in benches/record, by date)"
    )
    parser.add_argument("--quick", action="store_true", help="small datasets, two seeds: whether it runs")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="simulations at a time (default: one a core)"
    )
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    scale = QUICK if arguments.quick else FULL
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    out = arguments.out or Path(__file__).parents[1] / "record" / f"{date[:10]}-hit-ratio"
    out.mkdir(parents=True, exist_ok=True)
    versions = {
        "python": platform.python_version(),
        "program": _told([arguments.program, "--version"]),
        "git": _told(["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"]),
    }
    about = {"date": date, "versions": versions, "quick": arguments.quick}
    results = Results(out / "results.json", arguments.program, about)
    results.simulate([command for study in STUDIES for command in study.commands(scale)], max(1, arguments.jobs))
    report.write(results, scale, out)
    print(f"written: {out / 'report.md'}")


def _told(words: list[str | Path]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
