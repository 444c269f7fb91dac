"""Says what each sampler gains on your data, with your own training script.

    python -m shade_load.compare photos/train.shade --script train.py --cells uniform,echo,pads \\
        --epochs 90 --share 0.3 --seeds 4 -- photos --epochs {epochs} --seed {seed}

The script is yours and uses shade_load.Loader; nothing else in it changes. It runs once for each
cell and seed, one run after the other. The Loader that trains on DATASET finds by the environment
which sampler and seed it has. Behind -- are the script's own arguments. In them, and in --launch,
{epochs} becomes the number of epochs, {seed} the seed, {out} a folder for what the run writes, and
{cell} the cell's name.

Cells are samplers (uniform, echo, pads, ...), with options of a Plan behind colons: echo:echo=3,
pads:draw_ahead. uniform:epochs=0.5 trains half of the epochs: as a baseline, it is the fair rival
of a cell that reads half of the bytes. "script" is the script's own plan. The others stand beside
the first one.

The score is the last one of a run: of loader.report_validation(score), or of the lines that the
script prints and --metric matches. Verdicts need four seeds.

Finished runs are kept in --out. The same command goes on where it was interrupted, or with more
seeds. docs/compare.md says how to read the tables.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _native
from .._native import ShadeError, __version__
from ..in_place import indexed
from ..options import dataset_path
from .alone import alone
from .cells import Cell, cells_of
from .paired import SEEDS_FOR_A_VERDICT
from .points import Point, matched, points_of
from .runs import Damaged, Dataset, Failed, Run, Script
from .tables import margin_for
from .told import Comparison, seeds_text

# After this many failures in a row the others would fail, too.
_FAILURES_MAX = 2
# An epoch has no repeats of the one before, and draws by losses begin with the second.
_EPOCHS_MIN = 2
_SECONDS_MAX = 24 * 3600.0
# Longer times are told in minutes.
_SECONDS_TOLD = 120
_NO_EPOCHS = (
    "nothing tells {script} for how many epochs to train. Write {{epochs}} where its argument has their number, "
    "behind --: -- --epochs {{epochs}}. A script with a fixed number can read a variable of yours: "
    "--launch 'env EPOCHS={{epochs}} python'"
)
_NO_SCORE = (
    "{run}: no score came. Call loader.report_validation(score) after each validation, higher is better, or give "
    "--metric a regular expression for a line that the script prints, with the score in parentheses: "
    "--metric 'accuracy ([0-9.]+)'. The run is kept, and is not trained again. Its log is {log}"
)


class Unusable(Exception):
    """What was asked for cannot be compared. The text says what to do."""


def main() -> int:
    """Returns the exit status: 0 done, 1 failed, 2 usage, 130 interrupted."""
    asked = parse_arguments(sys.argv[1:])
    try:
        return compare(asked)
    except KeyboardInterrupt:
        print(f"\ninterrupted: finished runs are kept in {asked.out}, and the same command goes on", file=sys.stderr)
        return 130
    except (Failed, Damaged, Unusable, ShadeError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command's arguments, and behind the first `--` those of the script."""
    at = list(words).index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog="python -m shade_load.compare",
        usage="%(prog)s DATASET --script FILE --epochs N [OPTION ...] -- [ARGUMENT ...]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_options(parser)
    asked = parser.parse_args(list(words[:at]))
    asked.arguments = tuple(words[at + 1 :])
    try:
        asked.cells = cells_of(asked.cells)
    except (ValueError, TypeError) as error:
        parser.error(str(error))
    if asked.lower_is_better and asked.margin is None:
        parser.error("--lower-is-better: give --margin as well, as no margin suits every loss")
    return asked


def _add_options(parser: argparse.ArgumentParser) -> None:
    def option(name: str, about: str, **given: Any) -> None:
        parser.add_argument(name, help=about, **given)

    option("dataset", "what the script trains on: a packed dataset, a folder, or an address (s3://...)", metavar="DATASET")
    option("--script", "the training script", type=Path, required=True, metavar="FILE")
    option("--cells", "what is compared, the baseline first (default: %(default)s)", default="uniform,echo,pads")
    option("--epochs", "epochs of your full schedule", type=_whole, required=True, metavar="N")
    option("--share", "share of them that is trained, as a schedule of its own (default: 0.3)", type=_share, default=0.3)
    about = f"seeds 0 to N-1 of each cell; below {SEEDS_FOR_A_VERDICT} no verdict (default: %(default)s)"
    option("--seeds", about, type=_whole, default=SEEDS_FOR_A_VERDICT, metavar="N")
    option("--metric", "finds the score, in parentheses, in a line that the script prints", type=_pattern, metavar="REGEX")
    option("--lower-is-better", "the score is a loss; needs --margin", action="store_true")
    about = "a cell is as good if it is less than this worse (default: 0.5, or 0.005 where all scores are from -1 to 1)"
    option("--margin", about, type=_positive)
    option("--cache", "the daemon's cache in all runs, such as 20%% or 8GiB (default: as the script has it)", metavar="SIZE")
    about = 'what runs the script, such as "torchrun --nproc-per-node=2" (default: this Python)'
    option("--launch", about, metavar="COMMAND")
    option("--timeout", "longest time of a run (default: a day)", type=_positive, default=_SECONDS_MAX, metavar="SECONDS")
    option("--out", "where runs are kept (default: %(default)s)", type=Path, default=Path("shade-compare"), metavar="FOLDER")
    option("--dry-run", "print what would run, and for how long once a run has finished", action="store_true")
    option("--json", "print the comparison as JSON", action="store_true")


def compare(asked: argparse.Namespace) -> int:
    """Trains what is missing, then prints the comparison."""
    runs = runs_of(asked)
    if asked.dry_run:
        print("\n".join(plan_lines(runs)))
        return 0
    refusal = Unusable(f"another command compares into {asked.out}: wait for it, or choose another --out")
    with alone(asked.out, refusal):
        if any(run.record() is None for run in runs):
            for note in _cautions(asked, runs[0].script):
                print(f"note: {note}", file=sys.stderr)
        try:
            failures = train_missing(runs, asked)
        except KeyboardInterrupt:
            _print(runs, asked)
            raise
        _print(runs, asked)
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _print(runs: Sequence[Run], asked: argparse.Namespace) -> None:
    comparison = comparison_of(runs, asked)
    if comparison is not None:
        print(json.dumps(comparison.as_json(), indent=1) if asked.json else comparison.as_text())


def runs_of(asked: argparse.Namespace) -> list[Run]:
    """All runs, seed by seed. Each seed begins with another cell, so that no cell always has the first place."""
    if not asked.script.is_file():
        raise Unusable(f"--script: {asked.script} is no file")
    launch = tuple(shlex.split(asked.launch)) if asked.launch else (sys.executable,)
    script = Script(asked.script, asked.arguments, launch)
    epochs = round(asked.epochs * asked.share)
    if not script.has("epochs"):
        raise Unusable(_NO_EPOCHS.format(script=asked.script.name))
    if epochs < _EPOCHS_MIN:
        raise Unusable(
            f"--share: {asked.share:g} of {asked.epochs} epochs are {epochs}, and samplers differ from the second on: "
            f"raise it"
        )
    for cell in asked.cells:
        if cell.epochs(epochs) < cell.epochs_min:
            raise Unusable(
                f"--cells: {cell.name} trains {cell.epochs(epochs)} epochs here, and takes each sample once until its epoch "
                f"{cell.epochs_min}: raise --share, or leave it out"
            )
    path = dataset_path(indexed(asked.dataset))
    samples, content_id = _native.dataset_content(str(path))
    dataset = Dataset(path, content_id, samples)

    def run(cell: Cell, seed: int) -> Run:
        return Run(cell, seed, cell.epochs(epochs), asked.cache, script, dataset, __version__, asked.out)

    cells = asked.cells
    return [run(cells[(seed + place) % len(cells)], seed) for seed in range(asked.seeds) for place in range(len(cells))]


def plan_lines(runs: Sequence[Run]) -> list[str]:
    """What would run, with the time that is left as far as finished runs tell."""
    records = {run: run.record() for run in runs}
    state = {run: "to do" if record is None else "done" for run, record in records.items()}
    lines = [f"{state[run]}  {run}, {run.epochs} epochs: {shlex.join(run.command())}" for run in runs]
    return [*lines, _left(records)]


def train_missing(runs: Sequence[Run], asked: argparse.Namespace) -> list[Failed]:
    """Trains the runs that have no record; returns those that failed."""
    records = {run: run.record() for run in runs}
    failures, in_a_row = [], 0
    for number, run in enumerate(runs, start=1):
        if records[run] is not None:
            continue
        place = f"{number} of {len(runs)}: {run}"
        try:
            record = run.train(asked.timeout, _Progress(place, run.epochs))
        except Failed as failure:
            failures.append(failure)
            in_a_row += 1
            if in_a_row == _FAILURES_MAX:
                return failures
            print(f"{place} failed; the others go on", file=sys.stderr)
            continue
        in_a_row, records[run] = 0, record
        points = _points(run, record, asked.metric)
        print(f"{place}: {_said(points[-1])}; {_left(records)}", file=sys.stderr)
    return failures


def comparison_of(runs: Sequence[Run], asked: argparse.Namespace) -> Comparison | None:
    """The finished runs, compared; None if there are none."""
    records = {run: record for run in runs if (record := run.record())}
    if not records:
        return None
    points: dict[str, dict[int, list[Point]]] = {cell.name: {} for cell in asked.cells}
    for run, record in records.items():
        points[run.cell.name][run.seed] = _points(run, record, asked.metric)
    gave_way = {f"{run.cell.name}: {each}" for run, record in records.items() for each in record["about"]["gave_way"]}
    notes = [*sorted(gave_way), *_cautions(asked, runs[0].script)]
    if missing := [str(run) for run in runs if run not in records]:
        notes.append(f"only seeds that every cell has are compared; without a record: {'; '.join(missing)}")
    for cell, of_cell in points.items():
        ends = {(len(of_run), max(point.epochs for point in of_run if point.score is not None)) for of_run in of_cell.values()}
        if unscored := [f"{last} of {epochs}" for epochs, last in sorted(ends) if last < epochs]:
            notes.append(f"{cell}: no score came after the last epoch; that of epoch {', '.join(unscored)} counts as its end")
    epochs = round(asked.epochs * asked.share)
    title = (
        f"{asked.script.name}, {epochs} of {asked.epochs} epochs, {seeds_text(range(asked.seeds))}\n"
        f"{asked.dataset}, {runs[0].dataset.samples:,} samples"
    )
    margin = asked.margin or margin_for(points)
    return Comparison(title, points, margin, asked.lower_is_better, notes)


def _cautions(asked: argparse.Namespace, script: Script) -> list[str]:
    """What makes the comparison worth less."""
    cautions = []
    if not script.has("seed"):
        cautions.append("without {seed} in the script's arguments its weights do not follow from the seed, and pairs differ more")
    if asked.seeds < (enough := SEEDS_FOR_A_VERDICT):
        cautions.append(f"fewer than {enough} seeds allow no verdict; the same command with --seeds {enough} keeps these runs")
    return cautions


def _points(run: Run, record: dict[str, Any], metric: re.Pattern[bytes] | None) -> list[Point]:
    """A run's points with their scores.

    Raises: Unusable: There is no score.
    """
    scores = record["reported"]
    if metric is not None:
        try:
            ends = [row["log"] for row in record["epochs"]]
            begun = [row.get("log_begun", math.inf) for row in record["epochs"]]
            scores = matched(run.log.read_bytes(), metric, ends, begun)
        except ValueError as error:
            raise Unusable(f"--metric: {run.log} has a match that is no number: {error}") from None
    points = points_of(record["epochs"], record["began"], scores)
    if not any(point.score is not None for point in points):
        raise Unusable(_NO_SCORE.format(run=run, log=run.log))
    return points


def _said(point: Point) -> str:
    """A run's last point in a few words."""
    score = "" if point.score is None else f"{point.score:g}, "
    waits = 100 * point.stall / point.seconds
    return f"{score}{point.bytes / 1e6:,.1f} MB read, {point.seconds:.1f} s, waits {waits:.1f} %"


def _left(records: dict[Run, dict[str, Any] | None]) -> str:
    """How many runs are left, and for how long by those that have finished."""
    runs = [run for run, record in records.items() if record is None]
    finished = [record for record in records.values() if record is not None]
    if not runs:
        return "all runs are done"
    left = f"{len(runs)} run{'s' * (len(runs) > 1)} left"
    if not finished:
        return f"{left}; the first one tells for how long"
    an_epoch = sum(record["seconds"] for record in finished) / sum(len(record["epochs"]) for record in finished)
    seconds = an_epoch * sum(run.epochs for run in runs)
    return f"{left}, about " + (f"{math.ceil(seconds)} s" if seconds < _SECONDS_TOLD else f"{seconds / 60:.0f} minutes")


class _Progress:
    """A line on a terminal that says where a run is."""

    def __init__(self, place: str, epochs: int) -> None:
        self.place, self.epochs, self.began = place, epochs, time.monotonic()

    def __call__(self, ended: int) -> None:
        if sys.stderr.isatty():
            text = f"{self.place}: {ended} of {self.epochs} epochs, {time.monotonic() - self.began:.0f} s"
            print(f"\r\x1b[K{text}\r", end="", file=sys.stderr, flush=True)


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected 1 or more")
    return number


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"got {text}, expected more than 0")
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected more than 0 and at most 1")
    return number


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        pattern = re.compile(text.encode())
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    if pattern.groups > 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} has {pattern.groups} pairs of parentheses, expected one around the score; write others as (?:...)"
        )
    return pattern


if __name__ == "__main__":
    sys.exit(main())
