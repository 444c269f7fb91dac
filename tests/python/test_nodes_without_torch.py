"""Ranks of several nodes, stood for by several sockets, over an exchange that is a function."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError
from shade_load.nodes import Member, node_of

BATCH = 4


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("nodes")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def all_gather(ranks: int) -> Callable[[bytes], list[bytes]]:
    """An exchange between threads."""
    arrived = threading.Barrier(ranks)
    messages: list[bytes] = []

    def exchange(mine: bytes) -> list[bytes]:
        messages.append(mine)
        arrived.wait()
        # In any order: each says whose it is.
        return list(messages)

    return exchange


def run(dataset: packed.Packed, sockets: list[Path], **arguments: Any) -> list[Any]:
    """One rank for each socket: (daemon, ranks here, strata, ids of two epochs), or its error."""
    exchange = all_gather(len(sockets))

    def train(rank: int) -> Any:
        daemon = Daemon(socket=sockets[rank], linger=0.0, exchange=exchange)
        options = {"rank": rank, "world_size": len(sockets), "daemon": daemon, **arguments}
        try:
            with Loader(dataset.path, BATCH, **options) as loader:
                epochs = []
                for _ in range(2):
                    epochs.append([])
                    for batch in loader:
                        ids = batch._native.ids().tolist()
                        loader.report(batch, [float(sample % 7) for sample in ids])
                        epochs[-1] += ids
                return loader.daemon_pid, loader._job["ranks_here"], loader._job["plan"]["strata"], epochs
        except ShadeError as error:
            return str(error)

    with ThreadPoolExecutor(len(sockets)) as pool:
        return list(pool.map(train, range(len(sockets))))


def test_each_sample_belongs_to_one_node(dataset: packed.Packed, tmp_path: Path) -> None:
    for node in "ab":
        (tmp_path / node).mkdir()
    first, second = tmp_path / "a" / "socket", tmp_path / "b" / "socket"
    ranks = run(dataset, [first, second, first, second], plan=Plan(sampler="pads"))
    daemons = [rank[0] for rank in ranks]
    assert daemons[0] == daemons[2] != daemons[1] == daemons[3]
    assert [rank[1] for rank in ranks] == [2] * 4
    (strata,) = {rank[2] for rank in ranks}
    assert strata > 1 and strata % 4 == 0
    seen = [set(rank[3][0]) | set(rank[3][1]) for rank in ranks]
    assert not (seen[0] | seen[2]) & (seen[1] | seen[3])
    # Nothing was known before the first epoch.
    assert sorted(sample for rank in ranks for sample in rank[3][0]) == list(range(len(dataset)))
    # The same on one node, where the ranks share a socket.
    alone = run(dataset, [tmp_path / "c"] * 4, plan=Plan(sampler="pads", strata=strata))
    assert [rank[3] for rank in alone] == [rank[3] for rank in ranks]
    assert [rank[1:3] for rank in alone] == [(0, strata)] * 4


def test_strata_change_nodes_with_mix(dataset: packed.Packed, tmp_path: Path) -> None:
    plan = Plan(sampler="uniform", strata=8, mix=1.0)
    ranks = run(dataset, [tmp_path / "a", tmp_path / "b"], plan=plan)
    for epoch in range(2):
        assert sorted(sample for rank in ranks for sample in rank[3][epoch]) == list(range(len(dataset)))
    assert set(ranks[0][3][0]) != set(ranks[0][3][1])
    alone = run(dataset, [tmp_path / "c"] * 2, plan=plan)
    assert [rank[3] for rank in alone] == [rank[3] for rank in ranks]


def test_nodes_of_different_sizes(dataset: packed.Packed, tmp_path: Path) -> None:
    ranks = run(dataset, [tmp_path / "a", tmp_path / "a", tmp_path / "b"])
    assert [rank[1] for rank in ranks] == [2, 2, 1]
    assert sorted(sample for rank in ranks for sample in rank[3][0]) == list(range(len(dataset)))


def test_nodes_share_a_subset_as_a_whole(dataset: packed.Packed, tmp_path: Path) -> None:
    some = list(range(7, 37))
    ranks = run(dataset, [tmp_path / "a", tmp_path / "b"], plan=Plan(indices=some))
    assert [rank[2] for rank in ranks] == [1, 1]
    for epoch in range(2):
        assert sorted(sample for rank in ranks for sample in rank[3][epoch]) == some
    with pytest.raises(ValueError, match="sampler is pads, but must be one that goes by no losses.*indices, buckets or a mixture are given"):
        run(dataset, [tmp_path / "c", tmp_path / "d"], plan=Plan(indices=some, sampler="pads"))


def test_one_node_has_one_stratum(dataset: packed.Packed, tmp_path: Path) -> None:
    assert [rank[1:3] for rank in run(dataset, [tmp_path / "a"] * 2)] == [(0, 1)] * 2


def test_an_exchange_that_is_none_is_refused(dataset: packed.Packed) -> None:
    both: dict[str, Any] = {"rank": 0, "world_size": 2}
    with pytest.raises(TypeError, match='exchange: got 7, expected "torch", None or a function'):
        Daemon(exchange=7)  # type: ignore[arg-type]
    with pytest.raises(ShadeError, match=r"exchange: got the ranks \[0\], expected each of 0 to 1 once"):
        Loader(dataset.path, BATCH, **both, daemon=Daemon(exchange=lambda mine: [mine]))
    with pytest.raises(ShadeError, match="a rank's message cannot be read"):
        Loader(dataset.path, BATCH, **both, daemon=Daemon(exchange=lambda mine: [mine, b"hello"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "0.0.1"}, r"the version of shade_load is not the same.*0\.0\.1 .*on rank 1 \(far\)\. Install"),
        ({"content_id": "77"}, r"the dataset is not the same.*content id 77 on rank 1 \(far\)\. Give all nodes"),
        ({"error": "no such file"}, r"rank 1 on far cannot train: no such file"),
    ],
)
def test_ranks_that_differ_are_named(dataset: packed.Packed, change: dict[str, str], message: str) -> None:
    def exchange(mine: bytes) -> list[bytes]:
        other = replace(Member.from_bytes(mine), rank=1, host="far", node="elsewhere", **change)
        return [mine, other.to_bytes()]

    with pytest.raises(ShadeError, match=message):
        Loader(dataset.path, BATCH, rank=0, world_size=2, daemon=Daemon(exchange=exchange))


def test_the_first_argument_that_differs_is_named(dataset: packed.Packed) -> None:
    def exchange(mine: bytes) -> list[bytes]:
        other = json.loads(mine)
        other |= {"rank": 1, "host": "far", "job": {**other["job"], "seed": 7}}
        return [mine, json.dumps(other).encode()]

    with pytest.raises(ShadeError, match=r"seed is not the same on all ranks: 0 on rank 0 .*7 on rank 1 \(far\)"):
        Loader(dataset.path, BATCH, rank=0, world_size=2, daemon=Daemon(exchange=exchange))


def test_a_node_is_where_a_daemon_is(tmp_path: Path) -> None:
    assert node_of(None) == node_of(None) != node_of(str(tmp_path / "a"))
    assert node_of(str(tmp_path / "a")) != node_of(str(tmp_path / "b"))
    # The same folder under two paths, as containers mount it.
    (tmp_path / "link").symlink_to(tmp_path)
    assert node_of(str(tmp_path / "link" / "a")) == node_of(str(tmp_path / "a"))
