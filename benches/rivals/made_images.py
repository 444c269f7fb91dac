"""The images that the benches make: JPEGs like photographs, and small images of raw pixels."""

import subprocess
from pathlib import Path

import numpy

from benches.rivals.kinds import KINDS

PIXEL_CLASSES = 10


def make_jpegs(programs: Path, files: int, scratch: Path) -> Path:
    """An ImageFolder of the JPEGs of the Rust bench `pack`, 110 KB each, below `scratch`."""
    folder = scratch / "images"
    subprocess.run([programs / "shade-benches", "--images", folder, "--files", str(files)], check=True)
    (tree,) = folder.iterdir()
    return tree


def make_pixels(folder: Path, files: int) -> None:
    """An ImageFolder of PPM files: nothing to decode. Always the same files, and no two alike.

    They compress to half their size, as each pixel of noise stands four times."""
    side = KINDS["pixels"].side
    header = b"P6\n%d %d\n255\n" % (side, side)
    draw = numpy.random.default_rng(0)
    for label in range(PIXEL_CLASSES):
        of_class = folder / f"class-{label}"
        of_class.mkdir(parents=True)
        for number in range(label, files, PIXEL_CLASSES):
            noise = draw.integers(0, 256, (side // 2, side // 2, 3), numpy.uint8)
            (of_class / f"{number:06}.ppm").write_bytes(header + noise.repeat(2, axis=0).repeat(2, axis=1).tobytes())
