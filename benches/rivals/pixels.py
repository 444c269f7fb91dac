"""Small images as PPM files: nothing to decode. They compress to half, as each pixel of noise stands four times."""

from pathlib import Path

import numpy

from benches.rivals.kinds import KINDS

CLASSES = 10


def write(folder: Path, files: int) -> None:
    """An ImageFolder of them, always the same; no two are alike."""
    side = KINDS["pixels"].side
    header = b"P6\n%d %d\n255\n" % (side, side)
    draw = numpy.random.default_rng(0)
    for label in range(CLASSES):
        of_class = folder / f"class-{label}"
        of_class.mkdir(parents=True)
        for number in range(label, files, CLASSES):
            noise = draw.integers(0, 256, (side // 2, side // 2, 3), numpy.uint8)
            (of_class / f"{number:06}.ppm").write_bytes(header + noise.repeat(2, axis=0).repeat(2, axis=1).tobytes())
