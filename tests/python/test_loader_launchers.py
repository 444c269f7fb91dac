"""Rank, world size and job of a process, from the variables of its launcher."""

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Daemon, Loader, ShadeError
from shade_load.ranks import default_job, may_be_one_of_several, ranks, ranks_here, slurm_counts

BATCH = 8
# The tests must not see these variables of their own shell.
NAMES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE", "PMI_RANK", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NODEID",
)  # fmt: skip

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}
# `#SBATCH -n 4`, one node: the batch script's variables.
BATCH_SCRIPT = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "SLURM_NNODES": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
# `srun` in it: task 2.
STEP = {
    **BATCH_SCRIPT, "SLURM_STEP_ID": "1", "SLURM_PROCID": "2", "SLURM_LOCALID": "2", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "1",
}  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("variables", "expected", "job"),
    [
        ({}, (0, 1), "default"),
        (TORCHRUN, (3, 8), "default"),
        # Two trainings at once have two ports.
        ({**TORCHRUN, "MASTER_PORT": "29501"}, (3, 8), "default.29501"),
        ({"MASTER_PORT": "29501"}, (0, 1), "default"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, (3, 8), "default"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "a/b c"}, (3, 8), "run-a-b-c"),
        # Several trainings in one allocation, each by torchrun.
        ({**TORCHRUN, **BATCH_SCRIPT, "TORCHELASTIC_RUN_ID": "none"}, (3, 8), "slurm-77"),
        # The batch script itself is one process, whatever the tasks of its steps.
        (BATCH_SCRIPT, (0, 1), "slurm-77"),
        ({**BATCH_SCRIPT, "SLURM_STEP_ID": "4294967291"}, (0, 1), "slurm-77"),
        (STEP, (2, 4), "slurm-77.1"),
        # The form of Slurm before 20.11.
        ({k: v for k, v in STEP.items() if not k.startswith("SLURM_STEP_NUM")}, (2, 4), "slurm-77.1"),
        # A step of one task in an allocation of four.
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, (0, 1), "slurm-77.1"),
        # torchrun started by srun, one task a node, here one node.
        ({**STEP, **TORCHRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}, (3, 8), "slurm-77.1"),
        ({"OMPI_COMM_WORLD_SIZE": "1", "PMI_SIZE": "1"}, (0, 1), "default"),
        ({"OMPI_COMM_WORLD_SIZE": "4", **TORCHRUN}, (3, 8), "default"),
    ],
)
def test_what_launchers_say(
    environment: pytest.MonkeyPatch, variables: dict[str, str], expected: tuple[int, int], job: str
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert ranks(None, None) == expected
    assert default_job(expected[1]) == job


@pytest.mark.parametrize(
    ("variables", "given", "message"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "4"}, (None, None), r"OMPI_COMM_WORLD_SIZE=4 .*rank=int\(os.environ"),
        ({"PMI_SIZE": "2"}, (None, None), r"PMI_SIZE=2 .*PMI_RANK"),
        ({**STEP, "SLURM_PROCID": "x"}, (None, None), "expected two numbers.*SLURM_PROCID=x SLURM_STEP_NUM_TASKS=4"),
        ({"WORLD_SIZE": "2"}, (None, None), "expected two numbers.*RANK=None WORLD_SIZE=2"),
    ],
)
def test_ranks_that_cannot_be_told_apart(
    environment: pytest.MonkeyPatch,
    variables: dict[str, str],
    given: tuple[int | None, int | None],
    message: str,
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        ranks(*given)


# Task 2 of a step of 5 on three nodes: `srun -N 3 -n 5`.
NODES = {
    **STEP, "SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_NODEID": "1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "world_size", "here"),
    [
        ({}, 1, None),
        ({}, 4, None),
        (TORCHRUN, 8, 8),
        ({**TORCHRUN, "WORLD_SIZE": "16"}, 16, 8),
        # One training for each node, over that node's ranks: the launcher has another number.
        ({**TORCHRUN, "WORLD_SIZE": "16"}, 8, None),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 4, 2),
        # torchrun started by mpirun.
        ({**TORCHRUN, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, 8, 8),
        (STEP, 4, 4),
        (NODES, 5, 2),
        ({**NODES, "SLURM_NODEID": "2"}, 5, 1),
        ({**NODES, "SLURM_NODEID": "3"}, 5, None),
        ({**NODES, "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, 5, None),
        ({**NODES, "SLURM_STEP_TASKS_PER_NODE": "2 x 2"}, 5, None),
        ({**NODES, **TORCHRUN, "WORLD_SIZE": "24"}, 24, 8),
        # The script makes RANK and WORLD_SIZE of Slurm's, or Slurm is older than 20.11.
        (
            {**BATCH_SCRIPT, "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "1"},
            4,
            2,
        ),
        (BATCH_SCRIPT, 4, 4),
    ],
)
def test_the_ranks_of_this_node(
    environment: pytest.MonkeyPatch, variables: dict[str, str], world_size: int, here: int | None
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert ranks_here(world_size) == here


@pytest.mark.parametrize(
    ("text", "counts"),
    [("8", [8]), ("8(x4)", [8, 8, 8, 8]), ("2,3(x2),1", [2, 3, 3, 1]), ("1(x100000)", [1] * 65536)],
)
def test_slurms_numbers_for_each_node(text: str, counts: list[int]) -> None:
    assert slurm_counts(text) == counts


@pytest.mark.parametrize("text", ["", "8(x)", "8(4)", "8(x4", ",", "-1", "8 (x4)"])
def test_what_slurm_does_not_write(text: str) -> None:
    with pytest.raises(ValueError, match="expected numbers such as"):
        slurm_counts(text)


@pytest.mark.parametrize(
    ("variables", "given"),
    [
        # One training per node, over that node's ranks.
        ({**TORCHRUN, "WORLD_SIZE": "16"}, (3, 8)),
        ({**TORCHRUN, "WORLD_SIZE": "16"}, (3, 16)),
        # A launcher of one process, which starts four by itself.
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}, (2, 4)),
        (NODES, (1, 2)),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, (0, 1)),
    ],
)
def test_what_is_given_is_taken(
    environment: pytest.MonkeyPatch, variables: dict[str, str], given: tuple[int, int]
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert ranks(*given) == given


def test_a_rank_whose_launcher_may_have_said_so(environment: pytest.MonkeyPatch) -> None:
    assert not may_be_one_of_several()
    environment.setenv("LOCAL_RANK", "0")
    assert may_be_one_of_several()
    # As torchrun, which gives the number of ranks, too.
    environment.setenv("WORLD_SIZE", "1")
    assert not may_be_one_of_several()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("launchers")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def test_a_name_that_was_given_or_that_ranks_share_is_not_changed(dataset: packed.Packed) -> None:
    script = (
        "import sys\nfrom shade_load import Loader\n"
        "with Loader(sys.argv[1], 8) as loader:\n    print(loader.job, flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, str(dataset.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "default\n"
        with pytest.raises(ShadeError, match="rank 0 is attached already"):
            Loader(dataset.path, BATCH, daemon=Daemon(job="default"))
        with pytest.MonkeyPatch.context() as patch, pytest.raises(ShadeError, match="rank 0 is attached already"):
            patch.setenv("LOCAL_RANK", "0")
            Loader(dataset.path, BATCH)
        other.communicate()


class TestSettings:
    """A Loader gets the daemon that it asks for, or is told what it has instead."""

    def test_a_lingering_daemon_makes_room_for_what_is_asked_for(self, dataset: packed.Packed) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Loader(dataset.path, BATCH, cache=0, daemon=Daemon(job="settings", linger=60)) as first:
                pid = first.daemon_pid
                assert first.stats()["cache_bytes"] == 0
            with Loader(dataset.path, BATCH, cache="100%", daemon=Daemon(job="settings", linger=60)) as second:
                assert second.daemon_pid != pid
                assert second.stats()["cache_bytes"] > 0
                pid = second.daemon_pid
            # The same settings find the daemon and its cache.
            with Loader(dataset.path, BATCH, cache="100%", daemon=Daemon(job="settings", linger=60)) as third:
                assert third.daemon_pid == pid
            with Loader(dataset.path, BATCH, cache="100%", daemon=Daemon(job="settings", linger=0)):
                pass

    def test_others_settings_are_told_once_with_both_values(self, dataset: packed.Packed) -> None:
        default = Daemon(job="settings-told", linger=0)
        first: dict[str, Any] = {"cache": "10%", "daemon": replace(default, policy="lru")}
        with Loader(dataset.path, BATCH, rank=0, world_size=2, **first):
            second = {"rank": 1, "world_size": 2, "daemon": default}
            with pytest.warns(RuntimeWarning) as told, Loader(dataset.path, BATCH, **second):
                pass
            (warning,) = told
            assert "cache 10% instead of auto; policy lru instead of lookahead." in str(warning.message)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                Loader(dataset.path, BATCH, rank=1, world_size=2, **first).close()

    def test_what_is_as_by_default_is_not_held_against_a_daemon_by_hand(self, dataset: packed.Packed, tmp_path: Path) -> None:
        # No private daemon lingers there.
        copy = dataset.copy_to(tmp_path / "data.shade")
        command = [packed.program("shade-load"), "serve", copy.path, "--cache", "50%"]
        with subprocess.Popen([*command, "--engine", "threads"], stderr=subprocess.PIPE, text=True) as daemon:
            assert daemon.stderr is not None
            assert any("serving" in line for line in daemon.stderr)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                Loader(copy.path, BATCH).close()
            with pytest.warns(RuntimeWarning, match="cache 50% instead of 30%; linger until stopped instead of 9.0"):
                Loader(copy.path, BATCH, cache="30%", daemon=Daemon(linger=9)).close()
            daemon.terminate()

    @pytest.mark.parametrize("linger", [-1, float("nan"), "3", 1e12])
    def test_a_linger_is_seconds(self, dataset: packed.Packed, linger: object) -> None:
        with pytest.raises((TypeError, ValueError), match="linger"):
            Loader(dataset.path, BATCH, daemon=Daemon(job="linger", linger=linger))  # type: ignore[arg-type]


def test_a_dataset_that_was_added_to_is_what_the_next_loader_has(dataset: packed.Packed, tmp_path: Path) -> None:
    copy = dataset.copy_to(tmp_path / "data.shade")
    with Loader(copy.path, BATCH, daemon=Daemon(job="grows", linger=60)) as loader:
        assert loader.samples == len(dataset)
    packed.image_folder(tmp_path / "more", "jpeg", {"bee": 5})
    packed.run_pack("append", tmp_path / "more", copy.path)
    with Loader(copy.path, BATCH, daemon=Daemon(job="grows", linger=0)) as loader:
        assert loader.samples == len(dataset) + 5
        assert sum(len(batch) for batch in loader) == len(dataset) + 5
        packed.image_folder(tmp_path / "still-more", "jpeg", {"cat": 5})
        packed.run_pack("append", tmp_path / "still-more", copy.path)
        # One that comes while it is served gets what is served.
        with pytest.warns(RuntimeWarning, match=f"gets the {len(dataset) + 5} samples"):
            late = Loader(copy.path, BATCH, daemon=Daemon(job="late", linger=0))
        with late:
            assert late.samples == len(dataset) + 5
