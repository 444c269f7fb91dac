"""A ledger of what a trainer is given: every id as often as planned, each with its label, its own
pixels and a crop that may be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy

from benches.jobs.pictures import CLASSES, STEP, Crops

SCALE, RATIO = (0.25, 1.0), (3 / 4, 4 / 3)
# A crop's edges are measured to within a few pixels.
AREA_OFF, RATIO_OFF = 0.08, 0.2
# Fair coins all but never cross these over an epoch of some hundred images.
FLIPPED = (0.35, 0.65)
# Least deviation of the crops' areas: that of equally likely areas is 0.22.
LEAST_SPREAD = 0.15


class Ledger:
    """The samples, labels and crops that came, and what was wrong."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._came = numpy.zeros(samples, numpy.int64)
        self._areas: list[numpy.ndarray] = []
        self._flipped = 0
        self.rows = 0
        self.faults: Counter[str] = Counter()

    def add(self, ids: numpy.ndarray, labels: numpy.ndarray, images: numpy.ndarray) -> None:
        """Takes a batch: ids, labels and [n, 3, height, width] of bytes."""
        self.rows += len(ids)
        self._fault("no such sample", (ids < 0) | (ids >= self._samples))
        ids = ids.clip(0, self._samples - 1)
        numpy.add.at(self._came, ids, 1)
        self._fault("another label", labels != ids // (self._samples // CLASSES))
        crops = Crops.of(ids, images)
        self._fault("pixels of another sample", crops.blue_off > STEP / 2)
        areas = numpy.abs(crops.across) * crops.down
        self._fault("a crop too small or too large", (areas < SCALE[0] - AREA_OFF) | (areas > SCALE[1] + AREA_OFF))
        # Relative to the image's own sides, which are 4 to 3.
        ratios = numpy.abs(crops.across) * 4 / (crops.down * 3)
        self._fault("a crop too wide or too high", (ratios < RATIO[0] - RATIO_OFF) | (ratios > RATIO[1] + RATIO_OFF))
        self._areas.append(areas)
        self._flipped += int((crops.across < 0).sum())

    def end_epoch(self, planned: int, distinct: int) -> None:
        """The epoch was planned to have so many rows of so many different samples."""
        came, self._came = self._came, numpy.zeros(self._samples, numpy.int64)
        self.faults["an epoch of another length"] += int(came.sum() != planned)
        self.faults["other samples than planned"] += int((came > 0).sum() != distinct)

    def result(self) -> dict[str, Any]:
        """Figures, with what was wrong; `faults` is empty if nothing was."""
        areas = numpy.concatenate(self._areas)
        flipped = self._flipped / self.rows
        self.faults["crops much alike"] += int(float(areas.std()) < LEAST_SPREAD)
        self.faults["mirrored too often or too seldom"] += int(not FLIPPED[0] < flipped < FLIPPED[1])
        found = {name: count for name, count in self.faults.items() if count}
        return {"rows": self.rows, "faults": found, "mean_area": round(float(areas.mean()), 4), "flipped": round(flipped, 4)}

    def _fault(self, name: str, wrong: numpy.ndarray) -> None:
        self.faults[name] += int(wrong.sum())
