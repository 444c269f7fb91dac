"""The training: network, schedule, one epoch, accuracy. Equal in all runs."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from shade_load import Daemon, Loader
from torch import Tensor, nn

from demo.augmentation import for_validation
from demo.baseline import Baseline
from demo.task import DATALOADER, Task
from demo.with_shade import Shade
from studies.accuracy.recipes import RECIPES

CORES = len(os.sched_getaffinity(0))
# Network, optimizer and schedule are those of the accuracy study.
RECIPE = RECIPES["cifar10/small-cnn"]
PROGRESS_SECONDS = 0.5

# The figures of one epoch.
Epoch = dict[str, Any]


def train(task: Task, show: Callable[[Epoch], None]) -> dict[str, Any]:
    """Trains a network from the seed. Calls `show` with each epoch's figures, and returns them all."""
    # One core is left for the workers or the daemon, and for the store.
    torch.set_num_threads(max(1, min(4, CORES - 1)))
    validation = _in_memory(task)
    source = Baseline(task, RECIPE.batch_size) if task.run == DATALOADER else Shade(task, RECIPE.batch_size)
    epochs: list[Epoch] = []
    try:
        training = _Training(task, source)
        for number in range(task.epochs):
            epochs.append({"epoch": number, **training.epoch(number), **source.counts()})
            epochs[-1]["accuracy"] = training.accuracy(*validation)
            show(epochs[-1])
        return {"sampler": source.sampler, "epochs": epochs}
    finally:
        source.close()


def _in_memory(task: Task) -> tuple[Tensor, Tensor]:
    """All validation images and labels, apart from the run's cache and store."""
    daemon = Daemon(job=f"demo-val-{os.getpid()}", linger=0.0)
    decode = for_validation(task.side, task.has_side)
    with Loader(task.val, 500, decode=decode, channels_last=True, train=False, daemon=daemon) as loader:
        batches = [(batch.images.clone(), batch.labels.clone()) for batch in loader]
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


class _Training:
    """A network and its optimizer."""

    def __init__(self, task: Task, source: Baseline | Shade) -> None:
        self.source, self.epochs = source, task.epochs
        torch.manual_seed(task.seed)
        self.network = RECIPE.network(source.classes).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), 0.0, momentum=RECIPE.momentum, nesterov=True, weight_decay=RECIPE.weight_decay
        )

    def epoch(self, number: int) -> Epoch:
        """Returns the mean loss, the time, and how much of it the loop waited for batches."""
        loss, samples, planned, stall, started = 0.0, 0, 0, 0.0, time.perf_counter()
        progress = _Progress(number)
        batches = self.source.epoch()
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            stall += time.perf_counter() - asked
            if batch is None:
                break
            planned = planned or self.source.planned()
            self._set_rate((number + samples / planned) / self.epochs)
            losses = self._step(batch)
            loss += float(losses.sum())
            samples += len(losses)
            progress.show(samples, planned)
        progress.clear()
        seconds = time.perf_counter() - started
        return {"loss": loss / samples, "samples": samples, "stall s": stall, "time s": seconds}

    def _step(self, batch: Any) -> Tensor:
        """One step of the optimizer; returns the samples' losses."""
        images, labels = batch
        losses = nn.functional.cross_entropy(self.network(_normalised(images)), labels, reduction="none")
        self.source.report(batch, losses)
        self.optimizer.zero_grad(set_to_none=True)
        losses.mean().backward()
        self.optimizer.step()
        return losses.detach()

    def _set_rate(self, done: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = RECIPE.rate(done)

    @torch.inference_mode()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Share of the images that the network classifies rightly."""
        self.network.eval()
        found = torch.cat([self.network(_normalised(part)).argmax(1) for part in images.split(1000)])
        self.network.train()
        return float((found == labels).float().mean())


def _normalised(images: Tensor) -> Tensor:
    """Floats about zero. They are a copy: the loader's memory is free again when the batch goes."""
    return images.to(torch.float32, memory_format=torch.channels_last).sub_(125.0).div_(64.0)


class _Progress:
    """A line on a terminal that says how far an epoch is."""

    def __init__(self, epoch: int) -> None:
        self.epoch, self.shown, self.on = epoch, 0.0, sys.stderr.isatty()

    def show(self, samples: int, planned: int) -> None:
        """Overwrites the line, not too often."""
        now = time.monotonic()
        if self.on and now - self.shown > PROGRESS_SECONDS:
            self.shown = now
            print(f"\r{self.epoch:>9}  {samples:,} of {planned:,} images", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Makes room for the epoch's figures."""
        if self.on:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
