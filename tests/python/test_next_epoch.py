"""The first batches of an epoch are filled before it is asked for, where its plan is known."""

from collections.abc import Iterable
from itertools import islice

import packed
import pytest
from shade_load import Batch, Daemon, Loader, Plan

BATCH = 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("next-epoch")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def open_loader(dataset: packed.Packed, plan: Plan = Plan()) -> Loader:
    """Nothing is cached, and each record takes 50 ms."""
    return Loader(dataset.path, BATCH, plan=plan, cache=0, daemon=Daemon(store="latency=50ms"))


def ids(batches: Iterable[Batch]) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]


def is_filled(loader: Loader) -> bool:
    """Whether batches are open, and no read is under way."""
    stats = loader.stats()
    return stats["rank"]["open"] > 0 and stats["reads_submitted"] == 0


def test_an_epoch_begins_without_a_wait_for_the_store(dataset: packed.Packed) -> None:
    with open_loader(dataset) as loader:
        epochs = [ids(loader)]
        for _ in range(2):
            while not is_filled(loader):
                pass
            before = loader.stats()["rank"]["storage_ns"]
            batches = iter(loader)
            first = next(batches).ids.tolist()
            assert loader.stats()["rank"]["storage_ns"] == before
            epochs.append([first, *ids(batches)])
    for epoch in epochs:
        assert sorted(sum(epoch, [])) == list(range(len(dataset)))
    assert epochs[0] != epochs[1] != epochs[2]


def test_what_was_filled_is_dropped_if_another_epoch_is_wanted(dataset: packed.Packed) -> None:
    with open_loader(dataset) as loader:
        state = loader.state_dict()
        first = ids(loader)
        while not is_filled(loader):
            pass
        loader.load_state_dict(state)
        assert ids(loader) == first, "the same epoch again"
        while not is_filled(loader):
            pass
        loader.set_epoch(5)
        fifth = ids(islice(loader, 3))
    with open_loader(dataset) as again:
        again.set_epoch(5)
        assert ids(islice(again, 3)) == fifth


def test_a_plan_by_losses_waits_for_them(dataset: packed.Packed) -> None:
    with open_loader(dataset, Plan(sampler="pads")) as loader:
        for batch in loader:
            loader.report(batch, [float(sample) for sample in batch.ids.tolist()])
        assert loader.stats()["rank"]["open"] == 0
