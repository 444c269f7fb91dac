"""Two nodes of two ranks train with DDP, without a flag, what one node of four ranks trains."""

import json
import re
from pathlib import Path
from typing import Any

import packed
import pytest
from hosts import finish, hosts, run_ranks, start_ranks

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("two_nodes_train.py")
RESUME = Path(__file__).with_name("two_nodes_resume.py")
RANKS = 4


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("two-nodes")
    packed.image_folder(root / "folder", "png")
    # The second node's, in another test, has a file more.
    packed.image_folder(root / "other", "png", {**packed.CLASSES, "ant": 14})
    packed.pack(root / "other", root / "other.shade")
    whole = packed.pack(root / "folder", root / "data.shade")
    damaged = whole.copy_to(root / "damaged-2.shade")
    (damaged.path / "dataset.shade").write_bytes(b"no index")
    return whole


def results(out: Path) -> list[dict[str, Any]]:
    """What each rank has written."""
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def ranks(dataset: packed.Packed, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The ranks of two nodes."""
    out = tmp_path_factory.mktemp("out")
    others = (dataset.path, dataset.path.with_name("other.shade"))
    with hosts(2) as nodes:
        finish([nodes.torchrun(node, 2, SCRIPT, dataset.path, others[node], out, 0) for node in range(2)])
    return results(out)


def test_all_ranks_train_and_their_models_are_equal(ranks: list[dict[str, Any]], dataset: packed.Packed) -> None:
    assert len({rank["model"] for rank in ranks}) == 1
    assert len({tuple(epoch["batches"] for epoch in rank["epochs"]) for rank in ranks}) == 1
    for rank in ranks:
        for epoch in rank["epochs"]:
            assert epoch["labels"] == [dataset.labels[sample] for sample in epoch["ids"]]
    # Nothing was known before the first epoch.
    assert sorted(sample for rank in ranks for sample in rank["epochs"][0]["ids"]) == list(range(len(dataset)))


def test_each_node_has_its_own_daemon_and_its_own_samples(ranks: list[dict[str, Any]]) -> None:
    daemons = [rank["daemon"] for rank in ranks]
    assert daemons[0] == daemons[1] != daemons[2] == daemons[3]
    seen = [{sample for epoch in rank["epochs"] for sample in epoch["ids"]} for rank in ranks]
    assert not (seen[0] | seen[1]) & (seen[2] | seen[3]), "no sample is trained, and cached, on both nodes"
    for node in (ranks[:2], ranks[2:]):
        assert all(rank["placement"][0] == 2 for rank in node)
        assert node[0]["accesses"] == sum(len(epoch["ids"]) for rank in node for epoch in rank["epochs"])


def test_no_daemon_has_a_tcp_socket(ranks: list[dict[str, Any]]) -> None:
    """Not even one that it has inherited from torch."""
    assert [rank["tcp"] for rank in ranks] == [0] * RANKS


def test_it_is_the_training_of_one_node_with_as_many_strata(
    ranks: list[dict[str, Any]], dataset: packed.Packed, tmp_path: Path
) -> None:
    (strata,) = {rank["placement"][1] for rank in ranks}
    assert strata > 1 and strata % RANKS == 0
    run_ranks(RANKS, SCRIPT, dataset.path, dataset.path, tmp_path, strata)
    alone = results(tmp_path)
    assert [rank["epochs"] for rank in alone] == [rank["epochs"] for rank in ranks]
    assert len({rank["daemon"] for rank in alone}) == 1


def test_validation_takes_every_sample_once_and_by_one_rank_waits_for_none(
    ranks: list[dict[str, Any]], dataset: packed.Packed
) -> None:
    every = list(range(len(dataset)))
    assert ranks[0]["validated"]["alone"] == every
    assert sorted(sample for rank in ranks for sample in rank["validated"]["all"]) == every


def given(out: Path, ranks: int, part: str) -> list[int]:
    """The samples that all ranks were given before or after their state was saved, in order of their ids."""
    told = [json.loads((out / f"rank-{rank}.json").read_text())[part] for rank in range(ranks)]
    assert len({len(batches) for batches in told}) == 1
    return sorted(sample for batches in told for batch in batches for sample in batch)


@pytest.mark.parametrize("sampler", ["uniform", "pads"])
def test_the_state_of_one_rank_goes_on_with_other_nodes_and_ranks(
    sampler: str, dataset: packed.Packed, tmp_path: Path
) -> None:
    """2 x 2 ranks stop in mid-epoch. From the state of rank 0 go on: 2 x 3, from whose state 1 x 4 and 1 x 1; 1 x 2."""

    def outs(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    with hosts(2) as nodes:

        def on_two(name: str, ranks: int, state: Path | str) -> Path:
            out = outs(name)
            finish([start_ranks(nodes, node, ranks, RESUME, dataset.path, out, state, 1, sampler) for node in range(2)])
            return out

        first = on_two("first", 2, "")
        other = on_two("other", 3, first / "state")
    begun, rest = given(first, 4, "ids"), given(first, 4, "rest")
    assert (len(begun), len(begun) + len(rest)) == (16, len(dataset))
    assert sorted(given(other, 6, "ids") + given(other, 6, "rest")) == rest

    def on_one(ranks: int, state: Path) -> list[int]:
        out = outs(f"one-{ranks}")
        run_ranks(ranks, RESUME, dataset.path, out, state, 0, sampler)
        return given(out, ranks, "ids")

    assert on_one(2, first / "state") == rest
    for ranks in (4, 1):
        assert on_one(ranks, other / "state") == given(other, 6, "rest")


class TestRefusals:
    """All ranks are told the same, with the rank and the node."""

    @staticmethod
    def told(ranks: list[dict[str, Any]], what: str) -> str:
        texts = [rank["told"][what] for rank in ranks]
        assert len(set(texts)) == 1, texts
        return texts[0]

    def test_a_rank_that_makes_no_loader(self, ranks: list[dict[str, Any]]) -> None:
        """The last one makes its own only when the others have given up, and is told the same."""
        text = self.told(ranks, "absent")
        # On a busy machine another one may have come too late as well.
        assert re.match(r"timeout: ranks? (\d, )*3 of 4 made no Loader for training within 2 s", text), text

    def test_another_batch_size(self, ranks: list[dict[str, Any]]) -> None:
        text = self.told(ranks, "batch_size")
        assert "batch_size is not the same on all ranks: 4 on rank 0 (node-a), rank 1 (node-a), rank 2 (node-b)" in text
        assert "5 on rank 3 (node-b)" in text

    def test_another_dataset(self, ranks: list[dict[str, Any]], dataset: packed.Packed) -> None:
        text = self.told(ranks, "dataset")
        samples = len(dataset)
        assert text.startswith(f"the dataset is not the same on all ranks: {samples} samples, content id ")
        assert " on rank 0 (node-a), rank 1 (node-a); " in text and f"{samples + 1} samples" in text
        assert " on rank 2 (node-b), rank 3 (node-b)." in text

    def test_a_dataset_that_one_rank_cannot_open(self, ranks: list[dict[str, Any]]) -> None:
        texts = [rank["told"]["damaged"] for rank in ranks]
        assert all("damaged-2.shade" in text for text in texts)
        assert all(text.startswith("rank 2 on node-b cannot train: ") for text in texts[:2] + texts[3:])
