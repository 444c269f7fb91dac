"""Transformers: a Trainer that trains and evaluates from Loaders."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset
from transformers import Trainer
from transformers.trainer_utils import get_last_checkpoint

from ..batch import Batch
from ..loader import Loader
from . import check_epochs
from .accelerate import PreparedLoader

STATE_FILE = "shade_load.pt"


class LoaderTrainer(Trainer):
    """A Trainer whose `train_dataset` and `eval_dataset` may be Loaders.

    Batches become the model's arguments: images are its main input (`pixel_values` of image
    models), labels are `labels`. A Loader's `transform` makes floats of the images, such as
    `shade_load.Normalize`. The Loader's batch size must be the `per_device_..._batch_size` of the
    arguments.

    It logs the Loader's `metrics` beside the loss: `shade/wait_share`, `shade/read_mb_per_s` and
    others, and `shade/hit_ratio` if there were accesses. It reports losses if the Loader's sampler
    draws by them: see `sample_losses`. Each checkpoint has the Loader's state, and
    `train(resume_from_checkpoint=...)` goes on after its last batch. The samplers "infobatch",
    "seta" and "iis" are refused: a Trainer takes its steps to be as many in each epoch.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The batch that is trained on, and the batches before the one a training was resumed at.
        self._batch: Batch | None = None
        self._before = 0
        # The step in work, or the last one, and its batches.
        self._step, self._of_step = -1, 0
        if isinstance(self.train_dataset, Loader):
            self._check_batch_size("train", self.train_dataset, self.args.train_batch_size)
            check_epochs(self.train_dataset, "LoaderTrainer")

    def get_train_dataloader(self) -> Any:
        """The Loader that trains, as the Trainer needs it."""
        if not isinstance(self.train_dataset, Loader):
            return super().get_train_dataloader()
        before, self._before = self._before, 0
        return _ToTrain(self.train_dataset, self._input_name(), before)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The Loader that validates, as the Trainer needs it."""
        given = self.eval_dataset if eval_dataset is None else eval_dataset
        loader = self.eval_dataset[given] if isinstance(given, str) else given
        if not isinstance(loader, Loader):
            return super().get_eval_dataloader(eval_dataset)
        self._check_batch_size("eval", loader, self.args.eval_batch_size)
        return _ToEvaluate(loader, self._input_name())

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The batches for `predict`."""
        if not isinstance(test_dataset, Loader):
            return super().get_test_dataloader(test_dataset)
        return self.get_eval_dataloader(test_dataset)

    def num_examples(self, dataloader: Any) -> int:
        """Samples of an epoch."""
        if isinstance(dataloader, PreparedLoader):
            return len(dataloader.loader.sampler) * dataloader.loader.world_size
        return super().num_examples(dataloader)

    def get_batch_samples(self, *args: Any, **options: Any) -> Any:
        """The batches of the next step, which are all delivered before it begins."""
        batches, items = super().get_batch_samples(*args, **options)
        self._step, self._of_step = self.state.global_step, len(batches)
        return batches, items

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any) -> Any:
        """Trains; with `resume_from_checkpoint` from that checkpoint's batch on."""
        # A training before may have failed before it asked for batches.
        self._before = 0
        if isinstance(self.train_dataset, Loader) and resume_from_checkpoint:
            if resume_from_checkpoint is True:
                resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True
            path = Path(str(resume_from_checkpoint)) / STATE_FILE
            if path.is_file():
                state = torch.load(path, map_location="cpu", weights_only=True)
                self.train_dataset.load_state_dict(state)
                # At an epoch's end the Trainer goes on with the next one, and drops nothing.
                self._before = 0 if self.args.ignore_data_skip else state["batch"] % len(self.train_dataset)
        return super().train(resume_from_checkpoint, *args, **options)

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> torch.Tensor:
        """One step; remembers the batch, whose losses it reports afterwards."""
        self._batch = inputs.pop("batch", None)
        try:
            return super().training_step(model, inputs, *args, **options)
        finally:
            self._batch = None

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **options: Any
    ) -> Any:
        """The loss; reports each sample's if the Loader's sampler draws by losses."""
        batch, loader = self._batch, self.train_dataset
        if batch is None or not loader.needs_losses:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **options)
        labels = inputs["labels"]
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **options)
        with torch.no_grad():
            loader.report(batch, self.sample_losses(outputs, labels))
        return (loss, outputs) if return_outputs else loss

    def sample_losses(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        """One loss for each sample: the cross entropy of the output `logits`. Override it for others."""
        return torch.nn.functional.cross_entropy(outputs["logits"], labels, reduction="none")

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """Logs, with the Loader's metrics since then where a training loss is logged."""
        if "loss" in logs and isinstance(self.train_dataset, Loader):
            logs |= self.train_dataset.metrics()
        super().log(logs, *args, **options)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Saves a checkpoint, with the Loader's state if a training can be resumed from it."""
        super()._save_checkpoint(model, trial)
        if isinstance(self.train_dataset, Loader) and self.args.should_save and not self.args.save_only_model:
            # A search of hyperparameters has a folder for each trial.
            folder = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
            # In the middle of a step, as at a signal, its batches are still to come.
            undone = self._of_step if self._step == self.state.global_step else 0
            undone = min(undone, self.train_dataset._at.batch)
            torch.save(self.train_dataset.state_dict(undone), folder / STATE_FILE)

    def _input_name(self) -> str:
        return getattr(self.model, "main_input_name", "pixel_values")

    def _check_batch_size(self, name: str, loader: Loader, expected: int) -> None:
        if loader.batch_size != expected:
            raise ValueError(
                f"{name}_dataset: its batches have {loader.batch_size} samples, but the arguments say "
                f"per_device_{name}_batch_size={expected}: give both the same number"
            )


class _ToEvaluate(PreparedLoader):
    """A Loader's batches as a model's arguments."""

    def __init__(self, loader: Loader, input_name: str) -> None:
        super().__init__(loader)
        self._input_name = input_name

    def __iter__(self) -> Iterator[Any]:
        return map(self._arguments, super().__iter__())

    def _arguments(self, batch: Batch) -> dict[str, Any]:
        return {self._input_name: batch.images, "labels": batch.labels}


class _ToTrain(_ToEvaluate, IterableDataset[Any]):
    """The batches for training, each with itself in addition, for its report.

    In a training that is resumed the Trainer drops the batches before by a DataLoader of Accelerate
    over `dataset`. The Loader does not deliver these again: the DataLoader drops a None for each.
    """

    # What Accelerate asks for to make that DataLoader.
    batch_size = None
    drop_last = False
    prefetch_factor = None

    def __init__(self, loader: Loader, input_name: str, before: int) -> None:
        super().__init__(loader, input_name)
        self.dataset = self  # type: ignore[assignment]
        self._before = before

    def __iter__(self) -> Iterator[Any]:
        before, self._before = self._before, 0
        yield from repeat(None, before)
        yield from super().__iter__()

    def _arguments(self, batch: Batch) -> dict[str, Any]:
        return super()._arguments(batch) | {"batch": batch}
