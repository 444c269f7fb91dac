"""Runs a script as `python SCRIPT` does, and writes down what its loaders deliver.

    python -m benches.public_scripts.observe ORDER.json SCRIPT [ARGUMENT ...]

The order says where to write, which stand-ins the script needs on a machine without a GPU and a
network, and after how many epochs to end a script that has no option for it.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from shade_load import Loader
from shade_load.batch import Batch
from torch.utils.data import BatchSampler, DataLoader

from . import stand_ins

# Images that are kept of each pass, for comparison.
KEPT = 24


@dataclass(eq=False)
class Pass:
    """One iteration over a loader."""

    kind: str
    # Batches and samples as the loader and its dataset tell.
    batches: int
    samples: int
    classes: list[str] | None
    ids: list[list[int]] = field(default_factory=list)
    labels: list[list[int]] = field(default_factory=list)
    # The epoch whose order a Loader gives.
    epoch: int | None = None
    is_whole: bool = False


class Observer:
    """What was delivered. `passes` are written at the end, the first images of each pass as tensors."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._out = Path(order["out"])
        self._train_samples: int = order["train_samples"]
        self._epochs: int | None = order["epochs"]
        self._passes: list[Pass] = []
        self._kept: list[dict[str, Any]] = []

    def begin(self, kind: str, loader: Any) -> Pass:
        """Notes an iteration that begins. It ends a script that has trained for long enough."""
        samples = len(loader.dataset)
        trained = sum(one.samples == self._train_samples and one.is_whole for one in self._passes)
        if self._epochs is not None and samples == self._train_samples and trained >= self._epochs:
            sys.exit(0)
        one = Pass(kind, len(loader), samples, _classes(loader.dataset))
        self._passes.append(one)
        self._kept.append({"ids": [], "images": [], "crops": [], "flipped": []})
        return one

    def deliver(self, one: Pass, ids: list[int], batch: Any) -> None:
        """Notes a batch."""
        images, labels = _images_and_labels(batch)
        one.ids.append(ids)
        # Mixed labels are rows of shares: the samples' own are not told.
        one.labels.append([] if torch.as_tensor(labels).dim() > 1 else [int(label) for label in labels])
        if isinstance(batch, Batch):
            one.epoch = batch.epoch
        kept = self._kept[self._passes.index(one)]
        if sum(map(len, kept["ids"])) >= KEPT:
            return
        kept["ids"].append(ids)
        kept["images"].append([view.clone() for view in images])
        if isinstance(batch, Batch):
            for name in ("crops", "flipped"):
                told = getattr(batch, name)
                views = told if isinstance(told, list) else [told]
                kept[name].append([torch.as_tensor(view).clone() for view in views])

    def write(self) -> None:
        """Writes all that was noted."""
        self._out.mkdir(parents=True, exist_ok=True)
        (self._out / "passes.json").write_text(json.dumps([vars(one) for one in self._passes]))
        torch.save(self._kept, self._out / "kept.pt")


def watch(observer: Observer) -> None:
    """Makes every DataLoader and Loader of this process tell the observer."""
    iterate_dataloader, iterate_loader, draw = DataLoader.__iter__, Loader.__iter__, BatchSampler.__iter__

    def drawn(sampler: Any) -> Iterator[list[int]]:
        for ids in draw(sampler):
            sampler.drawn.append([int(one) for one in ids])
            yield ids

    def of_dataloader(loader: Any) -> Iterator[Any]:
        sampler = loader.batch_sampler
        sampler.drawn = []
        one = observer.begin("DataLoader", loader)
        return _told(iterate_dataloader(loader), one, lambda number, _: sampler.drawn[number])

    def of_loader(loader: Any) -> Iterator[Any]:
        one = observer.begin("Loader", loader)
        # Made at once: it starts the epoch.
        return _told(iterate_loader(loader), one, lambda _, batch: [int(sample) for sample in batch.ids])

    def _told(batches: Iterator[Any], one: Pass, ids: Callable[[int, Any], list[int]]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            observer.deliver(one, ids(number, batch), batch)
            # Before the last batch is handed over: some loops do not ask for one behind it.
            one.is_whole = number + 1 == one.batches
            yield batch

    for kind, name, function in (
        (BatchSampler, "__iter__", drawn),
        (DataLoader, "__iter__", of_dataloader),
        (Loader, "__iter__", of_loader),
    ):
        setattr(kind, name, function)


def _images_and_labels(batch: Any) -> tuple[list[torch.Tensor], Any]:
    """A list of views, of one in most scripts, and the labels."""
    if isinstance(batch, Batch):
        images, labels = batch.images, batch.labels
    elif isinstance(batch, dict):
        images, labels = batch["pixel_values"], batch["labels"]
    else:
        images, labels = batch[0], batch[1]
    return list(images) if isinstance(images, list | tuple) else [images], labels


def _classes(dataset: Any) -> list[str] | None:
    """The names that a dataset of torchvision, timm, Hugging Face or shade has."""
    if hasattr(dataset, "classes"):
        return list(dataset.classes)
    if hasattr(dataset, "reader"):
        return sorted(dataset.reader.class_to_idx, key=dataset.reader.class_to_idx.get)
    if hasattr(dataset, "features"):
        return list(dataset.features["label"].names)
    return None


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    sys.argv = sys.argv[2:]
    script = Path(sys.argv[0])
    # As `python SCRIPT` has it.
    sys.path[0] = str(script.parent)
    for name in order["stand_ins"]:
        stand_ins.ALL[name].put(order)
    observer = Observer(order)
    watch(observer)
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        observer.write()


if __name__ == "__main__":
    main()
