"""Compares runs: each cell beside the first one, at the end of the schedule, at equal bytes and at equal time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .paired import CONFIDENCE, MARGIN, SEEDS_FOR_A_VERDICT, Paired, holm, standard_error, quantile, word
from .points import Point

# A run that spent this share more than the budget has spent the budget.
SLACK = 0.02
TOO_FEW = "not enough seeds to say"
# The points of each run, by cell and seed.
Runs = Mapping[str, Mapping[int, Sequence[Point]]]


@dataclass(frozen=True)
class Kind:
    """A way to compare: what is equal, and how a point counts towards it. At the end of the schedule nothing is."""

    name: str
    title: str
    cost: Callable[[Point], float] | None = None


KINDS = (
    Kind("end", "at the end of the schedule"),
    Kind("bytes", "at equal bytes", lambda point: point.bytes),
    Kind("seconds", "at equal time", lambda point: point.seconds),
)


@dataclass(frozen=True)
class Row:
    """A cell beside the baseline, by one kind."""

    cell: str
    difference: Paired
    # The chances of the difference, and of a loss of the margin, corrected for the other cells.
    chance: float
    chance_of_loss: float
    # What both have spent at most, the mean over seeds. None at the end of the schedule.
    budget: float | None
    # The mean number of epochs after which the two had the scores that are compared.
    epochs: float
    epochs_of_baseline: float
    verdict: str


@dataclass(frozen=True)
class Table:
    """All cells beside the baseline, by one kind."""

    kind: Kind
    rows: list[Row]
    # Why a cell has no row.
    left_out: dict[str, str]


@dataclass(frozen=True)
class Summary:
    """A cell's runs: means over seeds of their last points, and the interval of the score."""

    cell: str
    score: float
    half_width: float | None
    epochs: float
    bytes: float
    seconds: float
    stall: float


def whole_seeds(runs: Runs) -> list[int]:
    """The seeds that every cell has."""
    return sorted(set.intersection(*(set(of_cell) for of_cell in runs.values()))) if runs else []


def summary(cell: str, runs: Sequence[Sequence[Point]]) -> Summary:
    ends, count = [run[-1] for run in runs], len(runs)
    scores = [_score(_last(run)) for run in runs]
    half = standard_error(scores) * quantile((1 + CONFIDENCE) / 2, count - 1) if count > 1 else None
    columns = [[float(getattr(end, name)) for end in ends] for name in ("epochs", "bytes", "seconds", "stall")]
    return Summary(cell, _mean(scores), half, *map(_mean, columns))


def table(kind: Kind, runs: Runs, margin: float, sign: int = 1) -> Table:
    """Compares the cells of `runs` with the first. `sign` is -1 where a lower score is better."""
    baseline, *cells = runs
    pairs = {cell: [_pair(kind, runs[cell][seed], runs[baseline][seed]) for seed in whole_seeds(runs)] for cell in cells}
    left_out = {cell: "one of the two had no score yet" for cell, found in pairs.items() if None in found}
    compared = {cell: [pair for pair in found if pair] for cell, found in pairs.items() if cell not in left_out}
    differences = {cell: Paired.of([sign * pair.difference for pair in found]) for cell, found in compared.items()}
    chances = holm({cell: found.chance() for cell, found in differences.items()})
    losses = holm({cell: found.chance_of_loss(margin) for cell, found in differences.items()})
    rows = [
        Row(
            cell=cell,
            difference=differences[cell],
            chance=chances[cell],
            chance_of_loss=losses[cell],
            budget=None if kind.cost is None else _mean([pair.budget for pair in found]),
            epochs=_mean([pair.cell.epochs for pair in found]),
            epochs_of_baseline=_mean([pair.baseline.epochs for pair in found]),
            verdict=_verdict(differences[cell], chances[cell], losses[cell], found),
        )
        for cell, found in compared.items()
    ]
    return Table(kind, rows, left_out)


def margin_for(runs: Runs) -> float:
    """The margin of 0.5 points, for scores up to 100 or, where all are from -1 to 1, for shares and their kin."""
    points = [point for of_cell in runs.values() for run in of_cell.values() for point in run]
    return MARGIN / 100 if all(point.score is None or abs(point.score) <= 1 for point in points) else MARGIN


@dataclass(frozen=True)
class _Pair:
    """The points of a seed that are compared."""

    cell: Point
    baseline: Point
    budget: float
    # In the middle of its schedule a run scores less than at its end.
    is_cut: bool
    is_baseline_cut: bool

    @property
    def difference(self) -> float:
        return _score(self.cell) - _score(self.baseline)


def _pair(kind: Kind, run: Sequence[Point], baseline: Sequence[Point]) -> _Pair | None:
    """The last points with a score at or below what both spent; None if there is none."""
    cost = kind.cost or (lambda point: 0.0)
    budget = min(cost(run[-1]), cost(baseline[-1]))
    found = [_last([point for point in points if cost(point) <= budget * (1 + SLACK)]) for points in (run, baseline)]
    if found[0] is None or found[1] is None:
        return None
    return _Pair(found[0], found[1], budget, found[0] is not _last(run), found[1] is not _last(baseline))


def _verdict(difference: Paired, chance: float, chance_of_loss: float, pairs: Sequence[_Pair]) -> str:
    """The verdict, except one that a comparison in the middle of a schedule favours."""
    if difference.count < SEEDS_FOR_A_VERDICT:
        return TOO_FEW
    is_cut, is_baseline_cut = any(pair.is_cut for pair in pairs), any(pair.is_baseline_cut for pair in pairs)
    is_shown = chance < 1 - CONFIDENCE
    is_above, is_below = is_shown and difference.mean > 0, is_shown and difference.mean < 0
    is_inside = chance_of_loss < 1 - CONFIDENCE
    if is_cut and is_baseline_cut:
        return "both in mid-schedule"
    if is_baseline_cut:
        return "worse" if is_below else "an upper bound"
    if is_cut and not is_above and not is_inside:
        return "a lower bound"
    return word(is_above, is_below and not is_cut, is_inside)


def _last(run: Sequence[Point]) -> Point | None:
    """The last point with a score."""
    return next((point for point in reversed(run) if point.score is not None), None)


def _score(point: Point | None) -> float:
    assert point is not None and point.score is not None, "a run without a score is no record"
    return point.score


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
