"""Failures raise, and nothing hangs: killed daemons and trainers, forks, Ctrl-C, bad records."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Daemon, DaemonGone, Loader, LoaderTimeout, PerSample, Plan, RecordError, Sample, ShadeError

BATCH = 8
# Only a process that hangs gets here.
HANG_SECONDS = 120


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("failures")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def start(script: str, *arguments: object, **options: Any) -> subprocess.Popen:
    """A trainer of its own, running `script` with `Loader` at hand. Its lines come back on stdout.

    Its stderr stays ours: the daemon inherits it, and reading it to its end would wait for the daemon's.
    """
    imports = "import sys, os\nfrom shade_load import Daemon, Loader, ShadeError\n"
    head = imports + "sys.stdout.reconfigure(line_buffering=True)\n"
    command = [sys.executable, "-W", "ignore", "-c", head + script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def line(process: subprocess.Popen) -> str:
    text = process.stdout.readline().strip()
    assert text, f"the trainer ended: {process.wait()}"
    return text


def test_a_killed_daemon_is_named_at_once(dataset: packed.Packed) -> None:
    # A ring for a batch or two, so that others are still unread when the daemon dies.
    # And none that takes its place: test_survive.py has those.
    mortal = Daemon(job="killed-daemon", store="latency=200ms", ring=1, survive=False)
    with Loader(dataset.path, BATCH, daemon=mortal) as loader:
        daemon = loader.daemon_pid
        batches = iter(loader)
        next(batches)
        # The promise is 5 seconds; waiting longer is a failure by LoaderTimeout.
        loader._patience.seconds = 5.0
        os.kill(daemon, signal.SIGKILL)
        with pytest.raises(DaemonGone, match=str(daemon)):
            for _ in range(1000):
                next(batches)
        with pytest.raises(StopIteration):
            next(batches)
        with pytest.raises(ShadeError, match=str(daemon)):
            loader.stats()
    # Nothing of it is left: the next Loader starts another.
    with Loader(dataset.path, BATCH, daemon=Daemon(job="killed-daemon")) as loader:
        assert loader.daemon_pid != daemon
        assert sum(1 for _ in loader) == len(loader)


def test_a_killed_trainer_frees_its_rank(dataset: packed.Packed) -> None:
    before = set(os.listdir("/dev/shm"))
    trainer = start(
        """
with Loader(sys.argv[1], 8, daemon=Daemon(job="killed-trainer")) as loader:
    kept = [batch for batch, _ in zip(loader, range(2))]
    print(loader.daemon_pid)
    sys.stdin.read()
""",
        dataset.path,
    )
    daemon = int(line(trainer))
    trainer.kill()
    trainer.communicate()
    with Loader(dataset.path, BATCH, daemon=Daemon(job="killed-trainer")) as loader:
        assert loader.daemon_pid == daemon, "the daemon did not outlive its trainer"
        seen = [sample for batch in loader for sample in batch._native.ids().tolist()]
        assert sorted(seen) == list(range(len(dataset)))
    assert set(os.listdir("/dev/shm")) <= before


def as_it_is(sample: Sample) -> Any:
    return sample.image.copy()


@pytest.mark.parametrize("function", [None, PerSample(as_it_is, workers=1)])
def test_an_iterator_that_waits_in_another_thread_takes_no_batch_of_the_next_iteration(
    dataset: packed.Packed, function: PerSample | None
) -> None:
    told = []

    def take(batches: Iterator[Any]) -> None:
        with pytest.raises(ShadeError) as error:
            next(batches)
        told.append(str(error.value))

    with Loader(dataset.path, BATCH, image_size=8, transform=function, daemon=Daemon(job="left-behind")) as loader:
        # Nothing comes before the second iteration.
        os.kill(loader.daemon_pid, signal.SIGSTOP)
        thread = threading.Thread(target=take, args=[iter(loader)])
        thread.start()
        time.sleep(0.3)
        batches = iter(loader)
        os.kill(loader.daemon_pid, signal.SIGCONT)
        assert [batch.index for batch in batches] == list(range(len(loader)))
        thread.join()
    assert told == ["this iterator belongs to an earlier iteration: a Loader has one at a time"]


def test_an_iterator_that_waits_for_its_first_batch_goes_on_with_the_epoch_that_is_set(dataset: packed.Packed) -> None:
    had: list[tuple[int, int]] = []
    with Loader(dataset.path, BATCH, image_size=8, daemon=Daemon(job="set-meanwhile")) as loader:
        os.kill(loader.daemon_pid, signal.SIGSTOP)
        batches = iter(loader)
        thread = threading.Thread(target=lambda: had.extend((batch.epoch, batch.index) for batch in batches))
        thread.start()
        time.sleep(0.3)
        loader.set_epoch(3)
        os.kill(loader.daemon_pid, signal.SIGCONT)
        thread.join()
        assert had == [(3, batch) for batch in range(len(loader))]


def test_ctrl_c_ends_a_wait(dataset: packed.Packed) -> None:
    trainer = start(
        """
loader = Loader(sys.argv[1], 8, daemon=Daemon(job="interrupted", store="latency=60s"))
batches = iter(loader)
try:
    print("waiting")
    next(batches)
    print("a batch")
except KeyboardInterrupt:
    print("interrupted")
os._exit(0)
""",
        dataset.path,
    )
    assert line(trainer) == "waiting"
    trainer.send_signal(signal.SIGINT)
    assert line(trainer) == "interrupted"
    trainer.communicate()


def test_ctrl_c_ends_the_wait_for_an_answer(dataset: packed.Packed) -> None:
    trainer = start(
        """
import signal, threading
with Loader(sys.argv[1], 8, daemon=Daemon(job="unanswered")) as loader:
    before = loader.state_dict()
    os.kill(loader.daemon_pid, signal.SIGSTOP)
    # Only a call that cannot be interrupted gets here.
    hangs = threading.Timer(45, lambda: (print("hangs"), os._exit(1)))
    hangs.start()
    calls = {"stats": loader.stats, "save": loader.state_dict, "load": lambda: loader.load_state_dict(before)}
    for name, call in calls.items():
        try:
            print("asks", name)
            call()
            print("answered", name)
        except KeyboardInterrupt:
            print("interrupted", name)
    hangs.cancel()
    os.kill(loader.daemon_pid, signal.SIGCONT)
    # Late answers are not taken for answers to later questions.
    print(loader.stats()["pid"] == loader.daemon_pid, loader.state_dict() == before)
    loader.load_state_dict(before)
    print(sum(len(batch) for batch in loader))
""",
        dataset.path,
    )
    for name in ("stats", "save", "load"):
        assert line(trainer) == f"asks {name}"
        trainer.send_signal(signal.SIGINT)
        assert line(trainer) == f"interrupted {name}"
    assert line(trainer) == "True True"
    assert line(trainer) == str(len(dataset))
    trainer.communicate()
    assert trainer.returncode == 0


def test_a_trainer_that_ignores_ctrl_c_goes_on_and_its_daemon_ends(dataset: packed.Packed) -> None:
    """As a script's background job does, which a shell starts with SIGINT ignored."""
    script = """
loader = Loader(sys.argv[1], 8, daemon=Daemon(job="ignores", store="latency=100ms"))
print(os.getpid(), loader.daemon_pid)
seen = 0
for batch in loader:
    seen += len(batch)
    print("a batch")
loader.close()
print("all", seen)
"""
    trainer = start(script, dataset.path, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    pid, daemon = map(int, line(trainer).split())
    ended = os.pidfd_open(daemon)
    while (said := line(trainer)) == "a batch":
        os.kill(pid, signal.SIGINT)
    assert said == f"all {len(dataset)}"
    trainer.communicate()
    assert trainer.returncode == 0
    readable, _, _ = select.select([ended], [], [], HANG_SECONDS)
    os.close(ended)
    assert readable, "the daemon outlived its trainer"


def test_a_forked_child_is_told_what_to_do(dataset: packed.Packed) -> None:
    trainer = start(
        """
loader = Loader(sys.argv[1], 8, daemon=Daemon(job="forked"))
batches = iter(loader)
batch = next(batches)
before = bytes(batch._native.ids())
child = os.fork()
if child == 0:
    calls = {
        "next": lambda: next(batches), "iter": lambda: iter(loader), "len": lambda: len(loader),
        "stats": loader.stats, "set_epoch": lambda: loader.set_epoch(1), "state_dict": loader.state_dict,
        "load_state_dict": lambda: loader.load_state_dict({}), "report": lambda: loader.report(batch, [1.0]),
        "report_validation": lambda: loader.report_validation(1.0), "daemon_pid": lambda: loader.daemon_pid,
        "close": loader.close,
    }
    for name, call in calls.items():
        try:
            call()
            print(name, "worked")
        except ShadeError as error:
            print(name, error)
    # The child may read what it inherited, and its end must not release it.
    print("same" if bytes(batch._native.ids()) == before else "other")
    del batch, batches, loader
    sys.exit(0)
os.waitpid(child, 0)
rest = sum(len(later) for later in batches)
print("same" if bytes(batch._native.ids()) == before else "other", rest + len(batch))
loader.close()
""",
        dataset.path,
    )
    lines = trainer.communicate()[0].splitlines()
    assert len(lines) == 13, lines
    for text in lines[:11]:
        assert "through fork" in text and "spawn" in text, text
    assert lines[11] == "same"
    assert lines[12] == f"same {len(dataset)}"


def test_a_wait_ends_after_its_timeout(dataset: packed.Packed) -> None:
    with Loader(dataset.path, BATCH, rank=0, world_size=2, daemon=Daemon(job="alone")) as loader:
        loader._patience.seconds = 0.3
        with pytest.raises(LoaderTimeout, match=rf"batch 0 of epoch 0 .*{loader.daemon_pid}.*ranks \[1\]"):
            next(iter(loader))
    with Loader(dataset.path, BATCH, daemon=Daemon(job="slow", store="latency=30s")) as loader:
        loader._patience.seconds = 0.3
        with pytest.raises(LoaderTimeout, match="reads are under way"):
            next(iter(loader))


def test_a_stopped_daemon_is_told_from_a_slow_one(dataset: packed.Packed) -> None:
    with Loader(dataset.path, BATCH, daemon=Daemon(job="stopped")) as loader:
        os.kill(loader.daemon_pid, signal.SIGSTOP)
        try:
            loader._patience.seconds = 6.0
            with pytest.raises(LoaderTimeout, match="no sign of life"):
                next(iter(loader))
        finally:
            os.kill(loader.daemon_pid, signal.SIGCONT)
        loader._patience.seconds = 300.0
        assert sum(1 for _ in loader) == len(loader)


def test_a_closed_loader_says_so(dataset: packed.Packed) -> None:
    loader = Loader(dataset.path, BATCH, daemon=Daemon(job="closed"))
    batches = iter(loader)
    loader.close()
    loader.close()
    for call in (
        lambda: next(batches),
        lambda: iter(loader),
        lambda: len(loader),
        loader.stats,
        loader.state_dict,
    ):
        with pytest.raises(ShadeError, match="closed"):
            call()


class TestBadRecords:
    """One record's bytes are flipped on disk; its checksum tells."""

    BAD = 29

    @pytest.fixture
    def damaged(self, dataset: packed.Packed, tmp_path: Path) -> packed.Packed:
        copy = dataset.copy_to(tmp_path / "damaged.shade")
        shard, offset, length = copy.stored(self.BAD)
        with shard.open("r+b") as file:
            file.seek(offset + length // 2)
            byte = file.read(1)
            file.seek(offset + length // 2)
            file.write(bytes([byte[0] ^ 0x10]))
        return copy

    @pytest.fixture(params=[None, packed.SIDE], ids=["raw", "decoded"])
    def size(self, request: pytest.FixtureRequest) -> int | None:
        return request.param

    def test_raise_names_shard_offset_and_path(self, damaged: packed.Packed, size: int | None) -> None:
        shard, offset, _ = damaged.stored(self.BAD)
        file = damaged.files[self.BAD]
        with Loader(
            damaged.path, BATCH, image_size=size, plan=Plan(sampler="uniform"), daemon=Daemon(job=f"raise-{size}")
        ) as loader:
            batches = iter(loader)
            with pytest.raises(RecordError) as caught:
                for batch in batches:
                    assert self.BAD not in batch._native.ids().tolist()
            text = str(caught.value)
            assert shard.name in text or shard.stem in text
            assert str(offset) in text
            assert f"{file.parent.name}/{file.name}" in text
            with pytest.raises(StopIteration):
                next(batches)

    def test_skip_leaves_it_out_and_counts_it(self, damaged: packed.Packed, size: int | None) -> None:
        with Loader(
            damaged.path,
            BATCH,
            image_size=size,
            plan=Plan(sampler="uniform", on_error="skip"),
            daemon=Daemon(job=f"skip-{size}"),
        ) as loader:
            seen, skipped = [], 0
            for batch in loader:
                assert len(batch) + batch.skipped == (
                    BATCH if batch.index < len(loader) - 1 else len(damaged) % BATCH
                )
                ids, labels = batch._native.ids().tolist(), batch._native.labels().tolist()
                assert labels == [damaged.labels[sample] for sample in ids]
                seen += ids
                skipped += batch.skipped
            assert sorted([*seen, self.BAD]) == list(range(len(damaged)))
            assert skipped == 1
            assert loader.stats()["epoch"]["skipped"] == 1

    def test_substitute_fills_its_place_and_counts_it(self, damaged: packed.Packed, size: int | None) -> None:
        with Loader(
            damaged.path,
            BATCH,
            image_size=size,
            plan=Plan(sampler="uniform", on_error="substitute"),
            daemon=Daemon(job=f"substitute-{size}"),
        ) as loader:
            seen, substitutes, substituted = [], [], 0
            for batch in loader:
                ids, flags = batch._native.ids().tolist(), batch._native.flags().tolist()
                assert batch._native.labels().tolist() == [damaged.labels[sample] for sample in ids]
                seen += ids
                substitutes += [sample for sample, flag in zip(ids, flags, strict=True) if flag & 1]
                substituted += batch.substituted
            assert len(seen) == len(damaged)
            assert sorted({*seen, self.BAD}) == list(range(len(damaged)))
            assert len(substitutes) == substituted == 1
            assert damaged.labels[substitutes[0]] == damaged.labels[self.BAD]
            assert loader.stats()["epoch"]["substituted"] == 1

    @pytest.mark.parametrize("on_error", ["skip", "substitute"])
    def test_more_than_bad_max_end_the_epoch(self, dataset: packed.Packed, tmp_path: Path, on_error: Any) -> None:
        copy = dataset.copy_to(tmp_path / "data.shade")
        # Every fourth sample, so that no batch and no class is without any.
        for sample in range(0, len(copy), 4):
            shard, offset, length = copy.stored(sample)
            with shard.open("r+b") as file:
                file.seek(offset + length // 2)
                byte = file.read(1)
                file.seek(offset + length // 2)
                file.write(bytes([byte[0] ^ 0x10]))
        limited, unlimited = Plan(on_error=on_error), Plan(on_error=on_error, bad_max=1.0)
        with Loader(copy.path, BATCH, train=False, plan=limited, daemon=Daemon(job=f"limit-{on_error}")) as loader:
            delivered = []
            with pytest.raises(RecordError, match=r"at most 8 of the 61 may be \(Plan\(bad_max=0.01\)\)") as caught:
                for batch in loader:
                    delivered.append(batch.skipped + batch.substituted)
            # Two in each batch: the fifth has the ninth.
            assert delivered == [2, 2, 2, 2]
            assert loader.stats()["epoch"]["skipped" if on_error == "skip" else "substituted"] == 8
            named = [f"{file.parent.name}/{file.name}" in str(caught.value) for file in copy.files]
            # In the order in which they were found, which within a batch is that of their reads.
            assert named[0] + named[4] == 1 and named[32] + named[36] == 1, str(caught.value)
        with Loader(copy.path, BATCH, train=False, plan=unlimited, daemon=Daemon(job=f"all-{on_error}")) as loader:
            assert sum(batch.skipped + batch.substituted for batch in loader) == 16

    def test_a_missing_shard_is_named(self, dataset: packed.Packed, tmp_path: Path) -> None:
        copy = dataset.copy_to(tmp_path / "data.shade")
        shard, _, _ = copy.stored(0)
        shard.unlink()
        daemon = Daemon(job="missing")
        with pytest.raises(ShadeError, match=shard.stem), Loader(copy.path, BATCH, daemon=daemon) as loader:
            for _ in loader:
                pass

    def test_a_bad_index_is_named(self, dataset: packed.Packed, tmp_path: Path) -> None:
        copy = dataset.copy_to(tmp_path / "data.shade")
        index = copy.path / "dataset.shade"
        content = bytearray(index.read_bytes())
        content[len(content) // 2] ^= 1
        index.write_bytes(content)
        with pytest.raises(ShadeError, match=r"dataset\.shade"):
            Loader(copy.path, BATCH, daemon=Daemon(job="bad-index"))
