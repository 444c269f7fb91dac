"""Two nodes of two ranks train from a bucket what they train from the folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import packed
import pytest
from hosts import finish, hosts

from studies.bucket import served

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("two_nodes_bucket.py")
RANKS = 4
# They draw each sample once; "pads" does while no losses are known.
EACH_ONCE = {"uniform": [0, 1], "mixed": [0, 1], "pads": [0]}

Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("two-nodes")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture(scope="module")
def trained(dataset: packed.Packed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the ranks were given from the folder and from the bucket, and the requests for the latter."""
    root = tmp_path_factory.mktemp("bucket")
    shutil.copytree(dataset.path, root / "store/photos/train")
    with hosts(2) as nodes:

        def train(name: str, source: object, environments: list[dict[str, str]]) -> Results:
            (root / name).mkdir()
            started = [
                nodes.torchrun(node, 2, SCRIPT, source, root / name, **environment)
                for node, environment in enumerate(environments)
            ]
            finish(started)
            return [json.loads((root / name / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]

        folder = train("folder", dataset.path, [{}, {}])
        within = ["ip", "netns", "exec", nodes.namespaces[0]]
        with served(packed.helper("shade-test-bucket"), root / "store", f"host={nodes.addresses[0]}", within=within) as server:
            # Each node has a home of its own.
            environments = [server.environment(root / node) for node in nodes.hostnames]
            bucket = train("bucket", "s3://photos/train", environments)
            return {"folder": folder, "bucket": bucket, "requests": server.be()}


def test_ids_labels_and_pixels_are_those_of_the_folder(trained: dict[str, Any], dataset: packed.Packed) -> None:
    for of_bucket, of_folder in zip(trained["bucket"], trained["folder"], strict=True):
        for name, given in of_bucket.items():
            assert given["epochs"] == of_folder[name]["epochs"], name
            for epoch in given["epochs"]:
                assert all(label == dataset.labels[sample] for sample, label, _ in epoch)


@pytest.mark.parametrize(("sampler", "epoch"), [(name, epoch) for name in EACH_ONCE for epoch in EACH_ONCE[name]])
def test_an_epoch_has_each_sample_once(
    sampler: str, epoch: int, trained: dict[str, Any], dataset: packed.Packed
) -> None:
    given = [sample for rank in trained["bucket"] for sample, *_ in rank[sampler]["epochs"][epoch]]
    assert sorted(given) == list(range(len(dataset)))


def test_each_node_reads_by_a_daemon_of_its_own(trained: dict[str, Any], dataset: packed.Packed) -> None:
    ranks = trained["bucket"]
    for sampler in ranks[0]:
        daemons = [rank[sampler]["daemon"] for rank in ranks]
        assert daemons[0] == daemons[1] != daemons[2] == daemons[3], sampler
        assert all(rank[sampler]["faults"] == 0 for rank in ranks), sampler
    # Each sample was asked for at least once, unless it was read with a neighbour; and two indexes.
    assert 0 < trained["requests"] <= sum(rank[name]["accesses"] for rank in ranks[::2] for name in rank) + 100
