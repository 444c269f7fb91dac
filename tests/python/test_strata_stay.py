"""Daemons that outlive a training keep its strata: what a later training finds in their caches."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError

BATCH = 10
# Three ranks have 6 strata of it: four of 267 samples and two of 266.
SAMPLES = 1600


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("strata")
    packed.image_folder(root / "folder", "png", {"ant": 700, "bee": 900}, side=4)
    return packed.pack(root / "folder", root / "data.shade")


@dataclass
class Node:
    """A node, stood for by a socket. Its daemon stays until it is stopped."""

    socket: Path

    def stop(self) -> None:
        if self.socket.exists():
            command = [packed.program("shade-load"), "stop", "--socket", self.socket]
            # It may have ended by itself.
            subprocess.run(command, check=False, capture_output=True)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    nodes = [Node(tmp_path / name) for name in "abc"]
    try:
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def all_gather(ranks: int) -> Callable[[bytes], list[bytes]]:
    """An exchange between threads, as often as they all call it."""
    together = threading.Barrier(ranks)
    messages: list[bytes] = []

    def exchange(mine: bytes) -> list[bytes]:
        messages.append(mine)
        together.wait()
        given = list(messages)
        if together.wait() == 0:
            messages.clear()
        together.wait()
        return given

    return exchange


@dataclass
class Trained:
    """A rank's first epoch."""

    ids: set[int]
    hits: int
    strata: int


def train(dataset: packed.Packed, ranks: list[Node], plan: Plan = Plan()) -> list[Trained]:
    """One epoch of a training with a rank at each of these nodes."""
    exchange = all_gather(len(ranks))

    def run(rank: int) -> Trained:
        daemon = Daemon(socket=ranks[rank].socket, linger=3600.0, exchange=exchange)
        with Loader(
            dataset.path, BATCH, cache="100%", plan=plan, daemon=daemon, rank=rank, world_size=len(ranks)
        ) as loader:
            ids = [sample for batch in loader for sample in batch._native.ids().tolist()]
            assert len(ids) == len(set(ids))
            return Trained(set(ids), loader.stats()["total"]["hits"], loader._job["plan"]["strata"])

    with ThreadPoolExecutor(len(ranks)) as pool:
        trained = list(pool.map(run, range(len(ranks))))
    assert sorted(sample for rank in trained for sample in rank.ids) == list(range(len(dataset)))
    return trained


def test_a_lost_node_s_strata_move_and_no_others(dataset: packed.Packed, nodes: list[Node]) -> None:
    a, b, c = nodes
    before = train(dataset, [a, b, c])
    assert [(len(rank.ids), rank.hits, rank.strata) for rank in before] == [(534, 0, 6), (533, 0, 6), (533, 0, 6)]
    # The others are numbered anew.
    b.stop()
    left = train(dataset, [c, a])
    assert [rank.strata for rank in left] == [6, 6]
    assert [rank.hits for rank in left] == [533, 534]
    assert before[2].ids < left[0].ids
    assert before[0].ids < left[1].ids
    # It comes back without its cache: two strata for each, where the others have three cached.
    back = train(dataset, [b, a, c])
    assert [rank.hits for rank in back] == [0, len(back[1].ids), len(back[2].ids)]
    assert back[1].ids < left[1].ids
    assert back[2].ids < left[0].ids


def test_a_node_that_comes_back_with_its_cache_is_nobody_s_loss(dataset: packed.Packed, nodes: list[Node]) -> None:
    a, b, c = nodes
    before = train(dataset, [a, b, c])
    left = train(dataset, [c, a])
    assert [rank.hits for rank in left] == [533, 534]
    back = train(dataset, [a, b, c])
    assert [rank.hits for rank in back] == [len(rank.ids) for rank in back]
    assert [rank.ids for rank in back] == [rank.ids for rank in before]


def test_nodes_that_had_other_strata_keep_what_fits(dataset: packed.Packed, nodes: list[Node]) -> None:
    a, b, _ = nodes
    train(dataset, [a, b], Plan(strata=4))
    # Each of 8 strata is a half of one of 4.
    finer = train(dataset, [b, a], Plan(strata=8))
    assert [(rank.strata, rank.hits) for rank in finer] == [(8, 800), (8, 800)]


def test_no_daemon_no_second_message(dataset: packed.Packed, nodes: list[Node]) -> None:
    calls = []
    gather = all_gather(2)

    def exchange(mine: bytes) -> list[bytes]:
        calls.append(mine)
        return gather(mine)

    def begin(rank: int) -> None:
        daemon = Daemon(socket=nodes[rank].socket, linger=0.0, exchange=exchange)
        Loader(dataset.path, BATCH, rank=rank, world_size=2, daemon=daemon).close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(begin, range(2)))
    assert len(calls) == 2


def test_an_exchange_that_loses_the_second_message(dataset: packed.Packed, nodes: list[Node]) -> None:
    train(dataset, nodes[:2])
    gather = all_gather(2)

    def begin(rank: int) -> str:
        def exchange(mine: bytes) -> list[bytes]:
            given = gather(mine)
            return given if mine.startswith(b"{") else [mine]

        daemon = Daemon(socket=nodes[rank].socket, linger=3600.0, exchange=exchange)
        with pytest.raises(ShadeError) as error:
            Loader(dataset.path, BATCH, cache="100%", rank=rank, world_size=2, daemon=daemon)
        return str(error.value)

    with ThreadPoolExecutor(2) as pool:
        for rank, text in enumerate(pool.map(begin, range(2))):
            assert f"exchange: got the ranks [{rank}] of what daemons have cached, expected each of 0 to 1" in text
