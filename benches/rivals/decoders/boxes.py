"""The box of a random crop, for those who leave it to their user."""

import math
import random

from benches.rivals.kinds import RATIO, SCALE

# As often as torchvision tries.
TRIES = 10


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """RandomResizedCrop's left, top, width and height: the whole image, but for its margins, where no box fits."""
    for _ in range(TRIES):
        area = width * height * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(*map(math.log, RATIO)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return random.randint(0, width - wide), random.randint(0, height - high), wide, high
    wide, high = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return (width - wide) // 2, (height - high) // 2, wide, high
