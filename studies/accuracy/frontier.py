"""What a cell costs, and permutations with fewer epochs at the same cost.

The cost is bytes read or time. Both depend on cache and store, which `shade-load simulate` has
played for the recorded seed of each cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from studies.accuracy.results import Run
from studies.accuracy.statistics import Difference, difference, on_line

Runs = Sequence[Run]
# The permutations that are the baseline: all their epochs, and fewer.
BASELINE = ("uniform-30", "uniform-40", "uniform-50", "uniform-60", "uniform-70", "uniform-80", "uniform")
# The store's rate at which bytes are counted: they hardly depend on it.
RATE_OF_BYTES = 0.5


def accuracies(runs: Runs) -> dict[int, float]:
    """Test accuracy at the end by seed, in points."""
    return {run["seed"]: 100 * run["test_accuracy"] for run in runs}


def bytes_read(runs: Runs, cache: str, policies: Sequence[str] = ("lookahead",)) -> float | None:
    """Bytes of a whole training with this cache, by the policy that reads least."""
    return _least(runs, RATE_OF_BYTES, cache, policies, lambda run, row: row["bytes_read"])


def time_taken(runs: Runs, rate: float, cache: str, policies: Sequence[str] = ("lookahead",)) -> float | None:
    """Time of a whole training, in seconds of a trainer that computes 1,000 samples per second."""
    return _least(runs, rate, cache, policies, lambda run, row: run["samples_trained"] / 1000 * (1 + row["stall_share"]))


def at_equal_cost(
    runs: Runs, cells: Mapping[str, Runs], cost: Callable[[Runs, Sequence[str]], float | None]
) -> Difference | None:
    """The cell beside the line through permutations at the cell's cost; None outside of the line.

    Permutations have the policy that suits them best: `lookahead` and `static` are both tried."""
    own = cost(runs, ("lookahead",))
    if own is None:
        return None
    line: list[tuple[float, dict[int, float]]] = []
    for name in BASELINE:
        at = cost(cells.get(name, ()), ("lookahead", "static"))
        if at is not None:
            line.append((at, accuracies(cells[name])))
    line.sort(key=lambda point: point[0])
    beside = {}
    for run in runs:
        seed = run["seed"]
        expected = on_line([(at, by_seed[seed]) for at, by_seed in line if seed in by_seed], own)
        if expected is not None:
            beside[seed] = expected
    return difference(accuracies(runs), beside)


def _least(
    runs: Runs, rate: float, cache: str, policies: Sequence[str], value: Callable[[Run, dict], float]
) -> float | None:
    found = [
        value(run, row)
        for run in runs
        for row in run["simulated"] or ()
        if row["store_rate"] == rate and row["cache"] == cache and row["policy"] in policies
    ]
    return min(found, default=None)
