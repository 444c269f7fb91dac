"""Rank, world size, the ranks on this node, and job name: as given, or from the launcher."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from collections.abc import Mapping

from .options import RANKS_MAX, integer

# World size and rank of launchers that do not set RANK and WORLD_SIZE.
_MPI = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("HOROVOD_SIZE", "HOROVOD_RANK"),
)
# Larger step numbers of Slurm are not srun's: the batch script, a prolog, the shell of `salloc`.
_SLURM_STEP_MAX = 0xFFFF_FFF0
# Slurm's number of nodes, of tasks, and of tasks by node: of a step, of a step before Slurm 20.11
# or an allocation.
_SLURM = (
    ("SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
    ("SLURM_NNODES", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"),
)
_SLURM_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")
# torchrun's run id if none is given: the same for every training.
_NO_RUN_ID = ("", "none")
_RUN_ID_CHARACTERS_MAX = 40
DEFAULT_JOB = "default"


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """(rank, world size): given, or of torch.distributed, the environment or srun, else (0, 1)."""
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size: give both or neither")
    if rank is None or world_size is None:
        rank, world_size = _surrounding_ranks(os.environ)
    world_size = integer("world_size", world_size, 1, RANKS_MAX)
    return integer("rank", rank, 0, world_size - 1), world_size


def default_job(world_size: int) -> str:
    """The default job name: equal in all ranks of a training. That of one rank need not be unique."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if run not in _NO_RUN_ID:
        return "run-" + re.sub(r"[^A-Za-z0-9._-]", "-", run)[:_RUN_ID_CHARACTERS_MAX]
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        # torchrun without a run id: two trainings at once differ in their port.
        port = os.environ.get("MASTER_PORT", "")
        return f"{DEFAULT_JOB}.{port}" if world_size > 1 and port.isdecimal() else DEFAULT_JOB
    # Two trainings may run in one allocation, each in a step of its own.
    return f"slurm-{job}.{os.environ['SLURM_STEP_ID']}" if _is_srun_task(os.environ) else f"slurm-{job}"


def may_be_one_of_several() -> bool:
    """Whether this may be a rank of an unknown launcher: a worker process of another process."""
    has_no_size = "LOCAL_RANK" in os.environ and "WORLD_SIZE" not in os.environ
    return multiprocessing.parent_process() is not None or has_no_size


def _surrounding_ranks(environment: Mapping[str, str]) -> tuple[int, int]:
    # Not imported here: if a process group is initialised, the module is imported.
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return _numbers(environment, "RANK", "WORLD_SIZE")
    if _is_srun_task(environment):
        return _numbers(environment, "SLURM_PROCID", _slurm_tasks(environment))
    for size, rank in _MPI:
        if environment.get(size, "1") != "1":
            raise ValueError(
                f"rank: {size}={environment[size]} means that this is one of several processes, but neither torch.distributed "
                f'nor RANK and WORLD_SIZE give its rank: pass rank=int(os.environ["{rank}"]) and '
                f'world_size=int(os.environ["{size}"]), or rank=0, world_size=1 for independent trainings'
            )
    return 0, 1


def _is_srun_task(environment: Mapping[str, str]) -> bool:
    """Whether srun started this. Slurm's batch script and salloc's shell have task numbers, too."""
    step = environment.get("SLURM_STEP_ID", "")
    return step.isdecimal() and int(step) < _SLURM_STEP_MAX and "SLURM_PROCID" in environment


def _slurm_tasks(environment: Mapping[str, str]) -> str:
    """The variable with the number of tasks: of the step, if Slurm sets it."""
    return "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"


def _numbers(environment: Mapping[str, str], rank: str, size: str) -> tuple[int, int]:
    named = (environment.get(rank), environment.get(size))
    try:
        first, second = (int(value) for value in named if value is not None)
    except ValueError:
        raise ValueError(
            f"rank: expected two numbers in the environment, got {rank}={named[0]} {size}={named[1]}"
        ) from None
    return first, second


def ranks_here(world_size: int, environment: Mapping[str, str] = os.environ) -> int | None:
    """This node's number of ranks, if a launcher that has started this many ranks tells it."""
    whole = str(world_size)
    for size, here in (("WORLD_SIZE", "LOCAL_WORLD_SIZE"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")):
        if environment.get(size) == whole and environment.get(here, "").isdecimal():
            return int(environment[here])
    for nodes, tasks, here in _SLURM:
        if tasks == "SLURM_NTASKS" or _is_srun_task(environment):
            if environment.get(tasks) == whole and environment.get(nodes, "").isdecimal():
                return _slurm_tasks_here(environment, int(environment[nodes]), here, world_size)
    return None


def _slurm_tasks_here(environment: Mapping[str, str], nodes: int, here: str, world_size: int) -> int | None:
    """This node's number of tasks, where `here` names the variable with those of all nodes."""
    if nodes == 1:
        return world_size
    try:
        counts = slurm_counts(environment[here])
        return counts[int(environment["SLURM_NODEID"])] if sum(counts) == world_size else None
    except (KeyError, ValueError, IndexError):
        return None


def slurm_counts(text: str) -> list[int]:
    """Slurm's short form of a number for each node: "8(x4),2" is four nodes of 8 and one of 2."""
    counts: list[int] = []
    for part in text.split(","):
        match = _SLURM_COUNT.fullmatch(part)
        if match is None:
            raise ValueError(f"expected numbers such as 8(x4),2, got {text!r}")
        counts += [int(match[1])] * min(int(match[2] or 1), RANKS_MAX)
    return counts
