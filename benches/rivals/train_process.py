"""`python -m benches.rivals.train_process ROW ROOT PROGRAMS WORKERS WHAT [MODEL SAMPLES]`: trains
on a GPU.

WHAT is `prepare`, which makes the folder that the loader reads, or how many epochs of whole batches
to time. The clock starts when the modules are imported and the model has been tried. The last line
that it prints is JSON."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchvision

from benches.rivals import table
from benches.rivals.kinds import BATCH, KINDS

CLASSES = 1_000
SIDE = KINDS["photos"].side
DEVICE = "cuda:0"
# The model is tried before the clock starts: kernels are chosen, memory is taken.
STEPS_TRIED = 20

# Images, uint8 on the device, N 3 H W with the channels' memory last, and labels.
Batch = tuple[torch.Tensor, torch.Tensor]
Epochs = Iterator[Iterator[Batch]]


def main() -> int:
    name, root, programs, workers, what, *rest = sys.argv[1:]
    row = table.TRAIN.get(name)
    if what == "prepare":
        folder = table.prepare(row, Path(root), Path(programs)) if row else "files"
        result: dict[str, Any] = {"folder": folder, "device": torch.cuda.get_device_name()}
    else:
        model, samples = rest
        batches = int(samples) // BATCH
        epochs = _epochs(row, Path(root), int(workers)) if row else same_batch(batches)
        result = run(epochs, Model(model), int(what), batches)
    # with_cpu_time asks for it; no CPU time is reported here.
    print(json.dumps({**result, "cpu_seconds_before": 0.0}), flush=True)
    return 0


def _epochs(row: table.Row, root: Path, workers: int) -> Epochs:
    decoders: list[Callable[..., Any]] = []
    if row.fast:
        # Imported here, as not every machine with a GPU has its libraries.
        from benches.rivals import fast_decoder

        decoders = [partial(fast_decoder.decode, kind=KINDS["photos"])]
    return table.load(row.run)(root, workers, *decoders)


def same_batch(batches: int) -> Epochs:
    """One batch over and over, on the device from the beginning: what the model could do."""
    batch = random_batch()
    while True:
        yield (batch for _ in range(batches))


class Model:
    """A network of torchvision's, trained from nothing, in bfloat16 where autocast does so."""

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
        """Trains on one batch. Returns before the device is done."""
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
    """Trains `epochs` epochs. Returns the seconds of each until its first batch, and until the
    device is done."""
    timed = []
    started = time.perf_counter()
    for _ in range(epochs):
        taken, first = 0, 0.0
        for images, labels in next(every):
            if not taken:
                first = time.perf_counter()
            model.step(images, labels)
            taken += 1
        torch.cuda.synchronize()
        if taken != batches:
            sys.exit(f"delivered {taken} batches, expected {batches}")
        ended = time.perf_counter()
        timed.append({"seconds": ended - started, "first_seconds": first - started})
        started = ended
    every.close()
    return {"epochs": timed}


if __name__ == "__main__":
    sys.exit(main())
