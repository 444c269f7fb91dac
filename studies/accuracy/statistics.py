"""Comparing cells seed by seed. Accuracies here are in points: 0 to 100."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import t

# A cell is as good as another if it is less than this worse, in points.
MARGIN = 0.5
CONFIDENCE = 0.95


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
    """The mean of paired differences, and the one-sided 95 % bounds below and above it."""

    mean: float
    lower: float
    upper: float
    count: int

    @property
    def verdict(self) -> str:
        """What the study says: see DESIGN.md."""
        if self.lower > 0:
            return "better"
        as_good = self.lower > -MARGIN
        if self.upper < 0:
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
    average = sum(differences) / len(seeds)
    margin = _error(differences) * _quantile(len(seeds), CONFIDENCE)
    return Difference(average, average - margin, average + margin, len(seeds))


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
