"""Comparing cells seed by seed. Accuracies here are in points: 0 to 100."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shade_load.compare.paired import (
    CONFIDENCE,
    MARGIN,
    SEEDS_FOR_A_VERDICT,
    holm,
    outside,
    quantile,
    standard_error,
    word,
)


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
        return self.mean - self._half_width

    @property
    def upper(self) -> float:
        """The one-sided 95 % bound above the mean."""
        return self.mean + self._half_width

    @property
    def _half_width(self) -> float:
        return self.error * _quantile(self.count, CONFIDENCE)

    def chance_above(self, value: float) -> float:
        """The one-sided p value of a mean that is above `value`; infinitely small if all differences are equal."""
        if self.error == 0:
            return 0.0 if self.mean > value else 1.0
        half = outside((self.mean - value) / self.error, self.count - 1) / 2
        return half if self.mean > value else 1 - half

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.lower:+.2f}, {self.upper:+.2f}]" if self.count > 1 else f"{self.mean:+.2f}"


# What a family of comparisons is asked: each question has its own correction.
_QUESTIONS: dict[str, Callable[[Difference], float]] = {
    "better": lambda found: found.chance_above(0.0),
    "worse": lambda found: replace(found, mean=-found.mean).chance_above(0.0),
    "as good": lambda found: found.chance_above(-MARGIN),
}


def verdicts(family: Mapping[str, Difference | None]) -> dict[str, str]:
    """What the study says of each comparison of a family. The answers to one question hold all at once with 95 % (Holm): see
    DESIGN.md. A comparison that has not run has an empty one, and one with few seeds has no part in the family."""
    judged = {name: found for name, found in family.items() if found is not None and found.count >= SEEDS_FOR_A_VERDICT}
    shown = {
        question: {name for name, p in holm({name: ask(found) for name, found in judged.items()}).items() if p < 1 - CONFIDENCE}
        for question, ask in _QUESTIONS.items()
    }

    def verdict(name: str) -> str:
        if name not in judged:
            return "" if family[name] is None else "too few seeds"
        return word(name in shown["better"], name in shown["worse"], name in shown["as good"])

    return {name: verdict(name) for name in family}


def mean(values: Sequence[float]) -> Mean:
    """The mean with Student's t interval; infinitely wide for one value."""
    return Mean(sum(values) / len(values), standard_error(values) * _quantile(len(values), (1 + CONFIDENCE) / 2), len(values))


def difference(values: Mapping[int, float], beside: Mapping[int, float]) -> Difference | None:
    """`values` - `beside` over the seeds that both have; None if there is none."""
    seeds = sorted(values.keys() & beside.keys())
    if not seeds:
        return None
    differences = [values[seed] - beside[seed] for seed in seeds]
    return Difference(sum(differences) / len(seeds), standard_error(differences), len(seeds))


def on_line(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """The line through `points`, sorted (x, y), at x = `at`; None outside of them."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= at <= x1:
            return y0 if x0 == x1 else y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return None


def _quantile(count: int, share: float) -> float:
    """One value has an infinite error, which any factor keeps."""
    return quantile(share, count - 1) if count > 1 else 1.0
