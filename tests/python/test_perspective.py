"""RandomPerspective in the daemon is torchvision's on PIL images, by corners as torchvision draws them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import packed
import pytest
import torch
from PIL import Image
from shade_load import Daemon, Loader, Plan
from shade_load.transforms import CenterCrop, RandomPerspective
from torchvision.transforms import functional
from torchvision.transforms.functional import InterpolationMode

WIDTH, HEIGHT = 31, 26
STEP = 8
# No red is as large.
OUTSIDE = (255, 7, 9)
CORNERS = [(0, 0), (WIDTH - 1, 0), (WIDTH - 1, HEIGHT - 1), (0, HEIGHT - 1)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """Images whose red and green tell where a pixel comes from. Their blue is noise."""
    folder = tmp_path_factory.mktemp("perspective")
    (folder / "images" / "all").mkdir(parents=True)
    down, right = np.mgrid[0:HEIGHT, 0:WIDTH]
    for number in range(4):
        noise = np.frombuffer(random.Random(number).randbytes(WIDTH * HEIGHT), np.uint8).reshape(HEIGHT, WIDTH)
        levels = np.stack([right * STEP, down * STEP, noise], axis=2).astype(np.uint8)
        Image.fromarray(levels).save(folder / "images" / "all" / f"{number}.png")
    return packed.pack(folder / "images", folder / "data.shade")


def ends_of(row: np.ndarray[Any, Any], is_blended: bool) -> list[list[int]]:
    """The places to which the corners have come, from red and green of a row."""
    lines, columns = np.nonzero(row[0] != OUTSIDE[0])
    x, y = columns + 0.5, lines + 0.5
    # Levels are cut, so that half a level is missing. A blended level is that of a pixel's middle.
    share = 0.5 / STEP if is_blended else 0.0
    from_x, from_y = (row[colour, lines, columns] / STEP + share + 0.5 for colour in (0, 1))
    none, one = np.zeros_like(x), np.ones_like(x)
    equations = np.concatenate([
        np.stack([x, y, one, none, none, none, -from_x * x, -from_x * y], axis=1),
        np.stack([none, none, none, x, y, one, -from_y * x, -from_y * y], axis=1),
    ])  # fmt: skip
    found = np.linalg.lstsq(equations, np.concatenate([from_x, from_y]), rcond=None)[0]
    back = np.linalg.inv(np.append(found, 1.0).reshape(3, 3))
    places = [back @ (x, y, 1.0) for x, y in CORNERS]
    return [[round(place[0] / place[2]), round(place[1] / place[2])] for place in places]


@pytest.mark.parametrize("mode", [InterpolationMode.NEAREST, InterpolationMode.BILINEAR, InterpolationMode.BICUBIC])
def test_a_row_is_torchvisions_for_the_corners_that_it_shows(dataset: packed.Packed, mode: InterpolationMode) -> None:
    ours = RandomPerspective(0.5, 0.75, mode.value, OUTSIDE)
    decode = [CenterCrop((HEIGHT, WIDTH)), ours]
    changed, seen = 0, [[Counter[int]() for _ in range(2)] for _ in CORNERS]
    options: dict[str, Any] = {"plan": Plan(sampler="uniform"), "daemon": Daemon(job="perspective")}
    with Loader(dataset.path, 4, decode=decode, **options) as loader:
        rows = [
            (sample, image.clone())
            for _ in range(30)
            for batch in loader
            for sample, image in zip(batch.ids.tolist(), batch.images, strict=True)
        ]
    for sample, row in rows:
        with Image.open(dataset.files[sample]) as image:
            if torch.equal(row, functional.pil_to_tensor(image)):
                continue
            changed += 1
            ends = ends_of(row.numpy().astype(float), mode is not InterpolationMode.NEAREST)
            expected = functional.perspective(image, [list(corner) for corner in CORNERS], ends, mode, list(OUTSIDE))
        assert torch.equal(row, functional.pil_to_tensor(expected)), f"{dataset.files[sample].name}, {ends}"
        for counts, end, corner in zip(seen, ends, CORNERS, strict=True):
            for axis, side in enumerate((WIDTH, HEIGHT)):
                moved = abs(end[axis] - corner[axis])
                assert moved <= int(0.5 * (side // 2))
                counts[axis][moved] += 1
    # Of 120 with a standard deviation of 5.
    assert 65 <= changed <= 115
    assert all(len(counts[axis]) > 4 for counts in seen for axis in range(2)), "each place is drawn"


