"""`python -m benches.nodes --program PATH --out FOLDER`: several nodes, each with its strata, over one store.

Everything is simulated by `shade-load simulate --nodes`."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benches.nodes.report import report
from benches.nodes.runs import FULL, QUICK, Run


def main() -> int:
    """Simulates, writes results.json and report.md; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benches.nodes", description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=lambda text: Path(text).resolve(), help="where shade-load is")
    parser.add_argument("--out", type=Path, help="folder of the record (default: one in benches/record, by date)")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each row (default 5)")
    parser.add_argument("--quick", action="store_true", help="few samples and nodes: shows that it runs")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="only write FOLDER/report.md anew, from its results.json")
    arguments = parser.parse_args()
    if arguments.report is not None:
        return _write(arguments.report, json.loads((arguments.report / "results.json").read_text()))
    if arguments.program is None:
        parser.error("--program: where is shade-load?")
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    out = arguments.out or Path(__file__).parents[1] / "record" / f"{date}-nodes"
    scale = QUICK if arguments.quick else FULL
    try:
        version = _told([arguments.program, "--version"])
        record = {"date": date, "seeds": arguments.seeds, "version": version, "scale": scale.name, "runs": {}}
        out.mkdir(parents=True, exist_ok=True)
        for name, run in scale.runs().items():
            record["runs"][name] = _simulate(arguments, run)
            # As it comes: a run takes minutes with 1,000 nodes.
            (out / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    except KeyboardInterrupt:
        return 130
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return _write(out, record)


def _write(out: Path, record: dict[str, Any]) -> int:
    (out / "report.md").write_text(report(record))
    print(f"written: {out / 'report.md'}")
    return 0


def _simulate(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    words = [*run.words(), "--seeds", str(arguments.seeds), "--json"]
    print("simulate", *words, file=sys.stderr, flush=True)
    told = json.loads(_told([arguments.program, "simulate", *words]))
    return {"command": "shade-load simulate " + " ".join(words), **told}


def _told(words: list[str | Path]) -> str:
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
