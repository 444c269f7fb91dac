"""Epochs: where they start, that they repeat, that they can be left early, saved and continued."""

import copy
import pickle
from collections.abc import Iterator
from itertools import islice
from typing import Any

import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError
from shade_load.position import Position

torch = pytest.importorskip("torch")

BATCH = 8
BATCHES = 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("epochs")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def open_loader(
    dataset: packed.Packed, job: str, plan: Plan = Plan(), ring: str | None = None, **options: Any
) -> Loader:
    daemon = Daemon(job=job, ring=ring)
    return Loader(dataset.path, BATCH, image_size=packed.SIDE, plan=plan, daemon=daemon, **options)


UNIFORM = Plan(sampler="uniform")


def ids(batches: Iterator) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]


def train(loader: Loader, batches: Iterator | None = None) -> list[tuple[int, int, list[int], list[float]]]:
    """Goes through an epoch (or what is left of it) with losses that depend on the samples alone."""
    seen = []
    for batch in loader if batches is None else batches:
        seen.append((batch.epoch, batch.index, batch.ids.tolist(), batch.weights.tolist()))
        loader.report(batch, [float(sample * 37 % 61) for sample in batch.ids.tolist()])
    return seen


def test_each_iteration_is_the_next_epoch(dataset: packed.Packed) -> None:
    with open_loader(dataset, "next", UNIFORM) as loader:
        assert len(loader) == BATCHES
        for epoch in range(3):
            assert {batch.epoch for batch in loader} == {epoch}
        loader.set_epoch(9)
        assert {batch.epoch for batch in loader} == {9}
        assert {batch.epoch for batch in loader} == {10}


def test_set_epoch_chooses_the_order(dataset: packed.Packed) -> None:
    with open_loader(dataset, "order", UNIFORM, seed=5) as loader:
        orders = []
        for epoch in (0, 1, 0, 7):
            loader.set_epoch(epoch)
            orders.append(ids(loader))
    assert orders[0] == orders[2]
    assert orders[0] != orders[1] != orders[3]
    with open_loader(dataset, "order-again", UNIFORM, seed=5) as loader:
        loader.set_epoch(7)
        assert ids(loader) == orders[3]
    with open_loader(dataset, "order-other", UNIFORM, seed=6) as loader:
        loader.set_epoch(7)
        assert ids(loader) != orders[3]


def test_an_iterator_that_has_given_nothing_follows_set_epoch(dataset: packed.Packed) -> None:
    with open_loader(dataset, "follows", UNIFORM) as loader:
        expected = {}
        for epoch in (3, 4):
            loader.set_epoch(epoch)
            expected[epoch] = ids(loader)
        for epoch in (3, 4):
            # As Lightning does in the first epoch.
            batches = iter(loader)
            loader.set_epoch(epoch)
            assert ids(batches) == expected[epoch]
        batches = iter(loader)
        loader.set_epoch(3)
        next(batches)
        begun = loader.state_dict()
        loader.set_epoch(4)
        assert ids(batches) == expected[3][1:], "one that has begun goes on"
        loader.set_epoch(3)
        assert len(list(islice(loader, len(loader)))) == BATCHES
        ended = loader.state_dict()
    for state, epoch, rest in ((begun, 3, expected[3][1:]), (ended, 3, []), (ended, 4, expected[4])):
        with open_loader(dataset, "follows", UNIFORM) as loader:
            loader.load_state_dict(state)
            batches = iter(loader)
            loader.set_epoch(epoch)
            assert loader.state_dict()["batch"] == (state["batch"] if epoch == 3 else 0)
            assert ids(batches) == rest
            batches = iter(loader)
            loader.load_state_dict(state)
            loader.set_epoch(epoch)
            assert ids(batches) == rest


@pytest.mark.parametrize("chosen", [0, 1, 2, 7])
@pytest.mark.parametrize("given", [1, 3, BATCHES])
def test_an_iteration_that_has_begun_keeps_its_epoch_when_another_is_set(
    dataset: packed.Packed, given: int, chosen: int
) -> None:
    def positions(batches: Iterator) -> list[tuple[int, int]]:
        return [(batch.epoch, batch.index) for batch in batches]

    after = chosen if chosen != 1 else 2
    with open_loader(dataset, f"begun-{given}-{chosen}", UNIFORM) as loader:
        expected = {}
        for epoch in {1, after, after + 1}:
            loader.set_epoch(epoch)
            expected[epoch] = ids(loader)
        loader.set_epoch(1)
        batches = iter(loader)
        seen = ids(islice(batches, given))
        loader.set_epoch(chosen)
        state = loader.state_dict()
        assert (state["epoch"], state["batch"]) == (1, given)
        seen += ids(islice(batches, 1))
        later = loader.state_dict()
        reached = (1, given + 1) if given < BATCHES else (after, 0)
        assert (later["epoch"], later["batch"]) == reached
        assert seen + ids(batches) == expected[1]
        assert [ids(loader), ids(loader)] == [expected[after], expected[after + 1]]
        # One that is left is followed by the epoch that was set, also if it is the same.
        loader.set_epoch(1)
        assert len(list(islice(loader, given))) == given
        loader.set_epoch(chosen)
        assert positions(islice(loader, 2)) == [(chosen, 0), (chosen, 1)]
        loader.load_state_dict(state)
        assert positions(loader) == [(1, index) for index in range(given, BATCHES)]
        assert loader.state_dict()["epoch"] == 2, "what was set before a state is loaded is forgotten"


def test_the_length_is_that_of_the_resumed_epoch_until_it_is_delivered() -> None:
    at = Position()
    at.load(3, 2, 4)
    at.begin(3, 1)
    lengths = []
    for batch in (2, 3):
        at.deliver(batch)
        at.set_epoch(4)
        lengths.append(at.batches(9))
    assert lengths == [4, 9]


def test_a_training_repeats_from_its_seed(dataset: packed.Packed) -> None:
    runs = []
    for run in range(2):
        with open_loader(dataset, f"repeat-{run}", Plan(sampler="pads"), seed=1) as loader:
            runs.append([train(loader) for _ in range(4)])
    assert runs[0] == runs[1]
    assert sorted(sample for row in runs[0][0] for sample in row[2]) == list(range(len(dataset)))
    assert sorted(sample for row in runs[0][1] for sample in row[2]) != list(range(len(dataset))), (
        "PADS drew nothing"
    )


@pytest.mark.parametrize("left_after", [0, 1, 5])
def test_an_epoch_left_early_starts_again(dataset: packed.Packed, left_after: int) -> None:
    with open_loader(dataset, f"left-{left_after}", UNIFORM) as loader:
        begun = ids(islice(loader, left_after))
        again = ids(loader)
        assert again[:left_after] == begun
        assert sorted(sample for row in again for sample in row) == list(range(len(dataset)))
        assert {batch.epoch for batch in loader} == {1}


def test_an_epoch_delivered_to_its_last_batch_is_not_left_early(dataset: packed.Packed) -> None:
    with open_loader(dataset, "counted", UNIFORM) as loader:
        for epoch in range(3):
            # Takes exactly all batches and does not ask for one more, like trainers that know the
            # length.
            assert [batch.epoch for batch in islice(loader, len(loader))] == [epoch] * BATCHES
        loader.set_epoch(2)
        assert {batch.epoch for batch in loader} == {2}, "unless it is asked for again"
        assert {batch.epoch for batch in loader} == {3}


def test_batches_kept_from_an_epoch_left_early_stay_as_they_are(dataset: packed.Packed) -> None:
    with open_loader(dataset, "kept", UNIFORM, ring="16MiB") as loader:
        kept = list(islice(loader, 3))
        contents = [(batch.ids.tolist(), batch.images.clone()) for batch in kept]
        assert len(ids(loader)) == BATCHES
        for batch, (samples, images) in zip(kept, contents, strict=True):
            assert batch.ids.tolist() == samples
            assert torch.equal(batch.images, images)


def test_an_iterator_left_behind_says_so(dataset: packed.Packed) -> None:
    with open_loader(dataset, "behind", UNIFORM) as loader:
        first = iter(loader)
        next(first)
        second = iter(loader)
        with pytest.raises(ShadeError, match="earlier iteration"):
            next(first)
        assert len(ids(second)) == BATCHES
        assert list(second) == []


@pytest.mark.parametrize("done", [1, 4, BATCHES])
@pytest.mark.parametrize("sampler", ["uniform", "pads"])
def test_a_saved_epoch_goes_on_where_it_was(dataset: packed.Packed, sampler: str, done: int) -> None:
    job = f"saved-{sampler}-{done}"
    with open_loader(dataset, job, Plan(sampler=sampler, rep=2.0), cache="50%") as loader:
        train(loader)
        batches = iter(loader)
        train(loader, islice(batches, done))
        state = pickle.loads(pickle.dumps(copy.deepcopy(loader.state_dict())))
        assert (state["epoch"], state["batch"]) == (1, done)
        rest = train(loader, batches)
        assert [row[1] for row in rest] == list(range(done, BATCHES))
    # Another job has another daemon: only the state comes from the first.
    with open_loader(dataset, job + "-again", Plan(sampler=sampler, rep=2.0), cache="50%") as loader:
        loader.load_state_dict(state)
        loader.set_epoch(1)
        assert loader.state_dict()["batch"] == done
        assert train(loader) == rest
        assert {batch.epoch for batch in loader} == {2}


def test_a_state_goes_on_in_an_iterator_that_has_given_nothing_and_in_the_next(dataset: packed.Packed) -> None:
    with open_loader(dataset, "unbegun-state", UNIFORM) as loader:
        whole = ids(loader)
        loader.set_epoch(0)
        next(iter(loader))
        state = loader.state_dict()
        for begins_before in (True, False):
            loader.set_epoch(5)
            unused = iter(loader) if begins_before else None
            loader.load_state_dict(state)
            if not begins_before:
                unused = iter(loader)
            assert unused is not None
            assert ids(loader) == whole[1:]


def test_a_state_between_epochs_starts_the_next(dataset: packed.Packed) -> None:
    with open_loader(dataset, "between", UNIFORM) as loader:
        train(loader)
        state = loader.state_dict()
        assert (state["epoch"], state["batch"]) == (1, 0)
        following = ids(loader)
    with open_loader(dataset, "between-again", UNIFORM) as loader:
        loader.load_state_dict(state)
        assert ids(loader) == following


def test_another_epoch_than_the_saved_one_starts_at_its_first_batch(dataset: packed.Packed) -> None:
    with open_loader(dataset, "other-epoch", UNIFORM) as loader:
        next(iter(loader))
        loader.load_state_dict(loader.state_dict())
        loader.set_epoch(3)
        assert [(batch.epoch, batch.index) for batch in loader] == [(3, index) for index in range(BATCHES)]


def test_states_that_do_not_fit_are_refused(dataset: packed.Packed) -> None:
    with open_loader(dataset, "unfit", seed=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
        for change, text in (
            ({"version": 99}, "version"),
            ({"content_id": "0" * 32}, "content id"),
            ({"job": {**state["job"], "plan": {**state["job"]["plan"], "seed": 2}}}, "seed"),
            ({"job": {**state["job"], "tail": "drop"}}, "tail"),
        ):
            with pytest.raises(ValueError, match=text):
                loader.load_state_dict({**state, **change})
        damaged = bytearray(state["daemon"])
        damaged[len(damaged) // 2] ^= 1
        with pytest.raises(ShadeError):
            loader.load_state_dict({**state, "daemon": bytes(damaged)})
        # The refused calls have changed nothing.
        loader.load_state_dict(state)
        assert [batch.index for batch in loader] == list(range(1, BATCHES))
