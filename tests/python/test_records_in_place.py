"""Raw batches show records where they lie in a cache that holds the whole dataset: without a copy, and to nobody's harm."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Batch, Daemon, Loader, Plan

torch = pytest.importorskip("torch")

BATCH = 8
# Room for three epochs.
RING = "16MiB"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """Records of 69 KB or so: 17 pages each."""
    root = tmp_path_factory.mktemp("in-place")
    packed.image_folder(root / "folder", "png", side=152)
    return packed.pack(root / "folder", root / "data.shade")


def opened(dataset: packed.Packed, job: str, ring: int | str = RING, **options: Any) -> Loader:
    plan, daemon = Plan(sampler="uniform"), Daemon(job=job, ring=ring)
    return Loader(dataset.path, BATCH, plan=plan, daemon=daemon, **{"cache": "100%"} | options)


def check(dataset: packed.Packed, batch: Batch) -> None:
    for sample, record in zip(batch.ids.tolist(), batch.records.memoryviews(), strict=True):
        assert bytes(record) == dataset.files[sample].read_bytes(), f"sample {sample}"


def epoch(loader: Loader, dataset: packed.Packed) -> int:
    """One epoch, checked; how many of its records were lent."""
    seen = []
    for batch in loader:
        check(dataset, batch)
        seen += batch.ids.tolist()
        del batch
    assert sorted(seen) == list(range(len(dataset)))
    return loader.stats()["epoch"]["lent"]


def in_cache(tensor: Any) -> bool:
    with open("/proc/self/maps", encoding="ascii", errors="replace") as lines:
        spans = [line.split()[0].split("-") for line in lines if "/memfd:shade-records" in line]
    return any(int(start, 16) <= tensor.data_ptr() < int(end, 16) for start, end in spans)


def test_from_the_second_epoch_on_nothing_is_copied(dataset: packed.Packed) -> None:
    with opened(dataset, "lent") as loader:
        assert [epoch(loader, dataset) for _ in range(4)] == [0, *[len(dataset)] * 3]
        for batch in loader:
            assert all(in_cache(record) for record in batch.records)
            assert not in_cache(batch.ids)
            del batch
        assert loader.stats()["total"]["lent"] == 4 * len(dataset)
        assert loader._session.held == 0


def test_memoryviews_are_read_only_and_hold_their_batch(dataset: packed.Packed) -> None:
    numpy = pytest.importorskip("numpy")
    with opened(dataset, "views") as loader:
        for _ in range(2):
            batch = next(iter(loader))
            ids, views = batch.ids.tolist(), list(batch.records.memoryviews())
            assert len(views) == BATCH and all(view.readonly and view.format == "B" for view in views)
            with pytest.raises(TypeError):
                views[0][0] = 1
            array = numpy.frombuffer(views[3], numpy.uint8)
            assert not array.flags.writeable
            del batch, views
            assert loader._session.held == 1
            assert array.tobytes() == dataset.files[ids[3]].read_bytes()
            del array
            assert loader._session.held == 0
            epoch(loader, dataset)
    with opened(dataset, "decoded-views", image_size=packed.SIDE) as loader, pytest.raises(AttributeError):
        next(iter(loader)).records.memoryviews()


def test_views_show_what_was_written_before_they_were_taken(dataset: packed.Packed) -> None:
    with opened(dataset, "views-written") as loader:
        epoch(loader, dataset)
        for batch in loader:
            check(dataset, batch)
            batch.records[0].fill_(7)
            first, *others = batch.records.memoryviews()
            assert set(first) == {7} and set(batch.records.to_bytes(0)) == {7}
            for sample, record in zip(batch.ids.tolist()[1:], others, strict=True):
                assert bytes(record) == dataset.files[sample].read_bytes()
            del batch, first, others, record
        epoch(loader, dataset)


def resident_bytes() -> int:
    """Shared memory that counts as this process's: the ring, and the cache."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssShmem:")) << 10


@pytest.mark.parametrize("how", ["memoryviews", "tensors", "both"])
def test_no_more_is_resident_than_the_ring(tmp_path: Path, how: str) -> None:
    packed.image_folder(tmp_path / "folder", "png", {"all": 400}, side=190)
    data = packed.pack(tmp_path / "folder", tmp_path / "data.shade")
    # A record has 108 KB, so all have 43 MB and a batch 860 KB.
    ring = 8 << 20
    with opened(data, f"resident-{how}", ring=ring) as loader:
        before, most = resident_bytes(), 0
        for number in range(3):
            for batch in loader:
                for position, view in enumerate(batch.records.memoryviews()):
                    if how != "tensors":
                        sum(view[::4096])
                    if how != "memoryviews":
                        batch.records[position][::4096].sum()
                    most = max(most, resident_bytes() - before)
                del batch, view
            assert loader.stats()["epoch"]["lent"] == (len(data) if number else 0)
        assert most <= ring, f"{most / ring:.2f} times the ring"


def test_what_a_loop_writes_is_its_own_and_gone_with_the_batch(dataset: packed.Packed) -> None:
    with opened(dataset, "written") as loader:
        epoch(loader, dataset)
        kept = []
        for number, batch in enumerate(loader):
            for record in batch.records:
                assert in_cache(record)
                record.fill_(number)
                assert bool((record == number).all())
            if number < 3:
                kept.append((number, batch))
            del batch, record
        # What is in hand is copied for others, and stays as it was written.
        assert epoch(loader, dataset) == len(dataset) - 3 * BATCH
        for number, batch in kept:
            assert all(bool((record == number).all()) for record in batch.records)
        del kept, batch
        assert epoch(loader, dataset) == len(dataset)


def test_whatever_is_kept_comes_and_stays_right(dataset: packed.Packed) -> None:
    with warnings.catch_warnings():
        # That copies are made is what it warns of.
        warnings.simplefilter("ignore", RuntimeWarning)
        with opened(dataset, "kept", ring=1) as loader:
            epoch(loader, dataset)
            kept = [batch for _ in range(4) for batch in loader]
            assert loader.stats()["total"]["lent"] > 0
            for batch in kept:
                check(dataset, batch)
    for batch in kept:
        check(dataset, batch)


@pytest.fixture
def daemon(dataset: packed.Packed) -> Iterator[subprocess.Popen]:
    """One that stays when trainers have left, for the job "stays"; ready."""
    command = [packed.program("shade-load"), "serve", dataset.path, "--cache", "100%", "--job", "stays"]
    command += ["--private", "--linger", "60s"]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout.readline()
        yield daemon
        daemon.terminate()


def test_a_batch_outlives_its_loader_and_its_daemon(dataset: packed.Packed, daemon: subprocess.Popen) -> None:
    with opened(dataset, "stays") as loader:
        epoch(loader, dataset)
        closed = next(iter(loader))
    check(dataset, closed)
    with opened(dataset, "stays") as loader:
        assert epoch(loader, dataset) == len(dataset), "the one before said goodbye"
        last = next(iter(loader))
        assert loader.daemon_pid == daemon.pid
        daemon.kill()
        daemon.wait()
        check(dataset, last)
    check(dataset, closed)
    check(dataset, last)


def test_a_killed_trainer_gives_everything_back(dataset: packed.Packed, daemon: subprocess.Popen) -> None:
    script = """
import sys, time
from shade_load import Daemon, Loader, Plan
loader = Loader(sys.argv[1], 8, cache="100%", plan=Plan(sampler="uniform"), daemon=Daemon(job="stays", ring="16MiB"))
for _ in range(2):
    kept = list(loader)
print(loader.stats()["epoch"]["lent"], flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-W", "ignore", "-c", script, str(dataset.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert int(trainer.stdout.readline()) > 0
        trainer.kill()
    with opened(dataset, "stays") as loader:
        assert epoch(loader, dataset) == len(dataset)
        assert loader.daemon_pid == daemon.pid


def test_nothing_is_lent_where_a_record_may_have_to_go_or_shares_its_page(
    dataset: packed.Packed, tmp_path: Path
) -> None:
    packed.image_folder(tmp_path / "folder", "png")
    small = packed.pack(tmp_path / "folder", tmp_path / "small.shade")
    for number, (data, cache) in enumerate([(dataset, "90%"), (small, "100%")]):
        with opened(data, f"copied{number}", cache=cache) as loader:
            assert [epoch(loader, data) for _ in range(3)] == [0, 0, 0]


def test_a_trainer_without_room_for_the_cache_has_copies(dataset: packed.Packed) -> None:
    # Room for the ring and some threads, but not for two mappings of the cache's 64 MB or so.
    script = """
import resource, sys
from shade_load import Daemon, Loader
options = {"cache": "100%", "daemon": Daemon(job="no-room", ring=sys.argv[2])}
# The daemon is not to have the limit.
Loader(sys.argv[1], 8, **options).close()
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (48 << 20), resource.RLIM_INFINITY))
with Loader(sys.argv[1], 8, **options) as loader:
    for _ in range(2):
        print(sum(len(batch) for batch in loader), loader.stats()["epoch"]["lent"])
"""
    command = [sys.executable, "-c", script, str(dataset.path), RING]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout.split() == [str(len(dataset)), "0"] * 2
