"""What has failed has changed nothing: a first batch that does not come, a start that is not sent, a Loader that is refused."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Daemon, Loader, LoaderTimeout, Plan

BATCH = 8
BATCHES = 8
DONE = 3
# Nothing comes meanwhile.
NEVER = "latency=600s"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("failed-starts")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def opened(dataset: packed.Packed, job: str, store: str | None = None, **options: Any) -> Loader:
    return Loader(dataset.path, BATCH, seed=3, daemon=Daemon(job=job, store=store), **options)


def ids(batches: Any) -> list[list[int]]:
    return [batch._native.ids().tolist() for batch in batches]


@pytest.fixture(scope="module")
def epochs(dataset: packed.Packed) -> list[list[list[int]]]:
    """The batches of the first epochs, undisturbed."""
    with opened(dataset, "undisturbed") as loader:
        return [ids(loader) for _ in range(3)]


@pytest.fixture(scope="module")
def state(dataset: packed.Packed) -> dict[str, Any]:
    """Of epoch 1, after some batches."""
    with opened(dataset, "saves") as loader:
        loader.set_epoch(1)
        ids(islice(loader, DONE))
        return loader.state_dict()


def times_out(loader: Loader, batches: Iterator[Any]) -> None:
    before, loader._patience.seconds = loader._patience.seconds, 0.2
    with pytest.raises(LoaderTimeout):
        next(batches)
    loader._patience.seconds = before


def is_interrupted(loader: Loader, batches: Iterator[Any]) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            next(batches)
    finally:
        signal.signal(signal.SIGALRM, before)


def goes_on(loader: Loader) -> None:
    pass


def iterates_anew(loader: Loader) -> None:
    iter(loader)


def chooses_the_epoch(loader: Loader) -> None:
    loader.set_epoch(1)


def chooses_it_for_a_new_iterator(loader: Loader) -> None:
    iter(loader)
    loader.set_epoch(1)


def saves_and_loads(loader: Loader) -> None:
    loader.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "then", [goes_on, iterates_anew, chooses_the_epoch, chooses_it_for_a_new_iterator, saves_and_loads]
)
@pytest.mark.parametrize("fails", [times_out, is_interrupted])
def test_an_epoch_whose_first_batch_did_not_come_begins_where_it_would_have(
    dataset: packed.Packed,
    state: dict[str, Any],
    fails: Callable[[Loader, Iterator[Any]], None],
    then: Callable[[Loader], None],
    times: int,
) -> None:
    with opened(dataset, "first-batch", NEVER) as loader:
        loader.load_state_dict(state)
        for _ in range(times):
            fails(loader, iter(loader))
            then(loader)
        kept = loader.state_dict()
        assert (kept["epoch"], kept["batch"]) == (1, DONE)
        iter(loader)
        assert loader.state_dict()["batch"] == DONE, "what the daemon is asked for"
        loader.set_epoch(2)
        assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (2, 0)


def test_a_wait_that_failed_loses_and_repeats_nothing(
    dataset: packed.Packed, state: dict[str, Any], epochs: list[list[list[int]]]
) -> None:
    with opened(dataset, "slow", "latency=400ms") as loader:
        loader.load_state_dict(state)
        seen, failures = [], 0
        loader._patience.seconds = 0.1
        batches = iter(loader)
        while True:
            try:
                seen.append(next(batches)._native.ids().tolist())
            except StopIteration:
                break
            except LoaderTimeout:
                failures += 1
                # Each time another way to go on, before and after the first batch.
                if not seen and failures % 2:
                    batches = iter(loader)
        assert failures > 0
        assert seen == epochs[1][DONE:]
        loader._patience.seconds = 300.0
        assert ids(loader) == epochs[2]


@contextmanager
def deaf(loader: Loader) -> Iterator[None]:
    """Its daemon reads no message, and there is no room for another."""
    os.kill(loader.daemon_pid, signal.SIGSTOP)
    try:
        with pytest.raises(LoaderTimeout):
            while True:
                loader.report_validation(0.5)
        yield
    finally:
        os.kill(loader.daemon_pid, signal.SIGCONT)


def test_a_start_that_was_not_sent_changes_nothing(
    dataset: packed.Packed, epochs: list[list[list[int]]]
) -> None:
    with opened(dataset, "deaf") as loader:
        unused = iter(loader)
        with deaf(loader), pytest.raises(LoaderTimeout):
            loader.set_epoch(2)
        assert loader.state_dict()["epoch"] == 0
        assert ids(unused) == epochs[0], "the iterator gives the epoch that the Loader tells of"
        assert len(list(islice(loader, BATCHES))) == BATCHES
        with deaf(loader):
            for _ in range(2):
                with pytest.raises(LoaderTimeout):
                    iter(loader)
        assert ids(loader) == epochs[2], "an epoch that could not be begun is not skipped"


def test_a_loader_that_is_refused_leaves_its_rank(dataset: packed.Packed) -> None:
    with Loader(dataset.path, BATCH, cache=0, daemon=Daemon(job="settings")) as first:
        errors = []
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    Loader(dataset.path, BATCH, cache="100%", daemon=Daemon(job="another"))
                except RuntimeWarning as error:
                    # As in a notebook: the error keeps the frames, and these the object.
                    errors.append(error)
            assert "has other settings" in str(errors[-1])
        assert [job["name"] for job in first.stats()["jobs"]] == ["settings"]


def test_a_dropped_loader_lets_other_threads_run_while_it_leaves(dataset: packed.Packed) -> None:
    loader = Loader(dataset.path, BATCH, daemon=Daemon(job="dropped"))
    session, daemon = loader._session, loader.daemon_pid
    # As one that was never closed: the last reference goes.
    loader._session = None
    os.kill(daemon, signal.SIGSTOP)
    # All of its threads: one could still answer.
    tasks = list(Path(f"/proc/{daemon}/task").glob("*/stat"))
    while any(task.read_text().rpartition(")")[2].split()[0] != "T" for task in tasks):
        time.sleep(0.001)
    steps: list[float] = []
    is_done = threading.Event()

    def count() -> None:
        while not is_done.is_set():
            steps.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        begun = time.monotonic()
        del session
        ended = time.monotonic()
    finally:
        is_done.set()
        thread.join()
        os.kill(daemon, signal.SIGCONT)
    assert ended - begun > 0.5, "the goodbye was not awaited: the test shows nothing"
    assert len([step for step in steps if begun < step < ended]) > 10


def test_a_plan_for_a_mask_of_another_length_leaves_its_rank(dataset: packed.Packed) -> None:
    kept = []
    for _ in range(2):
        try:
            Loader(dataset.path, BATCH, plan=Plan(indices=[True] * 7), daemon=Daemon(job="mask"))
        except ValueError as error:
            kept.append(error)
    assert all("expected one of the dataset's 61 samples" in str(error) for error in kept) and len(kept) == 2
