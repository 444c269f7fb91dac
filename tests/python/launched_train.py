"""One rank of a training on two nodes under one of several launchers: what it is given, as JSON."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from shade_load import Daemon, Loader, Plan

EPOCHS = 2
BATCH = 4
SIDE = 16
PLAN = Plan(sampler="pads")


def tiny() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """One linear layer and what trains it, the same on all ranks."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 3))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def loss_of(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch.images.float() / 255), batch.labels)


def report(loader: Loader, batch: Any) -> None:
    """Reports losses that do not depend on the order in which gradients are added."""
    loader.report(batch, (batch.ids * 37 % 61).float())


def make_loader(path: str, **more: Any) -> Loader:
    """The arguments are those of one node."""
    return Loader(path, BATCH, image_size=SIDE, cache="50%", plan=PLAN, **more)


def all_epochs(loader: Loader, train_on: Callable[[Any], None]) -> list[list[tuple[int, int]]]:
    """Trains. Returns each epoch's samples with their labels."""
    epochs: list[list[tuple[int, int]]] = []
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        epochs.append([])
        for batch in loader:
            train_on(batch)
            report(loader, batch)
            epochs[-1] += zip(batch.ids.tolist(), batch.labels.tolist(), strict=True)
    return epochs


def save(out: str, loader: Loader, epochs: list[list[tuple[int, int]]], model: torch.nn.Module) -> None:
    """Writes what the test compares."""
    result = {
        "epochs": epochs,
        "host": os.uname().nodename,
        "daemon": loader.daemon_pid,
        "job": loader.job,
        "placement": [loader._job["ranks_here"], loader._job["plan"]["strata"]],
        "model": [value.tolist() for value in model.state_dict().values()],
    }
    (Path(out) / f"rank-{loader.rank}.json").write_text(json.dumps(result))


def accelerate(path: str, out: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    with make_loader(path) as ours:
        model, optimizer, loader = accelerator.prepare(*tiny(), ours)

        def train_on(batch: Any) -> None:
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, batch))
            optimizer.step()

        epochs = all_epochs(loader, train_on)
        save(out, ours, epochs, accelerator.unwrap_model(model))
        accelerator.wait_for_everyone()
    accelerator.end_training()


def lightning(path: str, out: str) -> None:
    from lightning import LightningModule, Trainer

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers, _ = tiny()
            self.epochs: list[list[tuple[int, int]]] = [[] for _ in range(EPOCHS)]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def train_dataloader(self) -> Loader:
            # Here the process group is there.
            self.loader = make_loader(path)
            return self.loader

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            report(self.loader, batch)
            self.epochs[batch.epoch] += zip(batch.ids.tolist(), batch.labels.tolist(), strict=True)
            return loss_of(self.layers, batch)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp", max_epochs=EPOCHS, **quiet)
    model = Model()
    trainer.fit(model)
    # Not earlier: Lightning asks for its length when the last epoch has ended.
    with model.loader as loader:
        save(out, loader, model.epochs, model.layers)
        torch.distributed.barrier()


def fabric(path: str, out: str) -> None:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp")
    fabric.launch()
    model, optimizer = fabric.setup(*tiny())

    def train_on(batch: Any) -> None:
        optimizer.zero_grad()
        fabric.backward(loss_of(model, batch))
        optimizer.step()

    with make_loader(path) as loader:
        epochs = all_epochs(loader, train_on)
        save(out, loader, epochs, model.module)
        fabric.barrier()


def ray(path: str, out: str) -> None:
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer, prepare_model

    def worker() -> None:
        in_group(path, out, prepare_model(tiny()[0]))

    ray.init(address="auto", log_to_driver=True)
    scaling = ScalingConfig(num_workers=4, resources_per_worker={"CPU": 1}, placement_strategy="PACK")
    TorchTrainer(worker, scaling_config=scaling, run_config=RunConfig(storage_path=f"{out}/ray")).fit()


def in_group(path: str, out: str, model: torch.nn.parallel.DistributedDataParallel) -> None:
    """Trains in a process group that is there."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train_on(batch: Any) -> None:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()

    with make_loader(path) as loader:
        epochs = all_epochs(loader, train_on)
        save(out, loader, epochs, model.module)
        torch.distributed.barrier()


def slurm(path: str, out: str) -> None:
    """A task of srun, or a process of torchrun, which has variables of its own."""
    where: dict[str, Any] = {}
    if "RANK" not in os.environ:
        where["init_method"] = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        where["rank"], where["world_size"] = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    torch.distributed.init_process_group("gloo", **where)
    in_group(path, out, torch.nn.parallel.DistributedDataParallel(tiny()[0]))
    torch.distributed.destroy_process_group()


def mpirun(path: str, out: str) -> None:
    from mpi4py.MPI import COMM_WORLD

    model, optimizer = tiny()

    def train_on(batch: Any) -> None:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        for value in model.parameters():
            value.grad = torch.stack(COMM_WORLD.allgather(value.grad)).mean(0)
        optimizer.step()

    ranks = {"rank": COMM_WORLD.rank, "world_size": COMM_WORLD.size}
    with make_loader(path, **ranks, daemon=Daemon(exchange=COMM_WORLD.allgather)) as loader:
        epochs = all_epochs(loader, train_on)
        save(out, loader, epochs, model)
        COMM_WORLD.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    launchers = (accelerate, lightning, fabric, ray, slurm, mpirun)
    {launcher.__name__: launcher for launcher in launchers}[sys.argv[1]](*sys.argv[2:])
