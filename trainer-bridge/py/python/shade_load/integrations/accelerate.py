"""Accelerate: a Loader that its accelerator knows, as `Accelerator.prepare` makes it of a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate.data_loader import DataLoaderStateMixin
from accelerate.state import GradientState

from ..loader import Loader
from . import check_epochs


class PreparedLoader(DataLoaderStateMixin):
    """A Loader whose batches are on a device, and whose epochs' ends Accelerate knows.

        loader = PreparedLoader(Loader("train.shade", 256, image_size=224), accelerator.device)
        accelerator.register_for_checkpointing(loader)

    `Accelerator.prepare` returns a Loader as it is, for it divides its batches among the ranks
    itself. With a PreparedLoader `accumulate` also ends at an epoch's end. `gather_for_metrics`
    leaves out padding on one rank. On several it gathers whole batches, and the last ones may
    differ by a sample.

    Args:
        loader: It must be open as long as this one is used. Its epochs must be as long as it is:
            not by the samplers "infobatch", "seta" and "iis".
        device: The accelerator's. Default: batches stay where they are.
    """

    def __init__(self, loader: Loader, device: Any = None) -> None:
        check_epochs(loader, "PreparedLoader")
        self.loader = loader
        self.dataset = loader.dataset
        self.device = device
        # For DataLoaderStateMixin. Without `_drop_last` it would take the whole dataset for what an
        # epoch has, and cut its last batch to what that leaves.
        self.gradient_state = GradientState()
        self._drop_last = True

    def __len__(self) -> int:
        """Batches per epoch and rank."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """One epoch's batches."""
        self.begin()
        try:
            for batch in self.loader:
                self.end_of_dataloader = batch.index + 1 == len(self.loader)
                if self.end_of_dataloader and self.loader.world_size == 1:
                    # What is gathered of the last batch is cut to so few rows: padding is last.
                    self.remainder = len(batch) - int(batch.padding.sum())
                yield batch if self.device is None else batch.to(self.device)
        finally:
            self.end()

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next iteration's epoch."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The Loader's state."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the Loader's state."""
        self.loader.load_state_dict(state)
