"""Two nodes pool their scores and draw one plan by losses: they train on what one node of four ranks trains on."""

import json
from pathlib import Path
from typing import Any

import packed
import pytest
from hosts import finish, hosts, run_ranks

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("pooled_train.py")
KINDS = ["whole", "ahead", "subset", "fewer", "covered", "mixture", "part", "buckets"]
RANKS = 4


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pooled")
    for name, kind in (("first", "png"), ("second", "jpeg")):
        packed.image_folder(root / name, kind)
        packed.pack(root / name, root / f"{name}.shade")
    return root


def results(out: Path) -> list[dict[str, Any]]:
    """What each rank has written."""
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


def on_two_nodes(root: Path, out: Path, *more: str) -> list[dict[str, Any]]:
    with hosts(2) as nodes:
        finish([nodes.torchrun(node, 2, SCRIPT, root, out, *more) for node in range(2)])
    return results(out)


@pytest.fixture(scope="module")
def alone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The ranks of one node, whose daemons are killed: that changes nothing."""
    out = tmp_path_factory.mktemp("alone")
    run_ranks(RANKS, SCRIPT, root, out, "kill")
    return results(out)


@pytest.fixture(scope="module")
def ranks(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return on_two_nodes(root, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("kind", KINDS)
def test_two_nodes_train_on_what_one_trains_on(
    kind: str, ranks: list[dict[str, Any]], alone: list[dict[str, Any]]
) -> None:
    assert [rank[kind] for rank in ranks] == [rank[kind] for rank in alone]
    # Losses counted: later epochs are no permutations.
    if kind in ("whole", "subset", "mixture", "buckets"):
        ids = [sample for rank in ranks for batch in rank[kind][2] for sample in batch]
        assert len(set(ids)) < len(ids)


def test_daemons_that_die_change_nothing(root: Path, alone: list[dict[str, Any]], tmp_path: Path) -> None:
    assert on_two_nodes(root, tmp_path, "kill") == alone


def test_a_state_goes_on_on_all_nodes(ranks: list[dict[str, Any]]) -> None:
    assert [rank["resume"]["resumed"][0] for rank in ranks] == [rank["resume"]["rest"] for rank in ranks]
    # As the last epoch begins each node compares the plan that it drew before with the others'.
    for epoch in (1, 2):
        given = [sample for rank in ranks for batch in rank["resume"]["resumed"][epoch] for sample in batch]
        planned = [sample for rank in ranks for batch in rank["whole"][epoch] for sample in batch]
        assert len(given) == len(planned)


def test_nodes_that_load_different_states_are_refused(ranks: list[dict[str, Any]]) -> None:
    for told in (rank["resume"]["told"] for rank in ranks):
        assert "the nodes have loaded different states" in told[0]
        assert "the nodes have gone apart: rank" in told[1], "one of them has loaded none"


def test_an_epoch_that_waits_for_another_node_says_so(ranks: list[dict[str, Any]]) -> None:
    first, second = ({rank["waits"] for rank in node} for node in (ranks[:2], ranks[2:]))
    assert second == {"none"}
    assert all("those of ranks [2, 3] have not come" in text for text in first), first
