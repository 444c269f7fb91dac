"""A Loader tells whether it waits, and for what: as metrics, as figures, and in a line an epoch."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Daemon, Loader
from shade_load.metrics import CAUSES, between

# A read takes 200 ms: thousands of times what a row of 16 x 16 pixels takes.
SLOW = Daemon(ring="1MiB", store="latency=200ms,depth=4", job="slow")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("metrics")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@contextmanager
def stderr_in(path: Path) -> Iterator[None]:
    """Standard error goes into this file, that of the programs that are started, too.

    `capfd` empties its file with each reading: what another process writes just then is lost.
    """
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_a_slow_store_is_what_is_waited_for(dataset: packed.Packed, tmp_path: Path) -> None:
    stderr = tmp_path / "stderr"
    with stderr_in(stderr), Loader(dataset.path, 4, image_size=packed.SIDE, cache="100%", daemon=SLOW) as loader:
        assert all(math.isfinite(value) for value in loader.metrics().values())
        for _ in loader:
            pass
        metrics = loader.metrics()
        waits = {name: metrics[f"shade/wait_{name}"] for name in ("storage", "workers", "plan", "ranks")}
        assert max(waits, key=waits.__getitem__) == "storage", waits
        assert 0 < sum(waits.values()) <= 1 + 1e-9 and 0 < metrics["shade/wait_share"] <= 1
        assert metrics["shade/hit_ratio"] == 0 and metrics["shade/p50_ms"] >= 200
        assert metrics["shade/samples_per_s"] > 0 and metrics["shade/distinct_share"] == 1
        rank = loader.stats()["rank"]
        assert rank["rank"] == 0 and rank["storage_ns"] > rank["workers_ns"] and rank["waits_for"] is None
        [job] = loader.stats()["jobs"]
        assert [told["rank"] for told in job["by_rank"]] == [0]
        for _ in loader:
            pass
        assert loader.metrics()["shade/hit_ratio"] == 1
    # The daemon writes its log from a thread of its own.
    deadline = time.monotonic() + 60
    while "epoch 0: waited " not in (said := stderr.read_text()) or not said.endswith("\n"):
        assert time.monotonic() < deadline, said
        time.sleep(0.01)
    lines = [line for line in said.splitlines() if "epoch 0: waited " in line]
    assert len(lines) == 1 and 'job "slow"' in lines[0] and "(storage), 0.0 % hits, " in lines[0], lines


def test_a_trainer_that_takes_its_time_has_a_full_ring(dataset: packed.Packed) -> None:
    daemon = Daemon(ring="16KiB", job="full")
    with Loader(dataset.path, 4, image_size=packed.SIDE, daemon=daemon) as loader:
        kept = next(iter(loader))
        deadline = time.monotonic() + 60
        while loader.metrics()["shade/ring_full"] < 0.5:
            assert time.monotonic() < deadline, loader.stats()
            time.sleep(0.05)
        # Batches are there: nothing is waited for.
        assert loader.stats()["rank"]["waits_for"] is None
        assert loader.metrics()["shade/wait_share"] == 0
        assert len(kept) == 4


def looked(attached_seconds: float, stall_seconds: float, successors: int) -> dict[str, Any]:
    """What `between` reads of a Loader's figures."""
    rank = dict.fromkeys([*(f"{cause}_ns" for cause in CAUSES), "ring_full_ns"], 0)
    return {
        "rank": {**rank, "attached_ns": round(attached_seconds * 1e9)},
        "total": dict.fromkeys(("delivered", "bytes_read", "tier_bytes", "accesses", "hits"), 0),
        "epoch": {"distinct_share": 1.0},
        "read_latency": None,
        "stall_seconds": stall_seconds,
        "successors": successors,
    }


def test_the_share_of_waiting_is_of_all_the_time_also_where_a_daemon_was_replaced() -> None:
    # The successor counts for a minute. The trainer has waited for three, of thirty.
    replaced = looked(60, 180, successors=1)
    for before in (looked(3600, 0, successors=0), None):
        assert between(before, replaced, 1800)["shade/wait_share"] == pytest.approx(0.1)
