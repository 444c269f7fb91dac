"""Several ranks in processes of their own: together they deliver the plan, however many they are."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError

BATCH = 4
EPOCHS = 3


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("ranks")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def losses(ids: list[int]) -> list[float]:
    return [float(sample * 37 % 61) for sample in ids]


def run_rank(path: Path, job: str, rank: int, world: int, batch_size: int, arguments: dict) -> tuple:
    """One rank: (daemon, per epoch its batches of (ids, labels))."""
    epochs = []
    with Loader(
        path,
        batch_size,
        image_size=packed.SIDE,
        rank=rank,
        world_size=world,
        plan=Plan(cover=0, **arguments),
        daemon=Daemon(job=job),
    ) as loader:
        for _ in range(EPOCHS):
            batches = []
            for batch in loader:
                ids = batch._native.ids().tolist()
                batches.append((ids, batch._native.labels().tolist()))
                loader.report(batch, losses(ids))
            assert len(batches) == len(loader)
            epochs.append(batches)
        return loader.daemon_pid, epochs


def run_world(dataset: packed.Packed, job: str, world: int, batch_size: int, **arguments: str) -> list:
    """Runs all ranks and returns, per epoch, the ranks' lists of batches."""
    with ProcessPoolExecutor(world, mp_context=multiprocessing.get_context("forkserver")) as pool:
        runs = [
            pool.submit(run_rank, dataset.path, job, rank, world, batch_size, arguments)
            for rank in range(world)
        ]
        results = [run.result() for run in runs]
    assert len({daemon for daemon, _ in results}) == 1, "the ranks do not share one daemon"
    return [[epochs[epoch] for _, epochs in results] for epoch in range(EPOCHS)]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_share_every_epoch_out_exactly(dataset: packed.Packed, world: int) -> None:
    for ranks in run_world(dataset, f"uniform-{world}", world, BATCH, sampler="uniform"):
        assert len({len(batches) for batches in ranks}) == 1, "unequal numbers of batches"
        rows = [row for batches in ranks for batch in batches for row in zip(*batch, strict=True)]
        assert sorted(sample for sample, _ in rows) == list(range(len(dataset)))
        assert all(label == dataset.labels[sample] for sample, label in rows)


def test_the_plan_does_not_depend_on_the_number_of_ranks(dataset: packed.Packed) -> None:
    """Each step takes twelve samples, by one, two or three ranks. The tail is dropped, as it is shared out by ranks.

    PADS scores losses within a rank's batch, so only its first epoch, drawn before any loss, must be the same.
    """
    worlds = [
        run_world(dataset, f"plan-{world}", world, 12 // world, sampler="pads", tail="drop")[0]
        for world in (1, 2, 3)
    ]
    steps = [
        [sorted(sample for ids, _ in step for sample in ids) for step in zip(*ranks, strict=True)]
        for ranks in worlds
    ]
    assert steps[0] == steps[1] == steps[2]
    assert [len(step) for step in steps[0]] == [12] * 5


def train_a_part(
    path: Path, job: str, rank: int, world: int, state: dict | None, most: int | None, arguments: dict
) -> tuple:
    """One rank: trains an epoch without a state, else loads it; then up to `most` batches of what comes next.

    Returns the ids that it delivered, the state after them, and (len(loader), the last batch's number).
    """
    with Loader(
        path, BATCH, image_size=packed.SIDE, rank=rank, world_size=world, plan=Plan(**arguments), daemon=Daemon(job=job)
    ) as loader:
        if state is None:
            for batch in loader:
                loader.report(batch, losses(batch._native.ids().tolist()))
        else:
            loader.load_state_dict(state)
        ids, index = [], -1
        for taken, batch in enumerate(loader, start=1):
            assert len(batch.labels) > 0
            ids += batch._native.ids().tolist()
            loader.report(batch, losses(batch._native.ids().tolist()))
            index = batch.index
            if taken == most:
                break
        length = len(loader) if taken == most else None
        return ids, loader.state_dict(), (length, index)


def run_parts(
    dataset: packed.Packed, job: str, world: int, state: dict | None, most: int | None, **arguments: object
) -> tuple:
    """All ranks of one world: (ids of all, the state of the last rank, (len, last batch))."""
    # Threads, as a process would take longer to begin than to train.
    with ThreadPoolExecutor(world) as pool:
        runs = [
            pool.submit(train_a_part, dataset.path, job, rank, world, state, most, arguments) for rank in range(world)
        ]
        results = [run.result() for run in runs]
    assert len({facts for _, _, facts in results}) == 1
    return [sample for ids, _, _ in results for sample in ids], results[-1][1], results[0][2]


@pytest.mark.parametrize("arguments", [{"sampler": "uniform"}, {"sampler": "pads"}, {"sampler": "pads", "strata": 12}])
def test_a_state_goes_on_with_another_number_of_ranks(dataset: packed.Packed, arguments: dict) -> None:
    name = "-".join(map(str, arguments.values()))
    first, state, facts = run_parts(dataset, f"four-{name}", 4, None, 1, **arguments)
    assert facts == (4, 0)
    rest, _, _ = run_parts(dataset, f"again-{name}", 4, state, None, **arguments)
    planned = sorted(first + rest)
    # 61 samples, 16 of them delivered: two batches of eight would end there.
    second, state, facts = run_parts(dataset, f"two-{name}", 2, state, 2, **arguments)
    assert (len(second), facts) == (16, (2 + 6, 3))
    third, state, facts = run_parts(dataset, f"six-{name}", 6, state, None, **arguments)
    assert facts == (None, 2), "29 samples left, one batch of 24 would end before them"
    assert sorted(first + second + third) == planned
    assert (state["epoch"], state["batch"]) == (2, 0)
    if arguments["sampler"] == "uniform":
        assert planned == list(range(len(dataset)))


def test_a_state_of_other_strata_than_asked_for_is_refused(dataset: packed.Packed) -> None:
    def loader(job: str, **arguments: int) -> Loader:
        return Loader(dataset.path, BATCH, plan=Plan(**arguments), daemon=Daemon(job=job))

    with loader("twelve", strata=12) as saved:
        before = next(iter(saved)).ids.tolist()
        state = saved.state_dict()
    with loader("four", strata=4) as other:
        with pytest.raises(ShadeError, match=r"a plan of 4 strata, and not of 12: give Plan\(strata=12\), or none"):
            other.load_state_dict(state)
    with loader("any") as any_number:
        any_number.load_state_dict(state)
        rest = [sample for batch in any_number for sample in batch.ids.tolist()]
        assert sorted(before + rest) == list(range(len(dataset)))


def test_a_rank_taken_is_refused(dataset: packed.Packed) -> None:
    with Loader(dataset.path, BATCH, daemon=Daemon(job="taken")):
        with pytest.raises(ShadeError, match="rank 0"):
            Loader(dataset.path, BATCH, daemon=Daemon(job="taken"))
        with Loader(dataset.path, BATCH, daemon=Daemon(job="free")) as other:
            assert sum(1 for _ in other) == len(other)


def test_ranks_that_disagree_are_refused(dataset: packed.Packed) -> None:
    with Loader(dataset.path, BATCH, rank=0, world_size=2, daemon=Daemon(job="disagree")):
        with pytest.raises(ShadeError, match="argument"):
            Loader(dataset.path, BATCH + 1, rank=1, world_size=2, daemon=Daemon(job="disagree"))
        # The right one still attaches.
        Loader(dataset.path, BATCH, rank=1, world_size=2, daemon=Daemon(job="disagree")).close()


def test_ranks_come_from_the_environment(dataset: packed.Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with Loader(dataset.path, BATCH, daemon=Daemon(job="environment")) as loader:
        assert (loader.rank, loader.world_size) == (1, 3)
        assert len(loader) == 6
