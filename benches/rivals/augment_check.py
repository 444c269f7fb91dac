"""Checks augmented images of `crop_check`: every sample is there with its label, and the recipe shows.

Colours no longer say which part of an image this is. How many are grey, and how many have other
colours, says whether the recipe is applied; a system's crops and flips are checked without it, in `decode`."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy

from benches.rivals.image_folder import list_samples
# In `crop_check`'s images blue is the same everywhere. Its deviation, in levels, where it is
# changed with the other colours; and the least share of images that show it.
BLUE_DEVIATION, BLUE_SHARE = 2.0, 0.5
# Colours of a grey pixel differ by no more: some systems blur each for itself.
GREY_OFF = 2
# Standard deviations that a fair share of grey images all but never is off.
SHARE_OFF = 5


@dataclass
class Epoch:
    """The labels of an epoch, and what the recipe made of its images: `grey_p` of them are grey."""

    grey_p: float
    order: list[tuple[int, float]] = field(default_factory=list)
    greys: int = 0
    jittered: int = 0

    def add(self, image: numpy.ndarray, label: int) -> None:
        """Takes an image, height by width by RGB."""
        levels = image.astype(numpy.int16)
        spread = levels.max(axis=2) - levels.min(axis=2)
        self.greys += bool(spread.max() <= GREY_OFF)
        self.jittered += bool(image[:, :, 2].std() >= BLUE_DEVIATION)
        self.order.append((label, float(image.mean())))

    def faults(self, folder: Path) -> list[str]:
        """What is wrong with the epoch of the ImageFolder `folder`."""
        expected = Counter(label for _path, label in list_samples(folder))
        found = Counter(label for label, _mean in self.order)
        faults = [] if found == expected else [f"samples of each label: got {found}, expected {expected}"]
        count = len(self.order)
        off = SHARE_OFF * (count * self.grey_p * (1 - self.grey_p)) ** 0.5
        if abs(self.greys - self.grey_p * count) > off:
            faults.append(f"{self.greys} of {count} images are grey, expected {self.grey_p * count:.0f}")
        if self.jittered < BLUE_SHARE * count:
            faults.append(f"only {self.jittered} of {count} images have changed colours")
        return faults
