"""Trainings of a group decode each image once for all of them, and get equal crops."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
import torch
from shade_load import Daemon, Loader, Plan
from shade_load.transforms import (
    ColorJitter,
    GaussianBlur,
    RandomApply,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    TrivialAugmentWide,
)

BATCH = 8
EPOCHS = 2
CROPS = [RandomResizedCrop(24), RandomHorizontalFlip()]


@pytest.fixture(params=["png", "jpeg"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> packed.Packed:
    packed.image_folder(tmp_path / "folder", request.param)
    return packed.pack(tmp_path / "folder", tmp_path / "data.shade")


@contextmanager
def together(
    dataset: packed.Packed, *plans: Plan, decode_once: int | str = "256MiB", decodes: Sequence[Any] = ()
) -> Iterator[list[Loader]]:
    """One Loader for each plan, with seeds from 0 on, all on one daemon; each with CROPS or its own of `decodes`."""
    loaders = [
        Loader(
            dataset.path,
            BATCH,
            decode=decodes[seed] if decodes else CROPS,
            seed=seed,
            plan=plan,
            daemon=Daemon(job=f"job-{seed}", decode_once=decode_once),
        )
        for seed, plan in enumerate(plans)
    ]
    assert len({loader.daemon_pid for loader in loaders}) == 1
    yield loaders
    for loader in loaders:
        loader.close()


def epoch(loaders: list[Loader]) -> list[list[tuple[int, bytes]]]:
    """Ids and pixels that each training gets in its next epoch, side by side."""
    rows: list[list[tuple[int, bytes]]] = [[] for _ in loaders]
    for batches in zip(*loaders, strict=True):
        for seed, (loader, batch) in enumerate(zip(loaders, batches, strict=True)):
            pixels, ids = np.asarray(batch.images), batch.ids.tolist()
            rows[seed] += [(sample, image.tobytes()) for sample, image in zip(ids, pixels, strict=True)]
            # Each training finds other samples hard.
            loader.report(batch, torch.tensor([float((sample * 7 + seed) % 5) for sample in ids]))
    return rows


def copied(loaders: list[Loader]) -> int:
    """Rows that were copied, of all trainings."""
    return sum(job["copied"] for job in loaders[0].stats()["jobs"])


def test_images_are_equal_and_decoded_once(dataset: packed.Packed) -> None:
    with together(dataset, *[Plan(group="sweep")] * 3) as loaders:
        seen: set[bytes] = set()
        for _ in range(EPOCHS):
            first, *others = epoch(loaders)
            assert sorted(sample for sample, _ in first) == list(range(len(dataset)))
            assert all(other == first for other in others)
            assert seen.isdisjoint(image for _, image in first), "each epoch has crops of its own"
            seen.update(image for _, image in first)
        # The next epoch may be filled already.
        rows = EPOCHS * len(dataset)
        assert 2 * rows <= copied(loaders) <= 2 * (rows + len(dataset)), "three trainings, one of them decodes"
        assert loaders[0].stats()["decoded_bytes"] > 0


def test_without_a_group_each_decodes_for_itself(dataset: packed.Packed) -> None:
    with together(dataset, Plan(), Plan()) as loaders:
        first, second = epoch(loaders)
        assert first != second
        assert copied(loaders) == 0


def test_the_window_changes_no_pixel(dataset: packed.Packed) -> None:
    images = []
    for decode_once in (0, "256MiB"):
        with together(dataset, *[Plan(group="sweep")] * 2, decode_once=decode_once) as loaders:
            images.append(epoch(loaders))
            assert (copied(loaders) > 0) == (decode_once != 0)
    assert images[0] == images[1]


def test_operations_are_shared_by_those_that_have_the_same(dataset: packed.Packed) -> None:
    def recipe(brightness: float) -> list[Any]:
        jitter = RandomApply([ColorJitter((brightness, brightness), hue=0.5), GaussianBlur(5)], 0.9)
        # Black would hide itself in a row that became black.
        return [*CROPS, jitter, TrivialAugmentWide(), RandomErasing(1.0, value=(9, 80, 7))]

    with together(dataset, *[Plan(group="sweep")] * 3, decodes=[recipe(0.5), recipe(0.5), recipe(0.6)]) as loaders:
        seen: set[bytes] = set()
        for _ in range(EPOCHS):
            first, same, other = epoch(loaders)
            assert same == first
            assert [sample for sample, _ in other] == [sample for sample, _ in first]
            assert sum(mine != its for mine, its in zip(first, other, strict=True)) > len(dataset) / 2
            assert seen.isdisjoint(image for _, image in first), "each epoch has operations of its own"
            seen.update(image for _, image in first)
        # The next epoch may be filled already.
        rows = EPOCHS * len(dataset)
        assert rows <= copied(loaders) <= rows + len(dataset), "of two trainings; the third decodes for itself"


def test_draws_by_importance_share_what_both_have(dataset: packed.Packed) -> None:
    """Each use of a sample is one image, the first, the second and so on, wherever it is in the plans."""
    images: dict[tuple[int, int, int], bytes] = {}
    shared = 0
    with together(dataset, *[Plan(sampler="pads", group="sweep")] * 2) as loaders:
        for number in range(EPOCHS):
            for rows in epoch(loaders):
                uses: Counter[int] = Counter()
                for sample, image in rows:
                    key = (number, sample, uses[sample])
                    uses[sample] += 1
                    shared += key in images
                    assert images.setdefault(key, image) == image
        assert len(dataset) < shared < EPOCHS * len(dataset), "all of the first epoch, a part of the second"
        assert copied(loaders) == shared
