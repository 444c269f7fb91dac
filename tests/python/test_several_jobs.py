"""Trainings of one user on one dataset, unaware of each other: one daemon, one cache, each its own epochs."""

import json
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError

BATCH = 8
# Variables that name a training, or say that a process is one of several.
NAMES = ("LOCAL_RANK", "WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID")

# A training that names nothing: two epochs, each written as a line; then it waits for a line.
TRAINING = """
import json, sys, warnings
from shade_load import Loader, Plan
warnings.simplefilter("error")
with Loader(sys.argv[1], 8, seed=int(sys.argv[2]), plan=Plan(sampler="uniform")) as loader:
    print(json.dumps([loader.job, loader.daemon_pid]), flush=True)
    for line in sys.stdin:
        epoch = [[batch.ids.tolist(), batch.labels.tolist()] for batch in loader]
        print(json.dumps([epoch, loader.stats()]), flush=True)
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def dataset(tmp_path: Path) -> packed.Packed:
    """One for each test, and so one daemon."""
    packed.image_folder(tmp_path / "folder", "png")
    return packed.pack(tmp_path / "folder", tmp_path / "data.shade")


class Training:
    """`TRAINING` in a process of its own."""

    def __init__(self, dataset: packed.Packed, seed: int) -> None:
        command = [sys.executable, "-c", TRAINING, str(dataset.path), str(seed)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.job, self.daemon = self._heard()

    def epoch(self) -> tuple[list[int], list[int], dict[str, Any]]:
        """The next epoch's ids and labels, and the figures after it."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        batches, stats = self._heard()
        ids, labels = ([value for batch in batches for value in batch[part]] for part in (0, 1))
        return ids, labels, stats

    def end(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0

    def _heard(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def trainings(dataset: packed.Packed) -> Iterator[list[Training]]:
    """Two of them, started one after the other."""
    both = [Training(dataset, seed) for seed in (1, 2)]
    yield both
    for training in both:
        training.process.kill()
        training.process.communicate()


def test_two_trainings_at_once_share_the_daemon_and_nothing_else(
    dataset: packed.Packed, trainings: list[Training]
) -> None:
    assert [training.job for training in trainings] == ["default", "default-2"]
    assert trainings[0].daemon == trainings[1].daemon
    orders = []
    for number in range(2):
        for training in trainings:
            ids, labels, stats = training.epoch()
            assert sorted(ids) == list(range(len(dataset)))
            assert labels == [dataset.labels[sample] for sample in ids]
            assert (stats["epoch"]["epoch"], stats["total"]["accesses"]) == (number, (number + 1) * len(dataset))
            named = {job["name"]: job for job in stats["jobs"]}
            assert named.keys() == {"default", "default-2"}
            own = named[training.job]
            assert (own["epoch"], own["ranks"], own["hit_ratio"]) == (number, 1, stats["total"]["hit_ratio"])
            orders.append(ids)
    assert len({tuple(order) for order in orders}) == 4, "two seeds, two epochs"
    for training in trainings:
        training.end()


def test_a_killed_training_leaves_the_other_alone_and_its_name_is_free(
    dataset: packed.Packed, trainings: list[Training]
) -> None:
    first, second = trainings
    first.epoch()
    first.process.kill()
    first.process.wait()
    for _ in range(2):
        ids, _, _ = second.epoch()
        assert sorted(ids) == list(range(len(dataset)))
    with Loader(dataset.path, BATCH, plan=Plan(sampler="uniform"), daemon=Daemon(job="default")) as third:
        assert third.daemon_pid == second.daemon
        assert sum(len(batch) for batch in third) == len(dataset)
    second.end()


def test_names_of_launchers_are_made_unique_for_trainings_of_one_rank(
    dataset: packed.Packed, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("SLURM_JOB_ID", "77")
    with Loader(dataset.path, BATCH) as first, Loader(dataset.path, BATCH) as second:
        assert (first.job, second.job) == ("slurm-77", "slurm-77-2")
        with Loader(dataset.path, BATCH, train=False) as validates:
            assert validates.job == "slurm-77.eval"


def cache_of(loader: Loader) -> dict:
    """What has become of the job's accesses, and the daemon's cache."""
    stats = loader.stats()
    return {name: stats[name] for name in ("total", "resident", "cache_used_bytes")}


def test_validation_beside_training_reads_past_the_cache(dataset: packed.Packed) -> None:
    with warnings.catch_warnings():
        # A validation without options is content with the daemon of the training.
        warnings.simplefilter("error")
        trains = Loader(dataset.path, BATCH, cache="40%", plan=Plan(sampler="uniform"))
        validates = Loader(dataset.path, BATCH, train=False)
    with trains, validates:
        assert (validates.job, validates.daemon_pid) == ("default.eval", trains.daemon_pid)
        for batch in trains:
            del batch
        # Its next epoch's first batches are filled, and nothing happens any more.
        before, now = {}, cache_of(trains)
        while before != now or trains.stats()["rank"]["open"] == 0 or trains.stats()["reads_submitted"] > 0:
            time.sleep(0.1)
            before, now = now, cache_of(trains)
        assert 0 < before["resident"] < len(dataset)
        hits: list[Counter[int]] = []
        for _ in range(2):
            hits.append(Counter())
            ids = []
            for batch in validates:
                hits[-1][batch.index] = batch.hits
                ids += batch.ids.tolist()
            assert ids == list(range(len(dataset)))
        # Which samples are resident shows in each batch.
        assert hits[0] == hits[1] and hits[0].total() == before["resident"]
        counts = validates.stats()["total"]
        assert (counts["admitted"], counts["evicted"]) == (0, 0)
        assert counts["misses"] == counts["reads"] + counts["coalesced"] == 2 * (len(dataset) - before["resident"])
        assert cache_of(trains) == before
        jobs = {job["name"]: job["admit"] for job in trains.stats()["jobs"]}
        assert jobs == {"default": True, "default.eval": False}


def test_a_validation_is_told_of_the_settings_that_it_was_given(dataset: packed.Packed) -> None:
    with Loader(dataset.path, BATCH, cache="40%"):
        with pytest.warns(RuntimeWarning, match="apply to all its jobs: cache 40% instead of 30%.*Daemon\\(socket=") as told:
            Loader(dataset.path, BATCH, cache="30%", train=False).close()
        assert len(told) == 1


def test_the_environment_names_a_socket(
    dataset: packed.Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADE_SOCKET", str(tmp_path / "s"))
    with (
        Loader(dataset.path, BATCH) as by_variable,
        Loader(dataset.path, BATCH, daemon=Daemon(socket=tmp_path / "s")) as same,
        # An argument wins.
        Loader(dataset.path, BATCH, daemon=Daemon(socket=tmp_path / "other")) as other,
    ):
        assert (tmp_path / "s").is_socket()
        # Empty is not set.
        monkeypatch.setenv("SHADE_SOCKET", "")
        with Loader(dataset.path, BATCH) as usual:
            assert by_variable.daemon_pid == same.daemon_pid
            assert len({loader.daemon_pid for loader in (same, other, usual)}) == 3


def test_a_socket_gives_a_daemon_and_a_cache_of_its_own(dataset: packed.Packed, tmp_path: Path) -> None:
    with (
        Loader(dataset.path, BATCH, cache="40%") as shared,
        Loader(dataset.path, BATCH, cache="100%", daemon=Daemon(socket=tmp_path / "s")) as own,
        Loader(dataset.path, BATCH, cache="100%", daemon=Daemon(socket=tmp_path / "s")) as beside,
    ):
        assert shared.daemon_pid != own.daemon_pid == beside.daemon_pid
        assert (shared.job, own.job, beside.job) == ("default", "default", "default-2")
        assert own.stats()["cache_bytes"] > shared.stats()["cache_bytes"]


def test_a_state_is_resumed_in_mid_epoch_while_another_goes_on(dataset: packed.Packed) -> None:
    def report(loader: Loader, batch: Any) -> list[int]:
        loader.report(batch, [float(sample * 37 % 61) for sample in batch.ids.tolist()])
        return batch.ids.tolist()

    with Loader(dataset.path, 4, plan=Plan(sampler="uniform"), seed=9) as other:
        going = iter(other)
        seen = next(going).ids.tolist()
        with Loader(dataset.path, BATCH, daemon=Daemon(job="saved")) as loader:
            for batch in loader:
                report(loader, batch)
            batches = iter(loader)
            for _ in range(3):
                report(loader, next(batches))
            state = loader.state_dict()
            rest = [report(loader, batch) for batch in batches]
        seen += next(going).ids.tolist()
        with Loader(dataset.path, BATCH, daemon=Daemon(job="saved")) as resumed:
            resumed.load_state_dict(state)
            found = []
            for batch in resumed:
                found.append(report(resumed, batch))
                seen += [sample for part in [next(going, None)] if part is not None for sample in part.ids.tolist()]
        assert found == rest
        seen += [sample for batch in going for sample in batch.ids.tolist()]
        assert sorted(seen) == list(range(len(dataset)))


def test_a_stopped_daemon_says_so_to_every_training(dataset: packed.Packed) -> None:
    command = [packed.program("shade-load"), "stop", dataset.path]
    with Loader(dataset.path, BATCH) as one, Loader(dataset.path, BATCH) as two:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert f"stopped process {one.daemon_pid}" in done.stdout and "(jobs default, default-2)" in done.stdout
        with pytest.raises(ShadeError, match="stopped with shade-load stop"):
            iter(one)
        with pytest.raises(ShadeError, match="stopped with shade-load stop"):
            two.stats()


def test_a_group_has_one_permutation_and_each_draws_by_its_own_losses(dataset: packed.Packed) -> None:
    def loader(seed: int, sampler: str, group: str | None) -> Loader:
        return Loader(dataset.path, BATCH, seed=seed, plan=Plan(sampler=sampler, group=group))

    def epoch(training: Loader, sign: float) -> list[int]:
        ids = []
        for batch in training:
            training.report(batch, sign * batch.ids.float())
            ids += batch.ids.tolist()
        return ids

    with loader(1, "uniform", "sweep") as first, loader(2, "uniform", "sweep") as second, loader(2, "uniform", None) as alone:
        assert [job["name"] for job in first.stats()["jobs"]] == ["default", "default-2", "default-3"]
        assert epoch(first, 1) == epoch(second, 1) != epoch(alone, 1)
        groups = [job["group"] for job in first.stats()["jobs"]]
        assert groups[0] == groups[1] is not None and groups[2] is None
    with loader(1, "pads", "sweep") as first, loader(2, "pads", "sweep") as second:
        assert epoch(first, 1) == epoch(second, -1), "no loss is known yet"
        drawn = [Counter(epoch(first, 1)), Counter(epoch(second, -1))]
        assert drawn[0] != drawn[1]
        assert (drawn[0] & drawn[1]).total() > len(dataset) / 2
