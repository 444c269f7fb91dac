"""Lightning: Loaders made where ranks are known, and a callback that keeps them in step with the Trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..batch import Batch
from ..loader import Loader
from . import check_epochs

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

# One code under two names. A Trainer of one takes no object of the other's classes.
_NAMES = ("lightning.pytorch", "pytorch_lightning")
# The state of a Trainer that fits.
_FITTING = "fit"


def _packages() -> Iterator[ModuleType]:
    """The packages of the two that are installed."""
    for name in _NAMES:
        try:
            yield import_module(name)
        except ModuleNotFoundError as error:
            # One that is installed and lacks something says so itself.
            if error.name not in (name, name.partition(".")[0]):
                raise


_PACKAGES = tuple(_packages())
if not _PACKAGES:
    raise ImportError(f"shade_load.integrations.lightning needs one of {' and '.join(_NAMES)}: pip install lightning")


class LoaderData(*(package.LightningDataModule for package in _PACKAGES)):  # type: ignore[misc]
    """Loaders for a Trainer, made when it asks for them: only then are ranks known.

        data = LoaderData(
            train=lambda: Loader("train.shade", 256, image_size=224),
            val=lambda: Loader("val.shade", 256, image_size=224, train=False),
        )

    It is for Trainers of both packages, `lightning.pytorch` and `pytorch_lightning`.

    Lightning asks for validation first. The Loader that trains is made before, since the first one
    on a dataset decides the daemon's cache. Each is made once and stays open until `close` or the
    end of the process: `Trainer.save_checkpoint` after `fit` asks it for its state.

    With `precision="bf16-true"` or "16-true" the model wants images of its type, to which Lightning
    converts tensors only: give the Loader's Normalize that `dtype`, or the Loader itself.

    The samplers "infobatch", "seta" and "iis" are refused. Their epochs have fewer batches than
    Lightning counts on: it would not validate after them, and not step schedulers of epochs.

    Args: train, val, test: Functions that make a Loader.
    """

    def __init__(
        self,
        train: Callable[[], Loader] | None = None,
        val: Callable[[], Loader] | None = None,
        test: Callable[[], Loader] | None = None,
    ) -> None:
        super().__init__()
        self._makers = {"train": train, "val": val, "test": test}
        self._made: dict[str, Loader] = {}

    def train_dataloader(self) -> Loader | list[Loader]:
        """The Loader that trains."""
        return self._loader("train")

    def val_dataloader(self) -> Loader | list[Loader]:
        """The Loader that validates."""
        if self.trainer is not None and self.trainer.state.fn == _FITTING:
            self._loader("train")
        return self._loader("val")

    def test_dataloader(self) -> Loader | list[Loader]:
        """The Loader that tests."""
        return self._loader("test")

    def close(self) -> None:
        """Closes the Loaders."""
        while self._made:
            self._made.popitem()[1].close()

    def _loader(self, name: str) -> Loader | list[Loader]:
        """That Loader; nothing, as Lightning wants it, if there is none."""
        make = self._makers[name]
        if make is None:
            return []
        if name not in self._made:
            self._made[name] = make()
        check_epochs(self._made[name], "LoaderData")
        return self._made[name]


class LoaderCallback(*(package.Callback for package in _PACKAGES)):  # type: ignore[misc]
    """Keeps a Loader in step with the Trainer that trains from it.

    - It sets the epoch, so that one that `limit_train_batches` ends early is followed by the next.
    - It restores the Loader's state. Lightning saves it in each checkpoint, but does not restore it
      from one that was saved at an epoch's end before validation. In one that is saved in the middle
      of a step, as by an exception or before a job's end, the step's batch is still to come.
    - It reports losses if `training_step` returns them as "losses", one for each sample:
      `return {"loss": losses.mean(), "losses": losses.detach()}`.
    - It logs the Loader's `metrics` after each epoch: `shade/wait_share`, `shade/read_mb_per_s` and
      others, and `shade/hit_ratio` if there were accesses.
    - It refuses the samplers that `LoaderData` refuses.
    """

    def __init__(self) -> None:
        # From the checkpoint that a training is resumed from, until it begins.
        self._state: dict[str, Any] | None = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Puts the state before the batch whose step is not done in the place of that after it."""
        saved, loop = _loader_states(checkpoint), trainer.fit_loop
        progress, fetcher = loop.epoch_loop.batch_progress.current, loop._data_fetcher
        # A batch is fetched, then goes to the device, and only then is ready.
        taken = progress.ready if fetcher is None else fetcher.fetched
        if saved and taken > progress.processed:
            saved[0] = self._loader(trainer).state_dict(min(taken - progress.processed, saved[0]["batch"]))

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Remembers the Loader's state."""
        saved = _loader_states(checkpoint)
        if saved and trainer.state.fn == _FITTING:
            self._state = saved[0]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores the Loader's state."""
        check_epochs(self._loader(trainer), "LoaderCallback")
        if self._state is not None:
            self._loader(trainer).load_state_dict(self._state)
            # Another than the state's if that was saved after its epoch's last batch.
            self._loader(trainer).set_epoch(trainer.current_epoch)
            # Only now: a restoring that fails, or is interrupted, is done again by the next `fit`.
            self._state = None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sets the epoch."""
        self._loader(trainer).set_epoch(trainer.current_epoch)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Reports the batch's losses."""
        if isinstance(outputs, Mapping) and "losses" in outputs:
            if not isinstance(batch, Batch):
                raise TypeError(f"losses: the batch is a {type(batch).__name__}, expected one of a Loader")
            self._loader(trainer).report(batch, outputs["losses"])

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs the Loader's metrics since the epoch before."""
        pl_module.log_dict(self._loader(trainer).metrics())

    @staticmethod
    def _loader(trainer: Trainer) -> Loader:
        loader = trainer.train_dataloader
        if not isinstance(loader, Loader):
            raise TypeError(f"LoaderCallback: the Trainer trains from a {type(loader).__name__}, expected one Loader")
        return loader


def _loader_states(checkpoint: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The states of what a Trainer trains from."""
    return checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {}).get("combined_loader")
