"""A rank waits for ranks that live, and says so; for one that is gone, or asks for another epoch, it ends."""

import threading
from collections.abc import Iterator

import packed
import pytest
from shade_load import Daemon, Loader, LoaderTimeout

BATCH = 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("waits")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def opened(dataset: packed.Packed, job: str, rank: int, world_size: int = 2) -> Loader:
    return Loader(dataset.path, BATCH, rank=rank, world_size=world_size, daemon=Daemon(job=job))


def said(recwarn: pytest.WarningsRecorder, ranks: str) -> list[str]:
    return [str(warning.message) for warning in recwarn if ranks in str(warning.message)]


def rest(batches: Iterator) -> list[int]:
    return [sample for batch in batches for sample in batch._native.ids().tolist()]


def test_a_rank_waits_as_long_as_the_others_live(
    dataset: packed.Packed, recwarn: pytest.WarningsRecorder
) -> None:
    with opened(dataset, "lives", 0) as late, opened(dataset, "lives", 1) as early:
        for epoch in range(2):
            seen: list[int] = []
            early._patience.seconds = 0.2
            waits = threading.Thread(target=lambda seen=seen: seen.extend(rest(iter(early))))
            waits.start()
            # As a rank that validates: it is far later than the other one's timeout.
            while not said(recwarn, "ranks [0]"):
                assert waits.is_alive(), "the wait has ended"
                waits.join(0.05)
            waits.join(1.0 if epoch else 0.0)
            assert waits.is_alive()
            early._patience.seconds = 300.0
            others = rest(iter(late))
            waits.join()
            assert sorted(seen + others) == list(range(len(dataset)))
    texts = said(recwarn, "ranks [0]")
    assert len(texts) == 1, "it is said once"
    assert "batch 0 of epoch 0" in texts[0] and "goes on waiting" in texts[0]


def test_a_rank_that_has_left_or_never_came_ends_the_wait(dataset: packed.Packed) -> None:
    with opened(dataset, "leaves", 1) as loader:
        loader._patience.seconds = 0.2
        with pytest.raises(LoaderTimeout, match=r"ranks \[0\] ask for it too, which are not attached"):
            next(iter(loader))
        loader._patience.seconds = 300.0
        other = opened(dataset, "leaves", 0)
        batches = iter(loader)
        seen = rest(iter(other))
        assert sorted(seen + rest(batches)) == list(range(len(dataset)))
        other.close()
        loader._patience.seconds = 0.2
        with pytest.raises(LoaderTimeout, match=r"ranks \[0\] ask for it too, which are not attached"):
            next(iter(loader))


def test_ranks_that_ask_for_different_epochs_do_not_wait_for_ever(dataset: packed.Packed) -> None:
    with opened(dataset, "differ", 0) as first, opened(dataset, "differ", 1) as second:
        first.set_epoch(3)
        second.set_epoch(4)
        iter(first)
        second._patience.seconds = 0.2
        with pytest.raises(LoaderTimeout, match="wait for another epoch"):
            next(iter(second))


def test_of_three_ranks_those_that_live_are_named(
    dataset: packed.Packed, recwarn: pytest.WarningsRecorder
) -> None:
    ranks = [opened(dataset, "three", rank, 3) for rank in range(3)]
    seen: list[int] = []
    ranks[1]._patience.seconds = 0.2
    waits = threading.Thread(target=lambda: seen.extend(rest(iter(ranks[1]))))
    waits.start()
    while not said(recwarn, "ranks [0, 2]"):
        assert waits.is_alive()
        waits.join(0.05)
    ranks[1]._patience.seconds = 300.0
    later = [iter(ranks[0]), iter(ranks[2])]
    for batches in later:
        seen.extend(rest(batches))
    waits.join()
    assert sorted(seen) == list(range(len(dataset)))
    for rank in ranks:
        rank.close()
