"""Plan(indices=...): a Loader on some samples of a dataset, as over torch's Subset."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError

torch = pytest.importorskip("torch")

BATCH = 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[packed.Packed]:
    root = tmp_path_factory.mktemp("indices")
    packed.image_folder(root / "folder", "png")
    yield packed.pack(root / "folder", root / "data.shade")


def open_loader(path: Path, job: str, plan: Plan, **more: Any) -> Loader:
    return Loader(path, BATCH, image_size=packed.SIDE, cache="50%", plan=plan, daemon=Daemon(job=job), **more)


def ids(loader: Loader) -> list[int]:
    return [sample for batch in loader for sample in batch.ids.tolist()]


def test_every_spelling_of_the_samples_is_the_same_plan() -> None:
    mask = np.zeros(61, dtype=bool)
    mask[3:50:2] = True
    same = [
        range(3, 50, 2),
        list(range(3, 50, 2)),
        set(range(3, 50, 2)),
        np.arange(49, 2, -2),
        np.arange(3, 50, 2, dtype=np.uint8),
        torch.arange(3, 50, 2),
        mask,
        torch.from_numpy(mask),
        mask.tolist(),
    ]
    plans = [Plan(indices=indices) for indices in same]
    assert len({plan.indices.digest for plan in plans}) == 1
    assert repr(plans[0]) == "Plan(indices=<24 indices>)"


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([], ValueError, "indices is empty"),
        (np.zeros(61, dtype=bool), ValueError, "indices is empty"),
        ([1, 2, 1], ValueError, "indices is 1, twice, but must be each sample at most once"),
        ([4, -1], ValueError, "indices: got -1, expected sample ids, which count from 0"),
        ([1.5], TypeError, "indices: expected a sample id for each sample"),
        (np.zeros((2, 2), dtype=int), TypeError, "in one dimension"),
        ([True, 3], TypeError, "bools among numbers"),
        (7, TypeError, "indices: got 7"),
        ("123", TypeError, "indices: got '123'"),
        ({1: 2}, TypeError, "indices: got"),
    ],
)
def test_what_is_no_list_of_samples_is_refused(indices: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Plan(indices=indices)


def test_samples_of_another_dataset_are_refused(dataset: packed.Packed) -> None:
    with pytest.raises((ShadeError, ValueError), match="indices is 61, but must be the id of one of the dataset's 61"):
        open_loader(dataset.path, "beyond", Plan(indices=[3, 61]))
    with pytest.raises(ValueError, match="got a mask of 60, expected one of the dataset's 61 samples"):
        open_loader(dataset.path, "mask", Plan(indices=[True] * 60))
    with pytest.raises((ShadeError, ValueError), match="strata is 2, but must be 1 with indices"):
        open_loader(dataset.path, "strata", Plan(indices=range(10), strata=2))


def test_a_fold_trains_and_the_other_validates_with_the_pixels_of_the_dataset(dataset: packed.Packed) -> None:
    left = [sample for sample in range(len(dataset)) if sample % 4 == 0]
    rest = [sample for sample in range(len(dataset)) if sample % 4]
    with (
        open_loader(dataset.path, "fold", Plan(indices=rest)) as train,
        open_loader(dataset.path, "fold", Plan(indices=left), train=False) as val,
    ):
        assert (len(train), len(val)) == (-(-len(rest) // BATCH), -(-len(left) // BATCH))
        assert len(train.dataset) == len(dataset), "ids stay the dataset's"
        epochs = [ids(train) for _ in range(2)]
        assert sorted(epochs[0]) == sorted(epochs[1]) == rest
        assert epochs[0] != epochs[1]
        assert ids(val) == left, "in the dataset's order"
        for batch in val:
            for row, sample in enumerate(batch.ids.tolist()):
                assert bytes(batch.images[row].numpy().tobytes()) == dataset.pixels(sample)
                assert batch.labels[row].item() == dataset.labels[sample]
        stats = train.stats()
        assert stats["epoch"]["distinct_share"] == 1.0
        assert stats["total"]["ever_seen_share"] == 1.0


def test_ranks_share_a_subset_by_importance(dataset: packed.Packed) -> None:
    some = range(5, 55)
    plan = Plan(indices=some, sampler="pads")
    ranks = [open_loader(dataset.path, "pads", plan, rank=rank, world_size=2) for rank in range(2)]
    try:
        for _ in range(3):
            taken: list[int] = []
            for batches in zip(*ranks, strict=True):
                for loader, batch in zip(ranks, batches, strict=True):
                    loader.report(batch, torch.rand(len(batch.ids)))
                    taken += batch.ids.tolist()
            assert len(taken) == len(some)
            assert set(taken) <= set(some)
    finally:
        for loader in ranks:
            loader.close()


def test_a_state_is_resumed_with_the_same_samples_only(dataset: packed.Packed) -> None:
    plan = Plan(indices=range(40))
    with open_loader(dataset.path, "whole", plan) as loader:
        whole = ids(loader)
    with open_loader(dataset.path, "first", plan) as loader:
        batches = iter(loader)
        begun = [sample for _ in range(2) for sample in next(batches).ids.tolist()]
        state = loader.state_dict()
    with open_loader(dataset.path, "second", Plan(indices=reversed(range(40)))) as loader:
        loader.load_state_dict(state)
        assert begun + ids(loader) == whole
    for other in (Plan(indices=range(41)), Plan()):
        with (
            open_loader(dataset.path, "third", other) as loader,
            pytest.raises(ValueError, match="saved with other samples than this Loader's Plan"),
        ):
            loader.load_state_dict(state)


def test_a_training_over_a_linked_subset_has_the_pixels_of_its_source(dataset: packed.Packed, tmp_path: Path) -> None:
    some = sorted({sample * 7 % len(dataset) for sample in range(20)})
    listed = tmp_path / "ids.txt"
    listed.write_text("".join(f"{sample}\n" for sample in some))
    subset = tmp_path / "subset.shade"
    packed.run_pack("subset", dataset.path, subset, "--ids", listed, "-q")
    with open_loader(subset, "subset", Plan()) as loader:
        assert loader.classes == sorted(packed.CLASSES)
        seen = []
        for batch in loader:
            for row, number in enumerate(batch.ids.tolist()):
                seen.append(number)
                assert bytes(batch.images[row].numpy().tobytes()) == dataset.pixels(some[number])
                assert batch.labels[row].item() == dataset.labels[some[number]]
    assert sorted(seen) == list(range(len(some)))
