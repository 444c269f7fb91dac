"""What users do: PyTorch's DataLoader over torchvision's ImageFolder."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms import Compose, PILToTensor

from demo.augmentation import for_training
from demo.task import Task
from studies.slow_store import FILE_OPERATIONS


class Baseline:
    """Batches of a DataLoader. Its workers live as long as it does."""

    sampler = "permutations"

    def __init__(self, task: Task, batch_size: int) -> None:
        transform = Compose([*for_training(task.side, task.has_side), PILToTensor()])
        self._files = ImageFolder(task.train, transform, loader=_Simulated(task) if task.simulated else default_loader)
        self._file_bytes = task.file_bytes
        self._loader = DataLoader(
            self._files,
            batch_size,
            shuffle=True,
            num_workers=task.workers,
            persistent_workers=True,
            worker_init_fn=_end_without_traceback,
            generator=torch.Generator().manual_seed(task.seed),
        )
        self.classes = len(self._files.classes)

    def epoch(self) -> Iterator[list[torch.Tensor]]:
        """An epoch's batches."""
        return iter(self._loader)

    def planned(self) -> int:
        """Samples of the epoch."""
        return len(self._files)

    def report(self, _batch: list[torch.Tensor], _losses: torch.Tensor) -> None:
        """Nothing needs the losses."""

    def counts(self) -> dict[str, Any]:
        """Figures of the last epoch. Every file was read, as nothing stays in memory."""
        return {"read MB": self._file_bytes / 1e6, "hit ratio": 0.0, "distinct": 1.0}

    def close(self) -> None:
        """Ends the workers."""
        del self._loader


def _end_without_traceback(_worker: int) -> None:
    """Begins a worker. Its errors go to the training; what its other threads would print after Ctrl-C is that
    nobody takes a batch any more."""
    sys.excepthook = lambda *_: None


class _Simulated:
    """Reads a file as slowly as the store would let it."""

    def __init__(self, task: Task) -> None:
        self._seconds = task.delay_us / 1e6
        # All workers have the same one.
        self._at_once = torch.multiprocessing.Semaphore(task.at_once)

    def __call__(self, path: str) -> Any:
        for _ in range(FILE_OPERATIONS):
            with self._at_once:
                time.sleep(self._seconds)
        return default_loader(path)
