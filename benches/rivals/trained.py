"""`python -m benches.rivals.trained TRAINER ROOT PROGRAMS WORKERS WHAT [MODEL SAMPLES]`: training on a GPU, a fresh process.

WHAT is `prepare`, which makes what the trainer reads, or how many epochs of whole batches to time. The clock starts when
the modules are imported and the model has been tried. The last line that it prints is JSON."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import shade_load
import torch
import torchvision
from shade_load.transforms import RandomHorizontalFlip, RandomResizedCrop
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benches.rivals.decoded import BATCH
from benches.rivals.kinds import KINDS, RATIO, SCALE
from benches.rivals.readers import shards
from benches.rivals.writers.listing import read

CLASSES = 1_000
SIDE = KINDS["photos"].side
DEVICE = "cuda:0"
# Of the model before the clock starts: kernels are chosen, memory is taken.
STEPS_TRIED = 20
MARKED = "marked-shards"

# Images, uint8 on the device, N 3 H W with the channels' memory last, and labels.
Batch = tuple[torch.Tensor, torch.Tensor]
Epochs = Iterator[Iterator[Batch]]


def main() -> int:
    name, root, programs, workers, what, *rest = sys.argv[1:]
    folder, prepare, epochs = trainer(name)
    if what == "prepare":
        prepare(Path(root), Path(programs))
        told: dict[str, Any] = {"folder": folder, "device": torch.cuda.get_device_name()}
    else:
        model, samples = rest
        batches = int(samples) // BATCH
        told = run(epochs(Path(root), int(workers), batches), Model(model), int(what), batches)
    # whole_tree's contract; CPU time before the clock is in nothing that is told.
    print(json.dumps({**told, "cpu_seconds_before": 0.0}), flush=True)
    return 0


def trainer(name: str) -> tuple[str, Callable[[Path, Path], None], Callable[[Path, int, int], Epochs]]:
    """What it reads below the root, what makes that, and its epochs."""
    if name == "shade":
        return shards.FOLDER, shards.prepare, partial(shade, folder=shards.FOLDER)
    if name == "shade_marked":
        return MARKED, lambda *where: shards.prepare(*where, MARKED, "--restart-markers"), partial(shade, folder=MARKED)
    own = {"nothing": nothing, "imagefolder": imagefolder, "imagefolder_fast": imagefolder_fast}
    return "files", lambda *_where: None, own[name]


def nothing(_root: Path, _workers: int, batches: int) -> Epochs:
    """The same batch over and over, on the device from the beginning: what the model could do."""
    batch = random_batch()
    while True:
        yield (batch for _ in range(batches))


def shade(root: Path, workers: int, _batches: int, *, folder: str) -> Epochs:
    """Ours, with its cache as it is by default; each sample once an epoch, as the others have it."""
    crops = [RandomResizedCrop(SIDE, scale=SCALE, ratio=RATIO), RandomHorizontalFlip()]
    with shade_load.Loader(
        root / folder,
        BATCH,
        decode=crops,
        channels_last=True,
        device=DEVICE,
        plan=shade_load.Plan(sampler="uniform", tail="drop"),
        daemon=shade_load.Daemon(workers=workers),
    ) as loader:
        while True:
            yield ((batch.images, batch.labels) for batch in loader)


def imagefolder(root: Path, workers: int, _batches: int) -> Epochs:
    """torchvision's transforms on Pillow's images."""
    crops = [v2.RandomResizedCrop(SIDE, SCALE, RATIO), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    return dataloader(ImageFolder(str(root / "files"), v2.Compose(crops)), workers)


def imagefolder_fast(root: Path, workers: int, _batches: int) -> Epochs:
    """Each file decoded the fastest way that stock parts give."""
    # Here: not every machine with a GPU has its parts.
    from benches.rivals.decoders import fast

    def channels_first(record: bytes) -> torch.Tensor:
        return torch.from_numpy(fast.decode(record, KINDS["photos"])).permute(2, 0, 1)

    return dataloader(ImageFolder(str(root / "files"), channels_first, loader=read), workers)


def dataloader(images: ImageFolder, workers: int) -> Epochs:
    """As PyTorch's documentation has it for a GPU: batches are pinned, copies need not be waited for."""
    options = {"pin_memory": True, "persistent_workers": True, "drop_last": True}
    loader = DataLoader(images, BATCH, shuffle=True, num_workers=workers, **options)
    while True:
        yield ((images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)) for images, labels in loader)


class Model:
    """A network of torchvision's that is trained from nothing, in bfloat16 where autocast has it."""

    def __init__(self, name: str) -> None:
        torch.backends.cudnn.benchmark = True
        network = torchvision.models.get_model(name, num_classes=CLASSES)
        self._network = network.to(DEVICE, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.SGD(self._network.parameters(), 0.1, momentum=0.9)
        images, labels = random_batch()
        for _ in range(STEPS_TRIED):
            self.step(images, labels)
        torch.cuda.synchronize()

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """One batch, forwards and backwards. Returns before the device is done."""
        with torch.autocast("cuda", torch.bfloat16):
            floats = images.to(torch.bfloat16, memory_format=torch.channels_last) / 255
            loss = torch.nn.functional.cross_entropy(self._network(floats), labels.long())
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


def random_batch() -> Batch:
    images = torch.randint(256, (BATCH, 3, SIDE, SIDE), dtype=torch.uint8, device=DEVICE)
    return images.to(memory_format=torch.channels_last), torch.randint(CLASSES, (BATCH,), device=DEVICE)


def run(every: Epochs, model: Model, epochs: int, batches: int) -> dict[str, Any]:
    """Trains so many epochs; seconds of each, to its first batch and to when the device is done with it."""
    told = []
    started = time.perf_counter()
    for _ in range(epochs):
        seen, first = 0, 0.0
        for images, labels in next(every):
            if not seen:
                first = time.perf_counter()
            model.step(images, labels)
            seen += 1
        torch.cuda.synchronize()
        if seen != batches:
            sys.exit(f"delivered {seen} batches, expected {batches}")
        ended = time.perf_counter()
        told.append({"seconds": ended - started, "first_seconds": first - started})
        started = ended
    every.close()
    return {"epochs": told}


if __name__ == "__main__":
    sys.exit(main())
