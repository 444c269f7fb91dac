"""Daemons are killed under a Loader's loop: it sees no exception, and one warning for each."""

import os
import signal
import time
import warnings
from contextlib import suppress
from typing import Any

import packed
import pytest
from shade_load import Daemon, DaemonGone, Loader, PerSample, Plan, Sample
from shade_load.transforms import RandomHorizontalFlip, RandomResizedCrop

EPOCHS = 3
KILLS = 20
DECODE = [RandomResizedCrop(8), RandomHorizontalFlip()]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("survive")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def content(batch) -> tuple[int, list[int], list[int], bytes]:
    return batch.index, batch.ids.tolist(), batch.labels.tolist(), batch.images.numpy().tobytes()


def train(loader: Loader, kills: int) -> tuple[list[tuple], int]:
    """The batches of all epochs, with a kill before some of them; and how many daemons were killed."""
    seen, killed = [], set()
    for _ in range(EPOCHS):
        for batch in loader:
            seen.append(content(batch))
            if loader.needs_losses:
                loader.report(batch, [float(sample * 31 % 97) for sample in batch.ids.tolist()])
            # One that is dead already has no successor yet: the ring still has batches.
            daemon = loader.daemon_pid
            if len(killed) < kills and daemon not in killed:
                with suppress(ProcessLookupError):
                    os.kill(daemon, signal.SIGKILL)
                killed.add(daemon)
    return seen, len(killed)


PLANS = {
    "uniform": Plan(),
    "balanced": Plan(sampler="balanced"),
    "echo": Plan(sampler="echo"),
    "weighted": Plan(sampler="weighted", weights=[1.0 + number % 3 for number in range(61)]),
    "subset": Plan(indices=range(1, 61)),
    "group": Plan(group="sweep"),
    "pads": Plan(sampler="pads"),
    "infobatch": Plan(sampler="infobatch"),
    "seta": Plan(sampler="seta"),
    "replacement": Plan(sampler="replacement"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_loop_sees_no_exception_and_one_warning_for_each_daemon(dataset: packed.Packed, name: str) -> None:
    pytest.importorskip("torch")
    # A ring for a batch or two, so that most deaths are noticed at once.
    daemon = Daemon(job=f"survive-{name}", ring=1, linger=0.1)
    arguments = {"decode": DECODE, "seed": 3, "plan": PLANS[name], "daemon": daemon}
    with Loader(dataset.path, 2, **arguments) as loader:
        undisturbed, _ = train(loader, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Loader(dataset.path, 2, **arguments) as loader:
            survived, killed = train(loader, KILLS)
            assert killed == KILLS
            assert loader.stats()["successors"] == KILLS
            assert loader.metrics()["shade/samples_per_s"] >= 0
    assert survived == undisturbed
    told = [str(warning.message) for warning in caught if "has taken its place" in str(warning.message)]
    assert len(told) == KILLS, [str(warning.message) for warning in caught]
    assert all(issubclass(warning.category, RuntimeWarning) for warning in caught)


def as_it_is(sample: Sample) -> Any:
    # Slow, so that the successor comes while a batch is in work.
    time.sleep(0.03)
    return sample.image.copy()


# A function has some batches in work.
@pytest.mark.parametrize(("function", "ring"), [(None, 1), (PerSample(as_it_is, workers=1), "32KiB")])
def test_a_warning_that_is_an_error_loses_no_batch(
    dataset: packed.Packed, function: PerSample | None, ring: int | str
) -> None:
    pytest.importorskip("torch")
    daemon = Daemon(job="strict", ring=ring, linger=0.1)
    arguments = {"decode": DECODE, "daemon": daemon, "transform": function}
    with Loader(dataset.path, 2, **arguments) as loader, warnings.catch_warnings():
        warnings.simplefilter("error")
        undisturbed = [content(batch) for batch in loader]
        loader.set_epoch(0)
        batches = iter(loader)
        survived = [content(next(batches))]
        os.kill(loader.daemon_pid, signal.SIGKILL)
        told = 0
        while True:
            try:
                survived.append(content(next(batches)))
            except RuntimeWarning:
                told += 1
            except StopIteration:
                break
    assert (survived, told) == (undisturbed, 1)


def test_a_loader_that_asks_for_nothing_more_tells_of_a_successor_as_it_closes(dataset: packed.Packed) -> None:
    loader = Loader(dataset.path, 2, daemon=Daemon(job="quiet", ring=1, linger=0.1))
    first = loader.daemon_pid
    next(iter(loader))
    os.kill(first, signal.SIGKILL)
    while loader.daemon_pid == first:
        time.sleep(0.001)
    with pytest.warns(RuntimeWarning, match="has taken its place") as told:
        loader.close()
    assert len(told) == 1
    loader.close()


def test_one_death_more_within_an_hour_than_is_allowed_is_an_error(dataset: packed.Packed) -> None:
    with pytest.raises(ValueError, match="deaths_max"):
        Daemon(deaths_max=-1)
    daemon = Daemon(job="often", ring=1, linger=0.1, deaths_max=1)
    with Loader(dataset.path, 2, daemon=daemon) as loader:
        batches = iter(loader)
        next(batches)
        os.kill(loader.daemon_pid, signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="has taken its place"):
            assert loader.stats()["successors"] == 1
        next(batches)
        os.kill(loader.daemon_pid, signal.SIGKILL)
        with pytest.raises(DaemonGone, match=r"2 daemons of this rank have died within an hour, more than 1 \("):
            list(batches)


def test_a_loader_that_validates_survives_and_one_that_must_not_does_not(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 2, train=False, daemon=Daemon(ring=1, linger=0.1)) as loader:
        batches = iter(loader)
        ids = [next(batches).ids.tolist()]
        os.kill(loader.daemon_pid, signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="has taken its place"):
            ids += [batch.ids.tolist() for batch in batches]
        assert sum(ids, []) == list(range(len(dataset)))
    with Loader(dataset.path, 2, daemon=Daemon(job="mortal", ring=1, linger=0.1, survive=False)) as loader:
        batches = iter(loader)
        next(batches)
        os.kill(loader.daemon_pid, signal.SIGKILL)
        with pytest.raises(DaemonGone, match="is gone"):
            list(batches)
