"""Comparing cells seed by seed. Accuracies here are in points: 0 to 100."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import t

# A cell is as good as another if it is less than this worse, in points.
MARGIN = 0.5
CONFIDENCE = 0.95
# With fewer seeds there is no verdict: the interval of two or three is mostly chance.
SEEDS_FOR_A_VERDICT = 4


@dataclass(frozen=True)
class Mean:
    """A mean and the half width of its two-sided 95 % interval, in points."""

    value: float
    half_width: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.half_width:.2f}" if self.count > 1 else f"{self.value:.2f}"


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences and its standard error, over `count` seeds."""

    mean: float
    error: float
    count: int

    @property
    def lower(self) -> float:
        """The one-sided 95 % bound below the mean."""
        return self.bounds(1)[0]

    @property
    def upper(self) -> float:
        """The one-sided 95 % bound above the mean."""
        return self.bounds(1)[1]

    def bounds(self, comparisons: int) -> tuple[float, float]:
        """One-sided bounds that all hold with 95 % where this is one of `comparisons` (Bonferroni)."""
        half = self.error * _quantile(self.count, 1 - (1 - CONFIDENCE) / comparisons)
        return self.mean - half, self.mean + half

    def verdict(self, comparisons: int) -> str:
        """What the study says of one of `comparisons`: see DESIGN.md."""
        if self.count < SEEDS_FOR_A_VERDICT:
            return "too few seeds"
        lower, upper = self.bounds(comparisons)
        if lower > 0:
            return "better"
        as_good = lower > -MARGIN
        if upper < 0:
            return "worse, within the margin" if as_good else "worse"
        return "as good" if as_good else "not told"

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.lower:+.2f}, {self.upper:+.2f}]" if self.count > 1 else f"{self.mean:+.2f}"


def mean(values: Sequence[float]) -> Mean:
    """The mean with Student's t interval; infinitely wide for one value."""
    return Mean(sum(values) / len(values), _error(values) * _quantile(len(values), (1 + CONFIDENCE) / 2), len(values))


def difference(values: Mapping[int, float], beside: Mapping[int, float]) -> Difference | None:
    """`values` - `beside` over the seeds that both have; None if there is none."""
    seeds = sorted(values.keys() & beside.keys())
    if not seeds:
        return None
    differences = [values[seed] - beside[seed] for seed in seeds]
    return Difference(sum(differences) / len(seeds), _error(differences), len(seeds))


def on_line(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """The line through `points`, sorted (x, y), at x = `at`; None outside of them."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= at <= x1:
            return y0 if x0 == x1 else y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return None


def _error(values: Sequence[float]) -> float:
    """The standard error of the mean."""
    count = len(values)
    if count < 2:
        return math.inf
    average = sum(values) / count
    return math.sqrt(sum((value - average) ** 2 for value in values) / (count - 1) / count)


def _quantile(count: int, share: float) -> float:
    return float(t.ppf(share, count - 1)) if count > 1 else 1.0
