"""One run: trains a recipe's network with one cell and seed, and returns its record."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from shade_load import Batch, Daemon, Loader, Plan
from shade_load.transforms import CenterCrop, RandomCrop, RandomErasing, RandomHorizontalFlip, RandomResizedCrop, Resize
from torch import Tensor, nn

from studies.accuracy import data, recording
from studies.accuracy.cells import Cell
from studies.accuracy.recipes import Recipe
from studies.accuracy.results import TEST
from studies.accuracy.settings import CACHE, RECORDED_SEED

# InfoBatch and SeTa leave nothing out in the last eighth of the epochs, here at least the last one
# (Qin et al., 2024; Zhou et al., 2025).
PRUNED_SHARE = 7 / 8
TEST_BATCH = 1000
# About the mean grey level of the images.
MEAN_LEVEL = 125
# Photographs: the smallest part of an image that a random crop has, and what tests resize them to,
# over their side.
SCALE_MIN, RESIZED = 0.35, 8 / 7
Crop = RandomCrop | RandomResizedCrop | RandomHorizontalFlip | RandomErasing


def run(
    recipe: Recipe, cell: Cell, seed: int, folder: Path, split: str = TEST, kept: Path | None = None
) -> dict[str, Any]:
    """Trains, and returns the run's record: see README.md. A recording is kept in the file `kept`."""
    train_set, val_set = data.prepared(recipe.dataset, cell.variant, folder, split)
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    test = _in_memory(val_set, recipe)
    epochs = epochs_of(recipe, cell)
    started, cpu_started = time.perf_counter(), time.process_time()
    with (
        tempfile.TemporaryDirectory() as scratch,
        loader_of(recipe, cell, seed, epochs, train_set, Path(scratch) / "socket") as loader,
    ):
        trace = Path(scratch) / "trace"
        is_recorded = seed == RECORDED_SEED
        with recording.recorded(train_set, Path(scratch) / "socket", trace) if is_recorded else nullcontext():
            training = Training(recipe, cell, loader, seed, epochs)
            curve = [{"epoch": epoch, **training.epoch(), "test_accuracy": training.accuracy(*test)} for epoch in range(epochs)]
            seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
            total, samples, options = loader.stats()["total"], loader.samples, options_of(recipe, cell, loader)
            daemon = recording.daemon_of(Path(scratch) / "socket")
        record_bytes = recording.record_bytes(train_set)
        simulated = None
        if is_recorded:
            kept = kept or Path(scratch) / "kept"
            recording.keep(trace, kept)
            simulated = recording.played_again(kept, record_bytes)
    return {
        "dataset": recipe.dataset,
        "network": recipe.network_name,
        "cell": cell.name,
        "sampler": cell.plan["sampler"],
        "seed": seed,
        "split": split,
        # Share of the images that the split tests with.
        "test_accuracy": curve[-1]["test_accuracy"],
        "epochs": epochs,
        "dataset_samples": samples,
        "dataset_bytes": round(samples * record_bytes),
        "samples_trained": sum(row["samples_trained"] for row in curve),
        "bytes_read": total["bytes_read"],
        "hit_ratio": total["hit_ratio"],
        "ever_seen_share": total["ever_seen_share"],
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "stall_seconds": round(sum(row["stall_seconds"] for row in curve), 3),
        **here(recipe),
        "date": date,
        "options": options,
        "daemon": daemon,
        # Equal in two runs that were delivered the same samples in the same order.
        "ids_sha256": training.ids.hexdigest(),
        "curve": curve,
        "simulated": simulated,
    }


def epochs_of(recipe: Recipe, cell: Cell) -> int:
    """Epochs of the cell's whole schedule."""
    return max(1, round(recipe.epochs * cell.epochs))


def loader_of(
    recipe: Recipe, cell: Cell, seed: int, epochs: int, train_set: Path, socket: Path, **daemon: Any
) -> Loader:
    """The Loader of a run, with a daemon of its own at `socket`, which `daemon` has more options for. Other runs on
    the dataset have caches of their own."""
    return Loader(
        train_set,
        recipe.batch_size,
        decode=_augmentation(recipe),
        channels_last=True,
        device=None if recipe.device == "cpu" else recipe.device,
        cache=CACHE,
        seed=seed,
        plan=_plan_of(cell, epochs),
        daemon=Daemon(socket=socket, linger=0.0, **cell.daemon, **daemon),
    )


def _augmentation(recipe: Recipe) -> list[Crop]:
    if recipe.photographs:
        return [RandomResizedCrop(recipe.side, scale=(SCALE_MIN, 1.0)), RandomHorizontalFlip()]
    crop_and_flip: list[Crop] = [RandomCrop(recipe.side, padding=recipe.padding), RandomHorizontalFlip()]
    if not recipe.cutout:
        return crop_and_flip
    share = (recipe.cutout / recipe.side) ** 2
    return [*crop_and_flip, RandomErasing(p=1.0, scale=(share, share), ratio=(1.0, 1.0), value=MEAN_LEVEL)]


def _plan_of(cell: Cell, epochs: int) -> Plan:
    plan = dict(cell.plan)
    if plan["sampler"] in ("infobatch", "seta"):
        plan["whole_from"] = min(round(PRUNED_SHARE * epochs), epochs - 1)
    return Plan(**plan)


def options_of(recipe: Recipe, cell: Cell, loader: Loader) -> dict[str, Any]:
    """All options of a run, for its record."""
    job = loader.state_dict()["job"]
    return {
        # All parameters, as their defaults may change.
        "plan": {
            **{name: value for name, value in job["plan"].items() if name != "seed"},
            **{name: job[name] for name in ("tail", "on_error", "bad_max")},
        },
        "cache": CACHE,
        **cell.options(),
        **recipe.schedule(),
    }


def here(recipe: Recipe) -> dict[str, Any]:
    """Where a run is, for its record."""
    return {
        "device": "cpu" if recipe.device == "cpu" else torch.cuda.get_device_name(),
        "machine": f"{len(os.sched_getaffinity(0))} cores, {platform.platform()}",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "shade": commit()},
    }


class Training:
    """A network and how far its schedule is."""

    def __init__(self, recipe: Recipe, cell: Cell, loader: Loader, seed: int, epochs: int) -> None:
        self.recipe, self.cell, self.loader, self.epochs = recipe, cell, loader, epochs
        if recipe.device == "cpu":
            # Exactly repeatable, and two runs at a time use two cores.
            torch.set_num_threads(1)
        else:
            # Nearly all batches have one shape: the fastest convolutions for it are searched once.
            torch.backends.cudnn.benchmark = True
        torch.manual_seed(seed)
        network = recipe.network(len(loader.classes))
        self.network = network.to(recipe.device, memory_format=torch.channels_last)
        self.norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), 0.0, momentum=recipe.momentum, nesterov=True, weight_decay=recipe.weight_decay
        )
        self.epoch_number = 0
        self.ids = hashlib.sha256()

    def epoch(self) -> dict[str, Any]:
        """Trains one epoch; returns its figures."""
        self.network.train()
        started, stalled = time.perf_counter(), self.loader.stats()["stall_seconds"]
        samples, seen = 0, []
        for batch, length in self._batches():
            self.ids.update(batch.ids.numpy().tobytes())
            self._set_rate((self.epoch_number + samples / length) / self.epochs)
            losses = self._losses(batch)
            self.loader.report(batch, losses)
            self.optimizer.zero_grad(set_to_none=True)
            self._mean(losses, batch.weights).backward()
            self.optimizer.step()
            seen.append(losses.detach())
            samples += len(losses)
        self.epoch_number += 1
        stats = self.loader.stats()
        return {
            "samples_trained": samples,
            "loss": round(float(torch.cat(seen).mean()), 5),
            "rank_correlation": _rank_correlation(seen),
            "bytes_read": stats["epoch"]["bytes_read"],
            "hit_ratio": stats["epoch"]["hit_ratio"],
            "distinct_share": stats["epoch"]["distinct_share"],
            "stall_seconds": round(stats["stall_seconds"] - stalled, 3),
            "seconds": round(time.perf_counter() - started, 3),
        }

    def _batches(self) -> Iterator[tuple[Batch, int]]:
        """The epoch's batches, each with the epoch's length in samples."""
        length = 0
        for batch in self.loader:
            length = length or self.loader.stats()["epoch"]["planned"]
            yield batch, length

    def _set_rate(self, done: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(done, cosine=self.cell.cosine)

    def _mean(self, losses: Tensor, weights: Tensor) -> Tensor:
        """What is made smaller."""
        if self.cell.drops:
            return losses[weights > 0].mean()
        return (losses * weights if self.cell.weighted_loss else losses).mean()

    def _losses(self, batch: Batch) -> Tensor:
        """Losses by row. Each part of the batch has batch norm of its own rows, and the first part's is what tests use."""
        losses = torch.empty(len(batch.labels), device=self.recipe.device)
        momenta = [norm.momentum for norm in self.norms]
        for nth, (rows, is_learned) in enumerate(self._parts(batch)):
            for norm, momentum in zip(self.norms, momenta, strict=True):
                norm.momentum = momentum if nth == 0 else 0.0
            with torch.set_grad_enabled(is_learned):
                logits = self._logits(batch.images[rows])
                part = nn.functional.cross_entropy(logits, batch.labels[rows], reduction="none")
            losses[rows] = part
        for norm, momentum in zip(self.norms, momenta, strict=True):
            norm.momentum = momentum
        return losses

    def _parts(self, batch: Batch) -> list[tuple[slice | Tensor, bool]]:
        """The rows of each part, and whether the network learns from them. Row i is of rank i mod W, as in a training with
        that many ranks, under DDP. Rows that are dropped are computed for their losses alone."""
        if self.cell.drops and not bool((batch.weights > 0).all()):
            return [(batch.weights > 0, True), (batch.weights == 0, False)]
        return [(slice(rank, None, self.cell.ranks), True) for rank in range(self.cell.ranks)]

    def _logits(self, images: Tensor) -> Tensor:
        # Floats about zero, of about unit size.
        images = images.float().sub_(MEAN_LEVEL).div_(64.0)
        with torch.autocast(self.recipe.device, torch.bfloat16):
            return self.network(images).float()

    @torch.inference_mode()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Share of the test images that the network classifies rightly."""
        self.network.eval()
        found = torch.cat([self._logits(part).argmax(1) for part in images.split(TEST_BATCH)])
        return round(float((found == labels).float().mean()), 6)


def _rank_correlation(batches: list[Tensor]) -> float:
    """How well a loss's rank in its batch tells its rank in the epoch: the correlation of the two."""
    in_batch = torch.cat([losses.argsort().argsort() / len(losses) for losses in batches])
    in_epoch = torch.cat(batches).argsort().argsort()
    return round(float(torch.corrcoef(torch.stack([in_batch.double(), in_epoch.double()]))[0, 1]), 4)


def commit() -> str:
    """What the working tree is of; `-dirty` if it has changes."""
    command = ["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _in_memory(val_set: Path, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """All test images and labels, apart from the run's cache and bytes."""
    job = Daemon(job=f"accuracy-test-{os.getpid()}", linger=0.0)
    resize = [Resize(round(RESIZED * recipe.side))] if recipe.photographs else []
    decode = [*resize, CenterCrop(recipe.side)]
    with Loader(val_set, TEST_BATCH, decode=decode, channels_last=True, train=False, daemon=job) as loader:
        batches = [(batch.images.clone(), batch.labels.clone()) for batch in loader]
    images, labels = (torch.cat(part).to(recipe.device) for part in zip(*batches, strict=True))
    return images, labels
