"""One training run through the loader, measured epoch by epoch."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from shade_load import Daemon, Loader, Plan
from torch import nn

from demo import model as network


@dataclass(frozen=True)
class Setting:
    """What differs between the two runs: who draws the plan and who decides what stays cached."""

    name: str
    sampler: Literal["uniform", "pads"]
    policy: Literal["lru", "lookahead"]
    rep: float


@dataclass(frozen=True)
class Course:
    """What both runs share."""

    epochs: int
    batch_size: int
    image_size: int
    classes: int
    cache: str
    # None: the store is the disk as it is.
    store_delay: str | None
    # Reads in flight.
    depth: int
    seed: int
    learning_rate: float = 0.1


@dataclass(frozen=True)
class Epoch:
    """One epoch's figures. Ratios are shares of 1, times are seconds; the loss is the mean over what was drawn."""

    epoch: int
    train_loss: float
    val_accuracy: float
    accesses: int
    hits: int
    prefetched: int
    misses: int
    hit_ratio: float
    distinct: int
    distinct_share: float
    repeat_max: int
    skipped: int
    substituted: int
    bytes_read: int
    # Time that the training loop spent waiting for its next batch.
    stall_seconds: float
    epoch_seconds: float


@dataclass(frozen=True)
class Run:
    """A finished run: its epochs, and the loader's own account of the whole."""

    setting: Setting
    epochs: list[Epoch]
    loader: dict[str, Any]


def read_validation(dataset: Path, image_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole validation set in memory, read once and apart from the runs' cache and store."""
    images, labels = [], []
    plan, daemon = Plan(sampler="uniform"), Daemon(job=f"demo-{os.getpid()}-val")
    with Loader(dataset, 500, image_size=image_size, plan=plan, daemon=daemon) as loader:
        loader.set_epoch(0)
        for batch in loader:
            images.append(batch.images.clone())
            labels.append(batch.labels.clone())
    return torch.cat(images), torch.cat(labels)


def train(
    dataset: Path,
    validation: tuple[torch.Tensor, torch.Tensor],
    setting: Setting,
    course: Course,
    on_epoch: Callable[[Epoch], None],
) -> Run:
    """Trains one model from the course's seed; `on_epoch` hears of each epoch as it ends."""
    model = network.build(course.classes, course.seed)
    epochs: list[Epoch] = []
    with Loader(
        dataset,
        batch_size=course.batch_size,
        image_size=course.image_size,
        cache=course.cache,
        seed=course.seed,
        plan=Plan(sampler=setting.sampler, rep=setting.rep),
        daemon=Daemon(
            policy=setting.policy,
            store=course.store_delay and f"latency={course.store_delay}",
            depth=course.depth,
            # A daemon stays a moment after its run: the next run, with other settings, must not meet it.
            job=f"demo-{os.getpid()}-{setting.sampler}-{setting.policy}",
        ),
    ) as loader:
        optimizer = torch.optim.SGD(
            model.parameters(), lr=course.learning_rate, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=course.learning_rate, total_steps=course.epochs * len(loader)
        )
        for number in range(course.epochs):
            loader.set_epoch(number)
            started = time.perf_counter()
            loss, stall = _train_epoch(loader, model, optimizer, schedule)
            seconds = time.perf_counter() - started
            counts = loader.stats()["epoch"]
            epochs.append(
                Epoch(
                    epoch=number,
                    train_loss=loss,
                    val_accuracy=network.accuracy(model, *validation),
                    stall_seconds=stall,
                    epoch_seconds=seconds,
                    **{name: counts[name] for name in _COUNTED},
                )
            )
            on_epoch(epochs[-1])
        return Run(setting, epochs, loader.stats())


_COUNTED = (
    "accesses", "hits", "prefetched", "misses", "hit_ratio", "distinct", "distinct_share", "repeat_max", "skipped", "substituted",
    "bytes_read",
)  # fmt: skip


def _train_epoch(
    loader: Loader,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> tuple[float, float]:
    """Returns the mean loss of the samples delivered and the seconds spent waiting for batches."""
    criterion = nn.CrossEntropyLoss(reduction="none")
    loss_sum, samples, stall = 0.0, 0, 0.0
    batches = iter(loader)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        stall += time.perf_counter() - asked
        if batch is None:
            return loss_sum / max(samples, 1), stall
        losses = criterion(model(network.normalise(batch.images)), batch.labels)
        loader.report(batch, losses)
        optimizer.zero_grad(set_to_none=True)
        losses.mean().backward()
        optimizer.step()
        schedule.step()
        loss_sum += float(losses.detach().sum())
        samples += len(losses)
