"""`torchrun ... -m benches.seeds.training TASK [SERVERS]`: one rank of a training, as a user writes it.

It trains the demo's network with DDP, from a DataLoader or a Loader, and writes its figures."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import shade_load
import torch
from shade_load import Daemon, Loader, Plan
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, PILToTensor

from benches.seeds.task import BATCH, DATALOADER, IMPORTANCE, REDIS, Task
from demo.augmentation import for_training, for_validation
from studies.accuracy.recipes import RECIPES
from studies.slow_store import leave

# Network, optimizer and schedule are those of the demo.
RECIPE = RECIPES["cifar10/small-cnn"]
NORMALIZE = shade_load.Normalize(mean=(0.49, 0.49, 0.49), std=(0.25, 0.25, 0.25))
# Little beside the dataset, as where the data is larger than memory.
RING_BATCHES = 8
COUNTS = ("accesses", "hits", "tier_hits", "tier_misses", "tier_writes", "bytes_read", "reads")


class FromFiles:
    """Batches of a DataLoader."""

    def __init__(self, task: Task) -> None:
        files = ImageFolder(task.train, Compose([*for_training(task.side, task.has_side), PILToTensor()]))
        self.samples, self.classes = len(files), len(files.classes)
        self._sampler: DistributedSampler[Any] = DistributedSampler(files, seed=task.seed)
        self._loader = DataLoader(
            files, BATCH, sampler=self._sampler, num_workers=task.workers, persistent_workers=True
        )
        self._bytes = [os.path.getsize(path) for path, _ in files.samples]
        self._read = 0
        self.batches = len(self._loader)

    def epoch(self, number: int) -> Iterator[tuple[Any, list[int]]]:
        """Batches with their samples' ids."""
        self._sampler.set_epoch(number)
        ids = list(self._sampler)
        self._read += sum(self._bytes[sample] for sample in ids)
        for at, batch in enumerate(self._loader):
            yield batch, ids[at * BATCH : (at + 1) * BATCH]

    def report(self, batch: Any, losses: Tensor) -> None:
        """Nothing needs the losses."""

    def counts(self) -> dict[str, Any]:
        """Figures of this rank so far."""
        return {**dict.fromkeys(COUNTS, 0), "bytes_read": self._read}

    def close(self) -> None:
        """Ends the workers."""
        del self._loader


class FromShade:
    """Batches of a Loader. The node's daemon ends with the node's last one."""

    def __init__(self, task: Task, servers: str | None) -> None:
        by_importance = task.way in (REDIS, IMPORTANCE)
        self._loader = Loader(
            task.train,
            BATCH,
            decode=for_training(task.side, task.has_side),
            channels_last=True,
            cache=f"{100 * task.cache:g}%",
            seed=task.seed,
            plan=Plan(sampler="pads", rep=task.rep) if by_importance else Plan(),
            daemon=Daemon(
                tier=servers,
                tier_cache=task.tier_bytes if servers else None,
                # Past the page cache, as it chooses itself on NFS.
                io="direct",
                ring=task.ranks * RING_BATCHES * BATCH * 3 * task.side**2,
                linger=0.0,
            ),
        )
        self.samples, self.classes, self.batches = self._loader.samples, len(self._loader.classes), len(self._loader)
        # The daemon's figures are those of all ranks of the node.
        self._tells = os.environ["LOCAL_RANK"] == "0"

    def epoch(self, number: int) -> Iterator[tuple[Any, list[int]]]:
        """Batches with their samples' ids."""
        self._loader.set_epoch(number)
        for batch in self._loader:
            yield batch, batch.ids.tolist()
            # Its place in the ring is free again before the next one is asked for.
            del batch

    def report(self, batch: Any, losses: Tensor) -> None:
        """Passes the losses on, for the next epoch's draws."""
        self._loader.report(batch, losses)

    def counts(self) -> dict[str, Any]:
        """Figures of the node so far; nothing but on one of its ranks."""
        stats = self._loader.stats()
        total = stats["total"]
        return {**{name: total[name] if self._tells else 0 for name in COUNTS}, "tier": stats["tier"]}

    def close(self) -> None:
        """Leaves the daemon, which ends."""
        leave(self._loader)


class Training:
    """A network, trained with DDP."""

    def __init__(self, task: Task, source: FromFiles | FromShade) -> None:
        self.task, self.source = task, source
        torch.manual_seed(task.seed)
        network = RECIPE.network(source.classes).to(memory_format=torch.channels_last)
        self.network = DistributedDataParallel(network)
        self.optimizer = torch.optim.SGD(
            network.parameters(), 0.0, momentum=RECIPE.momentum, nesterov=True, weight_decay=RECIPE.weight_decay
        )
        # The draws so far of each sample, by this rank.
        self._drawn = torch.zeros(source.samples, dtype=torch.int32)

    def epoch(self, number: int) -> dict[str, Any]:
        """Trains one; all ranks end it together."""
        self._drawn.zero_()
        distributed.barrier()
        started, stall = time.perf_counter(), 0.0
        batches = self.source.epoch(number)
        for at in range(self.source.batches):
            asked = time.perf_counter()
            batch, ids = next(batches)
            stall += time.perf_counter() - asked
            self._rate((number + at / self.source.batches) / self.task.epochs)
            self._drawn[ids] = 1
            self._step(batch)
            del batch
        with suppress(StopIteration):
            next(batches)
        distributed.barrier()
        seconds = time.perf_counter() - started
        distributed.all_reduce(self._drawn, distributed.ReduceOp.MAX)
        distinct = int(self._drawn.count_nonzero()) / self.source.samples
        return {"seconds": seconds, "stall_seconds": stall, "distinct_share": distinct, "counts": self.source.counts()}

    def _step(self, batch: Any) -> None:
        images, labels = batch
        losses = nn.functional.cross_entropy(self.network(_normalised(images)), labels, reduction="none")
        self.source.report(batch, losses)
        self.optimizer.zero_grad(set_to_none=True)
        losses.mean().backward()
        self.optimizer.step()

    def _rate(self, done: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = RECIPE.rate(done)

    @torch.inference_mode()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Share of the validation images that the network classifies rightly: each rank sees a part."""
        for buffer in self.network.buffers():
            distributed.broadcast(buffer, 0)
        self.network.eval()
        found = torch.cat([self.network.module(_normalised(part)).argmax(1) for part in images.split(500)])
        self.network.train()
        counts = torch.tensor([int((found == labels).sum()), len(labels)])
        distributed.all_reduce(counts)
        return float(counts[0] / counts[1])


def _normalised(images: Tensor) -> Tensor:
    """Floats about zero. They are a copy: the loader's memory is free again when the batch goes."""
    return NORMALIZE(images).to(memory_format=torch.channels_last)


def _validation(task: Task) -> tuple[Tensor, Tensor]:
    """This rank's part of the validation images, in memory."""
    transform = Compose([*for_validation(task.side, task.has_side), PILToTensor()])
    files = shade_load.ImageFolder(task.val, transform=transform)
    mine = [files[number] for number in range(distributed.get_rank(), len(files), distributed.get_world_size())]
    images, labels = zip(*mine, strict=True)
    return torch.stack(images), torch.tensor(labels)


def train(task: Task, servers: str | None) -> list[dict[str, Any]]:
    """All epochs; the figures of each."""
    validation = _validation(task)
    source = FromFiles(task) if task.way == DATALOADER else FromShade(task, servers)
    training = Training(task, source)
    epochs = []
    for number in range(task.epochs):
        epochs.append(training.epoch(number))
        epochs[-1]["accuracy"] = training.accuracy(*validation)
    # No rank leaves before all have read their figures.
    distributed.barrier()
    source.close()
    return epochs


def main() -> None:
    """Trains, and writes the figures."""
    # Workers that wait for a store need no cores.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    os.environ.setdefault("SHADE_LOG", "warn")
    task, servers = Task.read(sys.argv[1]), (sys.argv[2:] or [None])[0]
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    epochs = train(task, servers)
    Path(task.results, f"{distributed.get_rank()}.json").write_text(json.dumps(epochs))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
