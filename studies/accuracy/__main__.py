"""Runs the accuracy study, and goes on where it was interrupted.

    python -m studies.accuracy run                      # what is missing, for this machine's device
    python -m studies.accuracy run --cells uniform pads --seeds 3
    python -m studies.accuracy report                   # REPORT.md and its plots, from the records alone
    python -m studies.accuracy list                     # which cells have how many seeds
    python -m studies.accuracy live                     # some cells on a store that makes them wait

Each run is a process of its own and leaves one JSON file in studies/accuracy/results/."""

import argparse
import fcntl
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from studies.accuracy import report, results
from studies.accuracy.cells import CELLS, in_order_of_runs
from studies.accuracy.recipes import RECIPES, runs_here
from studies.accuracy.settings import CACHE, POLICIES, RATES, SEEDS
from studies.image_sets import NotAvailable
from studies.slow_store import Failed

# The cells that wait live unless others are named, and those that can: their cache is simulated.
LIVE = ("uniform", "pads", "echo")
SIMULATED = [name for name, cell in CELLS.items() if cell.daemon.get("policy", "lookahead") in POLICIES]


def main() -> int:
    """Returns the exit status: 0 done, 1 failed, 130 interrupted."""
    arguments = parse_arguments()
    try:
        return arguments.command(arguments)
    except KeyboardInterrupt:
        print("\ninterrupted: finished runs are kept, and the next call goes on", file=sys.stderr)
        return 130
    except (NotAvailable, results.Damaged, OSError, subprocess.CalledProcessError, Failed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m studies.accuracy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = _command(commands, "run", "train what is missing", train_missing)
    run.add_argument("--recipes", nargs="+", choices=RECIPES, help="default: all that this machine has the device for")
    run.add_argument("--cells", nargs="+", choices=CELLS, metavar="CELL", help="default: all; `list` names them")
    run.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds 0 to N-1 of each cell (default {SEEDS})")
    run.add_argument("--jobs", type=int, help="runs at a time (default: one a core, or one on a GPU)")
    one = _command(commands, "one", "train one run, in this process", train_one)
    one.add_argument("recipe", choices=RECIPES)
    one.add_argument("cell", choices=CELLS, metavar="CELL")
    one.add_argument("seed", type=int)
    live = _command(commands, "live", "measure how long cells wait for a slow store", measure_live)
    live.add_argument("--recipe", choices=RECIPES, default="cifar10/small-cnn")
    live.add_argument(
        "--cells", nargs="+", choices=SIMULATED, default=LIVE, metavar="CELL", help=f"default: {' '.join(LIVE)}"
    )
    live.add_argument(
        "--rates", nargs="+", type=_rate, default=RATES, metavar="RATE", help=f"default: {' '.join(map(str, RATES))}"
    )
    live.add_argument("--epochs", type=int, help="default: those of the cell; with fewer only the waits mean something")
    live.add_argument(
        "--programs", type=Path, default=Path("target/release"), help="folder with shade-slow-store (default target/release)"
    )
    for command in (run, one, live):
        command.add_argument(
            "--data", type=Path, default=Path("study-data"), help="folder for the datasets, some 1 GB (default study-data)"
        )
    _command(commands, "report", "write REPORT.md and its plots", write_report)
    _command(commands, "list", "print how many seeds each cell has", print_list)
    for command in commands.choices.values():
        command.add_argument("--results", type=Path, default=results.RESULTS, help="folder of the records")
    return parser.parse_args()


def _command(commands, name: str, text: str, function) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(command=function)
    return command


def _rate(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"got {text}, expected more than 0")
    return number


def train_missing(arguments: argparse.Namespace) -> int:
    """Trains all runs that have no record, `jobs` at a time, the most wanted cells first."""
    with _alone(arguments.results):
        return _train_missing(arguments)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other command trains into the folder meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(f"another command trains into {folder}") from None
        yield


def _train_missing(arguments: argparse.Namespace) -> int:
    # Imported here: reports need the records alone, and no package that is built.
    from studies.accuracy import data

    recipes = arguments.recipes or [name for name, recipe in RECIPES.items() if runs_here(recipe)]
    cells = [cell for cell in in_order_of_runs() if cell in (arguments.cells or CELLS)]
    runs = [(recipe, cell, seed) for recipe in recipes for cell in cells for seed in range(arguments.seeds)]
    missing = [run for run in runs if not _has_record(*run, arguments.results)]
    print(f"{len(runs) - len(missing)} of {len(runs)} runs have a record", flush=True)
    # Before several processes would write the same folders.
    for dataset, variant in {(RECIPES[recipe].dataset, CELLS[cell].variant) for recipe, cell, _ in missing}:
        data.prepared(dataset, variant, arguments.data)
    is_on_cpu = all(RECIPES[recipe].device == "cpu" for recipe in recipes)
    jobs = arguments.jobs or (len(os.sched_getaffinity(0)) if is_on_cpu else 1)
    return 1 if _in_processes(missing, jobs, arguments) else 0


def _has_record(recipe: str, cell: str, seed: int, folder: Path) -> bool:
    """Whether the run has a record, of the options that it has today."""
    path = results.path_of(folder, recipe, cell, seed)
    options = {"cache": CACHE, **CELLS[cell].options(), **RECIPES[recipe].schedule()}
    return path.is_file() and results.is_of(results.load(path), CELLS[cell].plan, options)


def _in_processes(runs: list[tuple[str, str, int]], jobs: int, arguments: argparse.Namespace) -> int:
    """Returns how many failed. Ctrl-C reaches the processes, too; what waits is not begun."""
    failed, started = 0, time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = iter(runs)
        running: set[Future[bool]] = set()
        done = 0
        try:
            while True:
                while len(running) < jobs and (run := next(waiting, None)) is not None:
                    running.add(pool.submit(_in_process, run, arguments))
                if not running:
                    return failed
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                done += len(finished)
                failed += sum(not future.result() for future in finished)
                left = (time.monotonic() - started) / done * (len(runs) - done)
                print(f"{done} of {len(runs)} done, about {left / 60:.0f} minutes left", flush=True)
        except KeyboardInterrupt:
            wait(running)
            raise


def _in_process(run: tuple[str, str, int], arguments: argparse.Namespace) -> bool:
    recipe, cell, seed = run
    folders = ["--data", arguments.data, "--results", arguments.results]
    command = [sys.executable, "-m", "studies.accuracy", "one", recipe, cell, str(seed), *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout.strip() if done.returncode == 0 else f"failed: {recipe} {cell} {seed}\n{done.stderr.strip()}"
    print(said, flush=True)
    return done.returncode == 0


def train_one(arguments: argparse.Namespace) -> int:
    """Trains one run and writes its record."""
    from studies.accuracy import training

    run = training.run(RECIPES[arguments.recipe], CELLS[arguments.cell], arguments.seed, arguments.data)
    results.write(run, results.path_of(arguments.results, arguments.recipe, arguments.cell, arguments.seed))
    print(
        f"{arguments.recipe} {arguments.cell} seed {arguments.seed}: {run['test_accuracy']:.2%}, "
        f"{run['bytes_read'] / 1e6:.0f} MB read, {run['seconds']:.0f} s"
    )
    return 0


def measure_live(arguments: argparse.Namespace) -> int:
    """Trains each cell without a limit and with each rate, one after the other. A cell's older
    records are removed: times of two sessions do not mix."""
    from studies.accuracy import live

    with _alone(arguments.results), tempfile.TemporaryDirectory(prefix="shade-live-") as scratch:
        session = live.Live(arguments.recipe, arguments.data, arguments.programs, Path(scratch))
        if not session.is_mounted:
            print(f"the store is simulated, as none can be mounted: {session.store.simulated_because}", flush=True)
        for name in arguments.cells:
            for run in session.runs(CELLS[name], arguments.rates, arguments.epochs):
                path = results.live_path_of(arguments.results, arguments.recipe, name, run["rate"])
                if run["rate"] is None:
                    shutil.rmtree(path.parent, ignore_errors=True)
                results.write(run, path)
                print(live.said(run), flush=True)
    return 0


def write_report(arguments: argparse.Namespace) -> int:
    """Writes the report beside the records' folder."""
    print(f"written: {report.write(arguments.results)}")
    return 0


def print_list(arguments: argparse.Namespace) -> int:
    """Prints the number of seeds by recipe and cell."""
    for recipe in RECIPES:
        runs = results.read(arguments.results, recipe)
        print(recipe)
        for cell in CELLS:
            print(f"  {len(runs.get(cell, [])):3}  {cell}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
