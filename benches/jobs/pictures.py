"""Real PNGs and JPEGs whose pixels say which sample this is, and which part of it: for a ledger of
what trainers are given.

Red rises from left to right, green from top to bottom, blue is a code of the sample. Noise makes
them as large, and as much work to decode, as photographs of their size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy
from PIL import Image

CLASSES = 10
# Width and height: of ImageNet's JPEGs, and of PNGs about as large as those in bytes.
JPEG_SIZE, PNG_SIZE = (500, 375), (160, 120)
QUALITY = 90
NOISE = 16.0
# Red and green go from the first to the last, which leaves room for the noise.
DARK, BRIGHT = 48, 208
# Blues. Two neighbours differ by far more than a mean over a crop is off.
CODES = 21
STEP = (BRIGHT - DARK) // (CODES - 1)


def blue(ids: numpy.ndarray) -> numpy.ndarray:
    """The blue of samples. Those of neighbours in the dataset differ."""
    return DARK + STEP * (ids * 8 % CODES)


def write(folder: Path, samples: int) -> None:
    """An ImageFolder with equally many images in each class. Every other image is a PNG. Always the
    same files, and no two alike."""
    per_class = samples // CLASSES
    for label in range(CLASSES):
        (folder / f"class-{label:02}").mkdir(parents=True)
        for number in range(per_class):
            sample = label * per_class + number
            size, suffix = (PNG_SIZE, "png") if number % 2 else (JPEG_SIZE, "jpg")
            # The quality is a JPEG's. A PNG is without loss.
            Image.fromarray(_drawn(sample, *size)).save(folder / f"class-{label:02}" / f"{number:05}.{suffix}", quality=QUALITY)


def _drawn(sample: int, width: int, height: int) -> numpy.ndarray:
    pixels = numpy.empty((height, width, 3))
    pixels[:, :, 0] = numpy.linspace(DARK, BRIGHT, width)[None, :]
    pixels[:, :, 1] = numpy.linspace(DARK, BRIGHT, height)[:, None]
    pixels[:, :, 2] = blue(numpy.int64(sample))
    pixels += numpy.random.default_rng(sample).normal(0.0, NOISE, pixels.shape)
    return pixels.round().clip(0, 255).astype(numpy.uint8)


@dataclass(frozen=True)
class Crops:
    """What is seen of images: [n, 3, height, width] of bytes."""

    # How far the mean blue is off the sample's.
    blue_off: numpy.ndarray
    # Share of the image's width and height. A width below 0: the image is mirrored.
    across: numpy.ndarray
    down: numpy.ndarray

    @classmethod
    def of(cls, ids: numpy.ndarray, images: numpy.ndarray) -> Crops:
        """Measures each image. Every other row and column tells enough."""
        seen = images[:, :, ::2, ::2]
        off = numpy.abs(seen[:, 2].mean((1, 2)) - blue(ids))
        return cls(off, _rise(seen[:, 0].mean(1)), _rise(seen[:, 1].mean(2)))


def _rise(profiles: numpy.ndarray) -> numpy.ndarray:
    """How much of an image each profile [n, places] goes through."""
    places = numpy.arange(profiles.shape[1]) - (profiles.shape[1] - 1) / 2
    slopes = profiles @ places / (places @ places)
    return slopes * profiles.shape[1] / (BRIGHT - DARK)
