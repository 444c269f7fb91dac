"""`python -m benches.jobs.sweep_training TASK RATE SEED`: one training of a sweep, as a user has it: it
knows nothing of the others.

It trains the demo's network, from a DataLoader or a Loader, and writes its figures."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from shade_load import Daemon, Loader, Plan
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, PILToTensor

from demo.augmentation import for_training, for_validation
from studies.accuracy.recipes import RECIPES

# Network, optimizer and schedule are those of the demo.
RECIPE = RECIPES["cifar10/small-cnn"]
SIDE = 32
BATCH = 64
# Little beside the dataset, as where the data is larger than memory.
RING_BATCHES = 8


@dataclass(frozen=True)
class Task:
    """What is equal in all trainings of a sweep."""

    # The training data as the store shows it: an ImageFolder for the DataLoader, else packed.
    train: str
    # The packed validation data, beside the store.
    val: str
    # None: a DataLoader.
    cache: str | None
    # A folder for sockets, if each training has a daemon of its own.
    sockets: str | None
    group: str | None
    workers: int
    # One training for each.
    rates: list[float]
    epochs: int
    # A folder for the trainings' figures.
    results: str

    def write(self, path: Path) -> None:
        """Writes it for `read`."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Task:
        """The task in the file."""
        return cls(**json.loads(path.read_text()))


def train(task: Task, rate: float, seed: int) -> dict[str, Any]:
    """Trains a network. The recipe's learning rate is multiplied by `rate`."""
    began = time.time()
    # The trainings share the cores with each other.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    loader = _data_loader(task, seed) if task.cache is None else _shade_loader(task, task.cache, seed)
    classes = (loader.dataset if isinstance(loader, DataLoader) else loader).classes
    network = RECIPE.network(len(classes)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 0.0, momentum=RECIPE.momentum, nesterov=True, weight_decay=RECIPE.weight_decay)
    stall, losses = 0.0, []
    for epoch in range(task.epochs):
        asked, loss, samples = time.perf_counter(), 0.0, 0
        for number, (images, labels) in enumerate(_stoppable(loader)):
            stall += time.perf_counter() - asked
            for group in optimizer.param_groups:
                group["lr"] = rate * RECIPE.rate((epoch + number / len(loader)) / task.epochs)
            found = nn.functional.cross_entropy(network(_normalised(images)), labels)
            optimizer.zero_grad(set_to_none=True)
            found.backward()
            optimizer.step()
            loss += float(found.detach()) * len(labels)
            samples += len(labels)
            asked = time.perf_counter()
        stall += time.perf_counter() - asked
        losses.append(round(loss / samples, 4))
    figures = {"rate": rate, "seed": seed, "began": began, "ended": time.time(), "stall_seconds": round(stall, 3)}
    return {**figures, "losses": losses, **_counts(loader), "accuracy": _accuracy(task, network)}


def _data_loader(task: Task, seed: int) -> DataLoader[Any]:
    transform = Compose([*for_training(SIDE, has_side=False), PILToTensor()])
    return DataLoader(
        ImageFolder(task.train, transform),
        BATCH,
        shuffle=True,
        num_workers=task.workers,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(seed),
    )


def _shade_loader(task: Task, cache: str, seed: int) -> Loader:
    return Loader(
        task.train,
        BATCH,
        decode=for_training(SIDE, has_side=False),
        channels_last=True,
        cache=cache,
        seed=seed,
        plan=Plan(group=task.group),
        daemon=Daemon(
            socket=None if task.sockets is None else Path(task.sockets, str(seed)),
            # Past the page cache, as it chooses itself on NFS.
            io="direct",
            ring=RING_BATCHES * BATCH * 3 * SIDE**2,
        ),
    )


def _stoppable(loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Images and labels of an epoch. No name here keeps a batch while the next one is asked for."""
    for batch in loader:
        yield tuple(batch)  # type: ignore[misc]
        del batch


def _counts(loader: Any) -> dict[str, Any]:
    """What was read, as shade counts it; then the loader is closed."""
    if isinstance(loader, DataLoader):
        return {"job": None, "daemon_pid": None, "records_read": None}
    total = loader.stats()["total"]
    figures = {"job": loader.job, "daemon_pid": loader.daemon_pid, "records_read": total["reads"] + total["coalesced"]}
    loader.close()
    return figures


@torch.inference_mode()
def _accuracy(task: Task, network: nn.Module) -> float:
    """Share of the validation images that the network classifies rightly."""
    network.eval()
    right = samples = 0
    daemon = Daemon(job=f"sweep-val-{os.getpid()}", linger=0.0)
    with Loader(task.val, 500, decode=for_validation(SIDE, has_side=False), train=False, daemon=daemon) as loader:
        for images, labels in loader:
            right += int((network(_normalised(images)).argmax(1) == labels).sum())
            samples += len(labels)
    return round(right / samples, 4)


def _normalised(images: Tensor) -> Tensor:
    """Floats about zero. They are a copy: the loader's memory is free again when the batch goes."""
    return images.to(torch.float32, memory_format=torch.channels_last).sub_(125.0).div_(64.0)


def main() -> int:
    """Returns the exit status."""
    # Workers that wait for a store need no cores.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    os.environ.setdefault("SHADE_LOG", "warn")
    task, rate, seed = Task.read(Path(sys.argv[1])), float(sys.argv[2]), int(sys.argv[3])
    result = train(task, rate, seed)
    Path(task.results, f"{seed}.json").write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
