"""Checks random crops, by made images whose pixels say which image this is and which part of it.

Red rises from left to right, green from top to bottom. Blue is the image's number in its class."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy
from PIL import Image

from benches.rivals.kinds import RATIO, SCALE

WIDTH, HEIGHT = 500, 375
CLASSES = 16
# Classes are of different sizes, so that no two labels can be taken for each other.
SMALLEST_CLASS = 17
# Between the blues of two images: more than JPEG changes them by.
BLUE_STEP = 8
QUALITY = 95
# A crop's edges are read to within a few pixels.
AREA_OFF, RATIO_OFF = 0.02, 0.1
# Limits that fair coins and random crops all but never cross: the share of flipped images, the
# deviation of areas.
FLIPPED = (0.35, 0.65)
LEAST_SPREAD = 0.15


def size_of_class(label: int) -> int:
    return SMALLEST_CLASS + label


def write(folder: Path, grain: int = 0) -> None:
    """Makes an ImageFolder of these images. By `grain` levels of noise filters and blurs show, too."""
    pixels = numpy.empty((HEIGHT, WIDTH, 3), numpy.int16)
    draw = numpy.random.default_rng(0)
    pixels[:, :, 0] = numpy.linspace(0, 255, WIDTH).round()[None, :]
    pixels[:, :, 1] = numpy.linspace(0, 255, HEIGHT).round()[:, None]
    for label in range(CLASSES):
        of_class = folder / f"class-{label:02}"
        of_class.mkdir(parents=True)
        for number in range(size_of_class(label)):
            pixels[:, :, 2] = number * BLUE_STEP
            noise = draw.integers(-grain, grain + 1, (HEIGHT, WIDTH, 1), numpy.int16)
            image = Image.fromarray((pixels + noise).clip(0, 255).astype(numpy.uint8))
            image.save(of_class / f"{number:02}.jpg", quality=QUALITY)


@dataclass
class Epoch:
    """The samples of an epoch and their crops."""

    order: list[tuple[int, int]] = field(default_factory=list)
    areas: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    flips: int = 0

    def add(self, image: numpy.ndarray, label: int) -> None:
        """Takes an image, height by width by RGB."""
        number = round(float(image[:, :, 2].mean()) / BLUE_STEP)
        self.order.append((int(label), number))
        across, down = _rise(image[:, :, 0].mean(axis=0)), _rise(image[:, :, 1].mean(axis=1))
        self.flips += across < 0
        self.areas.append(abs(across) * down)
        self.ratios.append(abs(across) * WIDTH / (down * HEIGHT))

    def faults(self, _files: Path) -> list[str]:
        """What is wrong with the epoch; empty if nothing is."""
        found = []
        expected = Counter({(label, number): 1 for label in range(CLASSES) for number in range(size_of_class(label))})
        came = Counter(self.order)
        missing, surplus = expected - came, came - expected
        if missing or surplus:
            wrong = [f"class {label} image {number}" for label, number in [*missing, *surplus][:2]]
            found.append(
                f"{missing.total()} samples missing, {surplus.total()} surplus or under a wrong label: {wrong}"
            )
        if self.areas:
            found += self._faults_of_crops()
        return found

    def _faults_of_crops(self) -> list[str]:
        found = []
        if min(self.areas) < SCALE[0] - AREA_OFF or max(self.areas) > SCALE[1] + AREA_OFF:
            found.append(f"crops of {min(self.areas):.2f} to {max(self.areas):.2f} of the image, not {SCALE}")
        if min(self.ratios) < RATIO[0] - RATIO_OFF or max(self.ratios) > RATIO[1] + RATIO_OFF:
            found.append(f"crops as wide as {min(self.ratios):.2f} to {max(self.ratios):.2f} of their height")
        if float(numpy.std(self.areas)) < LEAST_SPREAD:
            found.append("crops are of much the same size")
        if not FLIPPED[0] < self.flips / len(self.areas) < FLIPPED[1]:
            found.append(f"{self.flips} of {len(self.areas)} are flipped")
        return found


def _rise(means: numpy.ndarray) -> float:
    """How much of the image a crop's rows or columns go through: negative if backwards."""
    slope = numpy.polyfit(numpy.arange(len(means)), means, 1)[0]
    return float(slope) * len(means) / 255
