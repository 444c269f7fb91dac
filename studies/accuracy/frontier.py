"""What a cell costs, and permutations with fewer epochs at the same cost.

The cost is bytes read or time. Both depend on cache and store, which `shade-load simulate` has
played for the recorded seed of each cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from studies.accuracy.cells import CELLS
from studies.accuracy.results import Run
from studies.accuracy.settings import SAMPLES_PER_SECOND
from studies.accuracy.statistics import Difference, difference, on_line

Runs = Sequence[Run]
# The permutations that are the baseline: all their epochs, and fewer.
BASELINE = tuple(
    name
    for name, cell in CELLS.items()
    if dict(cell.plan) == {"sampler": "uniform"} and cell.is_plain and not cell.daemon
)
# The rate of the store at which bytes are counted. A slower store reads a little less: more repeats
# come while their record is being read.
RATE_OF_BYTES = 0.5


def accuracies(runs: Runs) -> dict[int, float]:
    """Test accuracy at the end by seed, in points."""
    return {run["seed"]: 100 * run["test_accuracy"] for run in runs}


def own_policy(runs: Runs) -> tuple[str, ...]:
    """The policy that the runs had. One that substitutes samples is not simulated."""
    return tuple({run["options"]["daemon"].get("policy", "lookahead") for run in runs})


def bytes_read(runs: Runs, cache: str, policies: Sequence[str], rate: float = RATE_OF_BYTES) -> float | None:
    """Bytes of a whole training with this cache, by the policy that reads least."""
    return _least(runs, rate, cache, policies, lambda run, row: row["bytes_read"])


def time_taken(runs: Runs, rate: float, cache: str, policies: Sequence[str]) -> float | None:
    """Seconds of a whole training, computing and waiting."""
    return _least(runs, rate, cache, policies, lambda run, row: compute_time(run) * (1 + row["stall_share"]))


def compute_time(run: Run) -> float:
    """Seconds of a training that never waits."""
    return run["samples_trained"] / SAMPLES_PER_SECOND


def at_equal_cost(
    runs: Runs, cells: Mapping[str, Runs], cost: Callable[[Runs, Sequence[str]], float | None]
) -> Difference | None:
    """The cell beside the line through permutations at the cell's cost; None if it costs less than
    the cheapest of them. A cell that costs more than the dearest stands beside that one.

    Permutations have the policy that suits them best: `lookahead` and `static` are both tried. Only
    baselines with all of the cell's seeds are on the line."""
    own = cost(runs, own_policy(runs))
    seeds = accuracies(runs).keys()
    line = []
    for name in BASELINE:
        by_seed = accuracies(cells.get(name, ()))
        at = cost(cells.get(name, ()), ("lookahead", "static"))
        if at is not None and seeds <= by_seed.keys():
            line.append((at, by_seed))
    if own is None or not line:
        return None
    line.sort(key=lambda point: point[0])
    own = min(own, line[-1][0])
    beside = {seed: on_line([(at, by_seed[seed]) for at, by_seed in line], own) for seed in seeds}
    return difference(accuracies(runs), {seed: value for seed, value in beside.items() if value is not None})


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
