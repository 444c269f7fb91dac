"""Sizes of images for batches of one aspect ratio."""

from __future__ import annotations

from fractions import Fraction

from .options import IMAGE_SIDE_MAX, integer, number


def bucket_sizes(side: int, step: int = 64, ratio: float = 2.0) -> list[tuple[int, int]]:
    """Heights and widths for `Plan(bucket=...)`, from the tallest to the widest.

        Plan(bucket=bucket_sizes(512))  # [(640, 384), (576, 448), (512, 512), ...]

    No size has more pixels than a square of `side`, so that a model that takes an image as tokens
    gets about one number of them.

    Args:
        side: Of the square, in pixels.
        step: Heights and widths are multiples of it. Default: 64, as for latents of an eighth of an
            image and three more halvings.
        ratio: Largest quotient of an image's two sides. Default: 2.0.
    """
    side = integer("side", side, 1, IMAGE_SIDE_MAX)
    step = integer("step", step, 1, side)
    ratio = number("ratio", ratio, 1, IMAGE_SIDE_MAX)
    sizes: dict[Fraction, tuple[int, int]] = {}
    # The square last: of two sizes of one ratio the larger one stays.
    for short in range(step, side + 1, step):
        long = min(side * side // short, IMAGE_SIDE_MAX) // step * step
        if long <= ratio * short:
            sizes |= {Fraction(long, short): (long, short), Fraction(short, long): (short, long)}
    return [sizes[quotient] for quotient in sorted(sizes, reverse=True)]
