"""Records of raw batches are views of the ring, and stay right as long as one is kept."""

import subprocess
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


def check_epoch(loader: Loader, dataset: packed.Packed) -> None:
    seen = []
    for batch in loader:
        check(dataset, batch)
        seen += batch.ids.tolist()
        del batch
    assert sorted(seen) == list(range(len(dataset)))


def in_ring(tensor: Any) -> bool:
    with open("/proc/self/maps", encoding="ascii", errors="replace") as lines:
        spans = [line.split()[0].split("-") for line in lines if "/memfd:shade-ring-payload" in line]
    return any(int(start, 16) <= tensor.data_ptr() < int(end, 16) for start, end in spans)


@pytest.mark.parametrize("cache", ["0", "50%", "100%"])
def test_records_come_whole_whatever_the_cache_holds(dataset: packed.Packed, cache: str) -> None:
    with opened(dataset, f"cache-{cache.rstrip('%')}", cache=cache) as loader:
        for _ in range(3):
            check_epoch(loader, dataset)
        assert loader._session.held == 0


def test_tensors_and_views_show_the_ring(dataset: packed.Packed) -> None:
    with opened(dataset, "ring") as loader:
        for batch in loader:
            assert all(in_ring(record) for record in batch.records)
            check(dataset, batch)
            batch.records[0].fill_(7)
            first, *others = batch.records.memoryviews()
            assert set(first) == {7} and set(batch.records.to_bytes(0)) == {7}
            for sample, record in zip(batch.ids.tolist()[1:], others, strict=True):
                assert bytes(record) == dataset.files[sample].read_bytes()
            del batch, first, others, record
        assert loader._session.held == 0


def test_memoryviews_are_read_only_and_hold_their_batch(dataset: packed.Packed) -> None:
    numpy = pytest.importorskip("numpy")
    with opened(dataset, "views") as loader:
        batch = next(iter(loader))
        ids, views = batch.ids.tolist(), batch.records.memoryviews()
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
    with opened(dataset, "decoded-views", image_size=packed.SIDE) as loader, pytest.raises(AttributeError):
        next(iter(loader)).records.memoryviews()


def test_what_a_loop_writes_reaches_no_other_batch(dataset: packed.Packed) -> None:
    with opened(dataset, "written") as loader:
        check_epoch(loader, dataset)
        kept = []
        for number, batch in enumerate(loader):
            for record in batch.records:
                record.fill_(number)
            if number < 3:
                kept.append((number, batch))
            del batch, record
        check_epoch(loader, dataset)
        for number, batch in kept:
            assert all(bool((record == number).all()) for record in batch.records)


def test_whatever_is_kept_stays_right(dataset: packed.Packed) -> None:
    with warnings.catch_warnings():
        # That copies are made is what it warns of.
        warnings.simplefilter("ignore", RuntimeWarning)
        with opened(dataset, "kept", ring=1) as loader:
            kept = [batch for _ in range(4) for batch in loader]
            for batch in kept:
                check(dataset, batch)
    for batch in kept:
        check(dataset, batch)


@pytest.fixture
def copied(dataset: packed.Packed, tmp_path: Path) -> packed.Packed:
    """A dataset that has no daemon yet."""
    return dataset.copy_to(tmp_path / "data.shade")


@pytest.fixture
def daemon(copied: packed.Packed) -> Iterator[subprocess.Popen]:
    """One that stays when trainers have left; ready."""
    command = [packed.program("shade-load"), "serve", copied.path, "--cache", "100%"]
    command += ["--private", "--linger", "60s"]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE) as daemon:
        # That it is starting, and that it is ready.
        assert daemon.stdout.readline() and daemon.stdout.readline()
        yield daemon
        daemon.terminate()


def test_a_batch_outlives_its_loader_and_its_daemon(
    dataset: packed.Packed, copied: packed.Packed, daemon: subprocess.Popen
) -> None:
    with opened(copied, "stays") as loader:
        check_epoch(loader, dataset)
        closed = next(iter(loader))
    check(dataset, closed)
    with opened(copied, "stays") as loader:
        last = next(iter(loader))
        assert loader.daemon_pid == daemon.pid
        daemon.kill()
        daemon.wait()
        check(dataset, last)
    check(dataset, closed)
    check(dataset, last)
