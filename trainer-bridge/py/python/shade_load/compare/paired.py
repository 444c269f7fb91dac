"""Paired differences over seeds: Student's t, Holm's correction, and what they allow to say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
# With fewer seeds there is no verdict: the interval of two or three is mostly chance.
SEEDS_FOR_A_VERDICT = 4
# A cell is as good as another if it is less than this worse, in points of a score from 0 to 100.
MARGIN = 0.5
# More seeds than anybody trains.
_SEEDS_MAX = 100
# Halvings of an angle: more than a float has bits.
_HALVINGS = 60


@dataclass(frozen=True)
class Paired:
    """The mean of paired differences and its standard error, over `count` seeds."""

    mean: float
    error: float
    count: int

    @classmethod
    def of(cls, differences: Sequence[float]) -> Paired:
        return cls(sum(differences) / len(differences), standard_error(differences), len(differences))

    def interval(self) -> tuple[float, float]:
        """The two-sided 95 % interval of this difference alone."""
        half = self.error * quantile((1 + CONFIDENCE) / 2, self.count - 1) if self.count > 1 else math.inf
        return self.mean - half, self.mean + half

    def chance(self) -> float:
        """The two-sided chance of a mean this far from 0 where there is no difference."""
        return self._chance_beyond(abs(self.mean))

    def chance_of_loss(self, margin: float) -> float:
        """Twice the chance of such a mean where the difference is `-margin`: below 0.05 if the interval is above it."""
        distance = self.mean + margin
        return self._chance_beyond(distance) if distance > 0 else 1.0

    def seeds_for(self, margin: float) -> int | None:
        """About how many seeds make the interval as narrow as the margin; None if these do, or 100 do not."""
        deviation = self.error * math.sqrt(self.count)

        def is_narrow(count: int) -> bool:
            return deviation / math.sqrt(count) * quantile((1 + CONFIDENCE) / 2, count - 1) <= margin

        if self.count < 2 or is_narrow(self.count):
            return None
        return next((count for count in range(self.count + 1, _SEEDS_MAX + 1) if is_narrow(count)), None)

    def _chance_beyond(self, distance: float) -> float:
        if self.count < 2 or distance == 0:
            return 1.0
        return outside(distance / self.error if self.error else math.inf, self.count - 1)


def word(is_above: bool, is_below: bool, is_inside: bool) -> str:
    """The verdict, where a difference is shown to be above 0, below 0, or above the margin's other side."""
    if is_above:
        return "better"
    if is_below:
        return "worse, within the margin" if is_inside else "worse"
    return "as good" if is_inside else "not told"


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Each chance as it counts where it is one of these: the least one times their number, and so on (Holm, 1979)."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    for place, name in enumerate(sorted(chances, key=lambda name: chances[name])):
        largest = max(largest, min(1.0, (len(chances) - place) * chances[name]))
        adjusted[name] = largest
    return adjusted


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the mean; infinite for one value."""
    count = len(values)
    if count < 2:
        return math.inf
    average = sum(values) / count
    return math.sqrt(sum((value - average) ** 2 for value in values) / (count - 1) / count)


def outside(distance: float, degrees: int) -> float:
    """The chance that Student's t is further from 0 than `distance`: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    return _outside(math.atan(abs(distance) / math.sqrt(degrees)), degrees)


def quantile(share: float, degrees: int) -> float:
    """The value below which `share` of Student's distribution lies, 0.5 to 1."""
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        angle = (low + high) / 2
        if _outside(angle, degrees) > 2 * (1 - share):
            low = angle
        else:
            high = angle
    return math.sqrt(degrees) * math.tan(low)


def _outside(angle: float, degrees: int) -> float:
    """The sums are finite, as degrees of freedom are whole."""
    cosine, is_odd = math.cos(angle), degrees % 2
    term = cosine if is_odd else 1.0
    total = 0.0 if degrees == 1 else term
    for factor in range(2 + is_odd, degrees, 2):
        term *= (factor - 1) / factor * cosine**2
        total += term
    inside = math.sin(angle) * total
    return max(0.0, 1 - (2 / math.pi * (angle + inside) if is_odd else inside))
