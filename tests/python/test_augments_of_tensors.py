"""AugMix and ElasticTransform in the daemon are version 2's of torchvision, which makes tensors of PIL images."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import documents
import numpy as np
import packed
import pytest
import torch
from PIL import Image
from shade_load import Daemon, Loader, Plan
from shade_load.transforms import AugMix, CenterCrop, ElasticTransform
from torchvision.transforms import functional, v2
from torchvision.transforms.functional import InterpolationMode

HEIGHT, WIDTH = 40, 52
WHOLE = CenterCrop((HEIGHT, WIDTH))
BINS = 10
Levels = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """Images of a row's size: noise, and softer ones."""
    folder = tmp_path_factory.mktemp("tensors")
    (folder / "images" / "all").mkdir(parents=True)
    source = random.Random(5)
    for number in range(4):
        noise = Image.frombytes("RGB", (WIDTH, HEIGHT), source.randbytes(3 * WIDTH * HEIGHT))
        small = Image.frombytes("RGB", (5, 4), source.randbytes(60)).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        Image.blend(noise, small, 0.3 * number).save(folder / "images" / "all" / f"{number}.png")
    return packed.pack(folder / "images", folder / "data.shade")


def source_of(dataset: packed.Packed, sample: int) -> torch.Tensor:
    with Image.open(dataset.files[sample]) as image:
        return functional.pil_to_tensor(image.convert("RGB"))


def rows(dataset: packed.Packed, step: Any, epochs: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Samples and their rows."""
    options: dict[str, Any] = {"plan": Plan(sampler="uniform"), "daemon": Daemon(job="tensors")}
    with Loader(dataset.path, 4, decode=[WHOLE, step], **options) as loader:
        for batch in itertools.chain.from_iterable(loader for _ in range(epochs)):
            yield from ((sample, image.clone()) for sample, image in zip(batch.ids.tolist(), batch.images, strict=True))


def linspace(start: float, end: float) -> list[float]:
    """`torch.linspace` number by number: with wide instructions torch's own is a rounding error off."""
    first, last = np.float32(start), np.float32(end)
    step = (last - first) / np.float32(BINS - 1)
    half = BINS // 2
    return [float(first + step * np.float32(at) if at < half else last - step * np.float32(BINS - 1 - at)) for at in range(BINS)]


def outcomes(policy: Any, image: torch.Tensor, all_ops: bool, severity: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Everything that one operation of a chain may make of an image."""
    space = v2.AugMix._AUGMENTATION_SPACE if all_ops else v2.AugMix._PARTIAL_AUGMENTATION_SPACE
    for name, (magnitudes_of, signed) in space.items():
        magnitudes = magnitudes_of(BINS, HEIGHT, WIDTH)
        numbers = [0.0]
        if magnitudes is not None and magnitudes.is_floating_point():
            numbers = linspace(float(magnitudes[0]), float(magnitudes[-1]))[:severity]
        elif magnitudes is not None:
            numbers = magnitudes.tolist()[:severity]
        for number in numbers + [-number for number in numbers if signed]:
            options = {"interpolation": policy.interpolation, "fill": policy._fill}
            yield name, policy._apply_image_or_video_transform(image, name, number, **options)


def share_of(row: Levels, image: Levels, other: Levels) -> float:
    """The share of the image in a mixture whose whole parts are the row's levels."""
    apart = image - other
    return float(np.clip(((row + 0.5 - other) * apart).sum() / max((apart * apart).sum(), 1e-9), 0.0, 1.0))


@pytest.mark.parametrize(
    "options",
    [{"severity": 10}, {"all_ops": False, "interpolation": InterpolationMode.NEAREST, "fill": [9, 200, 30]}, {"fill": 0}],
)
def test_a_row_is_a_mixture_of_the_image_and_one_of_torchvisions_operations(
    dataset: packed.Packed, options: dict[str, Any]
) -> None:
    policy = v2.AugMix(mixture_width=1, chain_depth=1, **options)
    images = {sample: source_of(dataset, sample) for sample in range(len(dataset))}
    possible = {
        sample: [(name, other.numpy().astype(float)) for name, other in outcomes(policy, image, policy.all_ops, policy.severity)]
        for sample, image in images.items()
    }
    seen, shares = set(), []
    for sample, row in rows(dataset, policy, epochs=25):
        image, levels = images[sample].numpy().astype(float), row.numpy().astype(float)
        best = None
        for name, other in possible[sample]:
            share = share_of(levels, image, other)
            apart = np.abs(np.floor(share * image + (1.0 - share) * other) - levels)
            # Which pixel is the nearest follows from torch's product of matrices, whose last bit is
            # another one with each kind of CPU: in the middle between two, it may be the other.
            off = (apart > 1.0).any(axis=0).mean(), float(apart.max())
            if best is None or off < best[0]:
                best = off, name, share, np.abs(image - other).mean()
        assert best is not None and best[0][0] < 0.005, f"{dataset.files[sample].name}: {best}"
        seen.add(best[1])
        shares += [best[2]] if best[3] > 8.0 else []
    # One that changes little, or of a small share, looks like another.
    assert len(seen) >= (10 if policy.all_ops else 6), seen
    # They are evenly distributed, but a row that is nearly the image may look like another mixture.
    assert 0.3 < np.mean(shares) < 0.6 and min(shares) < 0.1 and max(shares) > 0.8


def test_chains_are_torchvisions_to_the_last_level(dataset: packed.Packed) -> None:
    """With so small an alpha nearly every row is the image or what one chain made of it."""
    policy = v2.AugMix(severity=2, mixture_width=2, chain_depth=2, alpha=0.001)
    possible = {}
    for sample in range(2):
        image = source_of(dataset, sample)
        twice = (second for _, first in outcomes(policy, image, True, 2) for _, second in outcomes(policy, first, True, 2))
        possible[sample] = {image.numpy().tobytes(), *(each.numpy().tobytes() for each in twice)}
    exact = [row.numpy().tobytes() in possible[sample] for sample, row in rows(dataset, policy, epochs=50) if sample < 2]
    # A few are mixtures all the same.
    assert len(exact) == 100 and sum(exact) >= 94


def test_torchvisions_own_objects_are_taken() -> None:
    for theirs, ours in (
        (v2.AugMix(), AugMix()),
        (v2.AugMix(5, 2, 4, 0.5, False, "nearest", 7), AugMix(5, 2, 4, 0.5, False, "nearest", 7)),
        (v2.ElasticTransform(), ElasticTransform()),
        (v2.ElasticTransform([30.0, 0.0], 3.0, InterpolationMode.NEAREST, None), ElasticTransform((30, 0), 3, "nearest", None)),
    ):
        assert documents.view([CenterCrop(64), theirs]) == documents.view([CenterCrop(64), ours])


STEP = 4


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """Images whose red and green tell where a pixel comes from."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "images" / "all").mkdir(parents=True)
    down, right = np.mgrid[0:HEIGHT, 0:WIDTH]
    levels = np.stack([right * STEP, down * STEP, np.full_like(down, 255)], axis=2).astype(np.uint8)
    for number in range(4):
        Image.fromarray(levels).save(folder / "images" / "all" / f"{number}.png")
    return packed.pack(folder / "images", folder / "data.shade")


def moved(row: Levels) -> Levels:
    """Pixels by which each place has moved, to the right and down, far from the edges."""
    down, right = np.mgrid[0:HEIGHT, 0:WIDTH]
    fields = np.stack([row[0] / STEP - right, row[1] / STEP - down])
    return fields[:, 10:-10, 10:-10]


@pytest.mark.parametrize(("alpha", "sigma"), [((60.0, 30.0), (2.0, 3.0)), ((9.0, 9.0), (0.0, 0.0))])
def test_fields_are_as_large_and_as_smooth_as_torchvisions(
    places: packed.Packed, alpha: tuple[float, float], sigma: tuple[float, float]
) -> None:
    torch.manual_seed(1)
    theirs = v2.ElasticTransform(list(alpha), list(sigma))
    image = source_of(places, 0)
    both = [row for _, row in rows(places, theirs, epochs=20)], [theirs(image) for _ in range(80)]
    found = [np.stack([moved(row.numpy().astype(float)) for row in each]) for each in both]
    for axis in (0, 1):
        ours, expected = (fields[:, axis] for fields in found)
        assert abs(ours.mean() - expected.mean()) < 0.3 * expected.std()
        assert 0.85 < ours.std() / expected.std() < 1.15
        for along in (1, 2):
            assert 0.85 < np.diff(ours, axis=along).std() / np.diff(expected, axis=along).std() < 1.15
    assert len({row.numpy().tobytes() for _, row in rows(places, theirs, epochs=2)}) == 8, "each row has its own"


def test_without_a_field_nothing_moves(dataset: packed.Packed) -> None:
    for sample, row in rows(dataset, ElasticTransform(0.0), epochs=1):
        assert torch.equal(row, source_of(dataset, sample))
