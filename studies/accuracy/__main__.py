"""Runs the accuracy study, and goes on where it was interrupted.

    python -m studies.accuracy run                      # what is missing, for this machine's device
    python -m studies.accuracy run --tables photographs --seeds 3
    python -m studies.accuracy run --split held-out --cells uniform --learning-rates 0.05 0.1
    python -m studies.accuracy slot --minutes 15 --jobs 5   # a GPU that is lent: the most wanted first
    python -m studies.accuracy report                   # REPORT.md and its plots, from the records alone
    python -m studies.accuracy list                     # which cells have how many seeds
    python -m studies.accuracy play                     # the simulated figures again, from the recordings that were kept
    python -m studies.accuracy live                     # some cells on a store that makes them wait

Each run is a process of its own and leaves one JSON file in studies/accuracy/results/."""

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shade_load.compare.alone import alone

from studies.accuracy import report, results
from studies.accuracy.cells import CELLS, RETIRED
from studies.accuracy.recipes import RECIPES, runs_here
from studies.accuracy.registered import TABLES
from studies.accuracy.results import HELD_OUT, TEST
from studies.accuracy.runs import Pool, Run, slot
from studies.accuracy.settings import POLICIES, RATES, SEEDS
from studies.image_sets import NotAvailable
from studies.slow_store import Failed

# The cells that wait live unless others are named, and those that can: their cache is simulated.
LIVE = ("uniform", "pads", "echo")
SIMULATED = [name for name, cell in CELLS.items() if cell.daemon.get("policy", "lookahead") in POLICIES]


class Dirty(Exception):
    """The working tree has changes, so a record would not say what was run."""


def main() -> int:
    """Returns the exit status: 0 done, 1 failed, 130 interrupted."""
    arguments = parse_arguments()
    try:
        return arguments.command(arguments)
    except KeyboardInterrupt:
        print("\ninterrupted: finished runs are kept, and the next call goes on", file=sys.stderr)
        return 130
    except (NotAvailable, results.Damaged, Dirty, OSError, subprocess.CalledProcessError, Failed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m studies.accuracy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = _command(commands, "run", "train what is missing", train_missing)
    run.add_argument("--recipes", nargs="+", choices=RECIPES, help="default: all that this machine has the device for")
    run.add_argument("--tables", nargs="+", choices=[table.name for table in TABLES], help="default: all, the newest first")
    run.add_argument("--cells", nargs="+", choices=CELLS, metavar="CELL", help="default: all of the tables; `list` names them")
    run.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds 0 to N-1 of each cell, at most the table's (default {SEEDS})")
    run.add_argument(
        "--learning-rates", nargs="+", type=_positive, metavar="RATE", help="with held-out data: these in place of the recipe's"
    )
    one = _command(commands, "one", "train one run, in this process", train_one)
    one.add_argument("recipe", choices=RECIPES)
    one.add_argument("cell", choices=CELLS, metavar="CELL")
    one.add_argument("seed", type=int)
    one.add_argument("--learning-rate", type=_positive, help="in place of the recipe's")
    in_slot = _command(commands, "slot", "train what is most wanted of a GPU, until the time is over", train_slot)
    for command in (one, in_slot):
        command.add_argument("--on-cpu", action="store_true", help="to try it on small data: on the CPU, one epoch; give --dirty")
    for command in (run, one):
        command.add_argument(
            "--split", choices=(TEST, HELD_OUT), default=TEST, help="what is tested with: choices are made by held-out data"
        )
    for command in (run, in_slot):
        command.add_argument("--jobs", type=int, help="runs at a time (default: one a core, or one on a GPU)")
        command.add_argument("--minutes", type=_positive, help="end after so long; whole runs are kept (default: no end)")
        command.add_argument("--prepare", action="store_true", help="write and pack the data, and train nothing")
    live = _command(commands, "live", "measure how long cells wait for a slow store", measure_live)
    _add_live_arguments(live)
    for command in (run, one, in_slot, live):
        command.add_argument(
            "--data", type=Path, default=Path("study-data"), help="folder for the datasets, some 1 GB (default study-data)"
        )
        command.add_argument("--dirty", action="store_true", help="also with uncommitted changes: to try something")
    play = _command(commands, "play", "simulate again what was recorded and kept", play_again)
    _command(commands, "claims", "simulate what the table of claims needs and no other record has", simulate_claims)
    _command(commands, "report", "write REPORT.md and its plots", write_report)
    _command(commands, "list", "print how many seeds each cell has", print_list)
    for command in (run, one, in_slot, live, play, *(commands.choices[name] for name in ("claims", "report", "list"))):
        command.add_argument("--results", type=Path, default=results.RESULTS, help="folder of the records")
    return parser.parse_args()


def _add_live_arguments(live: argparse.ArgumentParser) -> None:
    live.add_argument("--recipe", choices=RECIPES, default="cifar10/small-cnn")
    live.add_argument(
        "--cells", nargs="+", choices=SIMULATED, default=LIVE, metavar="CELL", help=f"default: {' '.join(LIVE)}"
    )
    live.add_argument(
        "--rates", nargs="+", type=_positive, default=RATES, metavar="RATE", help=f"default: {' '.join(map(str, RATES))}"
    )
    live.add_argument("--epochs", type=int, help="default: those of the cell; with fewer only the waits mean something")
    live.add_argument(
        "--record-bytes",
        nargs="+",
        type=int,
        default=[0],
        metavar="BYTES",
        help="fill records up to so many bytes, such as 3000 20000 110000, which decoders skip; 0: as they are (default)",
    )
    live.add_argument(
        "--programs", type=Path, default=Path("target/release"), help="folder with shade-slow-store (default target/release)"
    )


def _command(commands, name: str, text: str, function) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(command=function)
    return command


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"got {text}, expected more than 0")
    return number


def train_missing(arguments: argparse.Namespace) -> int:
    """Trains all runs that have no record, `jobs` at a time, the newest tables first."""
    recipes = arguments.recipes or [name for name, recipe in RECIPES.items() if runs_here(recipe)]
    rates = arguments.learning_rates or [None]
    if rates != [None] and arguments.split == TEST:
        raise Failed("--learning-rates are chosen by held-out data: give --split held-out")
    runs: dict[Run, None] = {}
    for table in reversed(TABLES):
        for recipe in table.recipes:
            if recipe in recipes and table.name in (arguments.tables or [table.name]):
                cells = [cell for cell in table.cells if cell in (arguments.cells or CELLS) and cell not in RETIRED]
                for seed in range(min(arguments.seeds, table.seeds)):
                    runs |= dict.fromkeys(Run(recipe, cell, seed, arguments.split, rate) for cell in cells for rate in rates)
    return _train(list(runs), arguments)


def train_slot(arguments: argparse.Namespace) -> int:
    """Trains what is most wanted of a GPU that is lent for a while."""
    runs = slot()
    if not arguments.on_cpu and not arguments.prepare and not all(runs_here(RECIPES[run.recipe]) for run in runs):
        raise Failed("a slot is for a GPU, and there is none here; --on-cpu --dirty tries it on small data")
    return _train(runs, arguments, ["--on-cpu"] * arguments.on_cpu)


def _train(runs: Sequence[Run], arguments: argparse.Namespace, more: Sequence[str] = ()) -> int:
    # Imported here: reports need the records alone, and no package that is built.
    from studies.accuracy import data

    _refuse_changes(arguments)
    ends = None if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes
    with alone(arguments.results, _in_use(arguments.results)):
        missing = [run for run in runs if not run.has_record(arguments.results)]
        print(f"{len(runs) - len(missing)} of {len(runs)} runs have a record", flush=True)
        # Before several processes would write the same folders.
        for dataset, variant, split in {(RECIPES[run.recipe].dataset, CELLS[run.cell].variant, run.split) for run in missing}:
            data.prepared(dataset, variant, arguments.data, split)
        if arguments.prepare:
            return 0
        is_on_cpu = all(RECIPES[run.recipe].device == "cpu" for run in missing)
        jobs = arguments.jobs or (len(os.sched_getaffinity(0)) if is_on_cpu else 1)
        words = ["--data", arguments.data, "--results", arguments.results, *["--dirty"] * arguments.dirty, *more]
        pool = Pool(jobs, words, ends)
        pool.train(missing)
    for run in pool.not_run:
        print(f"not run, as the time was over: {run}")
    return 1 if pool.failed else 0


def _refuse_changes(arguments: argparse.Namespace) -> None:
    from studies.accuracy import training

    if training.commit().endswith("-dirty") and not arguments.dirty:
        raise Dirty("the working tree has changes: commit them, so that records say what was run, or give --dirty to try")


def _in_use(folder: Path) -> OSError:
    return OSError(f"another command trains into {folder}")


def train_one(arguments: argparse.Namespace) -> int:
    """Trains one run and writes its record. Says how accurate it is of held-out data only."""
    from studies.accuracy import training

    _refuse_changes(arguments)
    run = Run(arguments.recipe, arguments.cell, arguments.seed, arguments.split, arguments.learning_rate)
    recipe, path = RECIPES[run.recipe], run.path(arguments.results)
    if run.learning_rate is not None:
        recipe = replace(recipe, learning_rate=run.learning_rate)
    if arguments.on_cpu:
        if not arguments.dirty:
            raise Failed("--on-cpu makes no record of the study: give --dirty as well")
        recipe = replace(recipe, device="cpu", epochs=1)
    # Choices by held-out data need no simulated figures.
    kept = results.recording_of(path) if run.split == TEST else None
    record = training.run(recipe, CELLS[run.cell], run.seed, arguments.data, run.split, kept)
    results.write(record, path)
    accuracy = f"{record['test_accuracy']:.2%} of what was held out, " if run.split == HELD_OUT else ""
    print(f"{run}: {accuracy}{record['bytes_read'] / 1e6:.0f} MB read, {record['seconds']:.0f} s")
    return 0


def play_again(arguments: argparse.Namespace) -> int:
    """Makes the simulated figures of all records anew that have their recording."""
    from studies.accuracy import recording

    for kept in sorted(arguments.results.glob("**/*.trace.xz")):
        path = kept.with_name(f"{kept.name.removesuffix('.trace.xz')}.json")
        run = results.load(path)
        run["simulated"] = recording.played_again(kept, run["dataset_bytes"] / run["dataset_samples"])
        results.write(run, path)
        print(f"played: {path}", flush=True)
    return 0


def measure_live(arguments: argparse.Namespace) -> int:
    """Trains each cell without a limit and with each rate, one after the other. A cell's older
    records are removed: times of two sessions do not mix."""
    from studies.accuracy import live

    _refuse_changes(arguments)
    with alone(arguments.results, _in_use(arguments.results)), tempfile.TemporaryDirectory(prefix="shade-live-") as scratch:
        for record_bytes in arguments.record_bytes:
            session = live.Live(arguments.recipe, arguments.data, arguments.programs, Path(scratch), record_bytes)
            if not session.is_mounted:
                print(f"the store is simulated, as none can be mounted: {session.store.simulated_because}", flush=True)
            for name in arguments.cells:
                for run in session.runs(CELLS[name], arguments.rates, arguments.epochs):
                    path = results.live_path_of(arguments.results, arguments.recipe, name, run["rate"], record_bytes)
                    if run["rate"] is None:
                        shutil.rmtree(path.parent, ignore_errors=True)
                    results.write(run, path)
                    print(live.said(run), flush=True)
    return 0


def simulate_claims(arguments: argparse.Namespace) -> int:
    """Simulates claims of papers on time."""
    from studies.accuracy import claims

    print(f"written: {claims.simulate()}")
    return 0


def write_report(arguments: argparse.Namespace) -> int:
    """Writes the report beside the records' folder."""
    print(f"written: {report.write(arguments.results)}")
    return 0


def print_list(arguments: argparse.Namespace) -> int:
    """Prints the number of seeds by table, recipe and cell."""
    for table in TABLES:
        for recipe in table.recipes:
            runs = results.read(arguments.results, recipe)
            print(f"{table.name}, {recipe}, of {table.seeds}")
            for cell in table.cells:
                print(f"  {len(runs.get(cell, [])):3}  {cell}{' (not run any more)' if cell in RETIRED else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
