"""Checks recipes: every sample is there with its label, and images are distributed as they have to be.

A few features of each view are compared with those of torchvision's and timm's transforms over the
same files: levels, contrast, colour, sharpness, and where the image is brighter. A wrong crop, filter,
flip, blur or change of colours shows in one of them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy

from benches.rivals.image_folder import list_samples

# The features that others are compared with, beside the files that they are of.
REFERENCE = "reference.npy"
# The greatest distance of two distributions of a feature: the greatest difference of their shares
# below any level. 784 draws of one distribution and 784 others differ by more in one of ten million
# cases.
DISTANCE_MAX = 0.15
# For a system that lacks steps of a recipe, which it says.
DISTANCE_WITHOUT_MAX = 0.4
FEATURES = (
    *(f"mean of {colour}" for colour in ("red", "green", "blue")),
    *(f"deviation of {colour}" for colour in ("red", "green", "blue")),
    "red beside green",
    "green beside blue",
    "sharpness across",
    "sharpness down",
    "redder to the right",
    "greener to the bottom",
)


@dataclass
class Epoch:
    """An epoch's labels and the features of its images, views x `FEATURES` for a sample."""

    order: list[tuple[int, float]] = field(default_factory=list)
    features: list[numpy.ndarray] = field(default_factory=list)

    def add(self, views: Iterable[numpy.ndarray], label: int) -> None:
        """Takes a sample's views, each RGB by height by width."""
        self.features.append(numpy.stack([_features(view) for view in views]))
        self.order.append((label, float(self.features[-1][0, 0])))

    def faults(self, files: Path) -> list[str]:
        """What is wrong with the labels of an epoch of the ImageFolder `files`."""
        expected = Counter(label for _path, label in list_samples(files))
        found = Counter(label for label, _level in self.order)
        return [] if found == expected else [f"samples of each label: got {found}, expected {expected}"]


def keep(epochs: list[Epoch], folder: Path) -> None:
    """Writes what other systems' images are compared with."""
    numpy.save(folder / REFERENCE, _all(epochs))


def differences(epochs: list[Epoch], folder: Path, distance_max: float) -> list[str]:
    """The features that are not distributed as those that `keep` has written."""
    found, expected = _all(epochs), numpy.load(folder / REFERENCE)
    if found.shape[1:] != expected.shape[1:]:
        return [f"{found.shape[1]} views, expected {expected.shape[1]}"]
    faults = []
    for view in range(expected.shape[1]):
        for number, name in enumerate(FEATURES):
            off = distance(found[:, view, number], expected[:, view, number])
            if off > distance_max:
                means = [float(each[:, view, number].mean()) for each in (found, expected)]
                faults.append(
                    f"view {view}: {name} is distributed otherwise: {off:.2f} of the images, at most {distance_max} "
                    f"(mean {means[0]:.3f}, expected {means[1]:.3f})"
                )
    return faults


def distance(some: numpy.ndarray, others: numpy.ndarray) -> float:
    """The distance of two samples of a distribution, as Kolmogorov and Smirnov have it."""
    levels = numpy.concatenate([some, others])
    shares = [numpy.searchsorted(numpy.sort(each), levels, side="right") / len(each) for each in (some, others)]
    return float(numpy.abs(shares[0] - shares[1]).max())


def _all(epochs: list[Epoch]) -> numpy.ndarray:
    return numpy.stack([features for epoch in epochs for features in epoch.features])


def _features(view: numpy.ndarray) -> numpy.ndarray:
    red, green, blue = view
    height, width = red.shape
    steps = [float(numpy.abs(numpy.diff(green, axis=axis)).mean()) for axis in (1, 0)]
    to_the_right = red[:, width // 2 :].mean() - red[:, : width // 2].mean()
    to_the_bottom = green[height // 2 :].mean() - green[: height // 2].mean()
    beside = (float((red - green).std()), float((green - blue).std()))
    return numpy.array([*view.mean((1, 2)), *view.std((1, 2)), *beside, *steps, to_the_right, to_the_bottom])
