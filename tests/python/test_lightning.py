"""Lightning trains from a packed dataset, with a DataLoader and with our Loader."""

from pathlib import Path
from typing import Any

import packed
import pytest
import torch
from shade_load import Daemon, ImageFolder, Loader, Plan
from torch.utils.data import DataLoader
from torchvision.transforms import v2

lightning = pytest.importorskip("lightning")

BATCH = 16
EPOCHS = 2
INPUTS = 3 * packed.SIDE * packed.SIDE


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("lightning")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


class Tiny(lightning.LightningModule):
    """One linear layer, and a record of what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(INPUTS, len(packed.CLASSES)))
        self.labels: list[list[int]] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def losses(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.labels.append(labels.tolist())
        return torch.nn.functional.cross_entropy(self.layers(images.float() / 255), labels, reduction="none")


class OverDataLoader(Tiny):
    """Takes what a DataLoader collates."""

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels = batch
        return self.losses(images, labels).mean()


class OverLoader(Tiny):
    """Takes our batches, and reports their losses."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[list[int]] = []
        self.epochs: list[int] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        losses = self.losses(batch.images, batch.labels)
        self.ids.append(batch.ids.tolist())
        self.epochs.append(batch.epoch)
        self.trainer.train_dataloader.report(batch, losses)
        return losses.mean()


class Logs(OverLoader):
    """Validates, too, and logs without naming the batch size."""

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        loss = super().training_step(batch, number)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def on_validation_epoch_start(self) -> None:
        self.validated: list[float] = []

    def validation_step(self, batch: Any, _: int) -> None:
        images, labels = batch
        losses = self.losses(images, labels)
        self.validated += losses.tolist()
        self.log("val_loss", losses.mean(), on_epoch=True)


def fit(model: Tiny, batches: Any, root: Path, validation: Any = None) -> lightning.Trainer:
    """Trains on the CPU, and expects that the model has changed."""
    before = [value.detach().clone() for value in model.parameters()]
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=root,
    )
    trainer.fit(model, batches, validation)
    assert trainer.global_step == EPOCHS * 4
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    return trainer


def test_a_data_loader_over_image_folder(dataset: packed.Packed, tmp_path: Path) -> None:
    items = ImageFolder(dataset.path, v2.PILToTensor())
    model = OverDataLoader()
    fit(model, DataLoader(items, BATCH, num_workers=2, persistent_workers=True), tmp_path)
    assert [label for labels in model.labels for label in labels] == EPOCHS * dataset.labels


def test_the_loader_as_train_dataloaders(dataset: packed.Packed, tmp_path: Path) -> None:
    model = OverLoader()
    plan, daemon = Plan(sampler="pads", cover=0), Daemon(job="lightning")
    with Loader(dataset.path, BATCH, image_size=packed.SIDE, cache="100%", plan=plan, daemon=daemon) as loader:
        fit(model, loader, tmp_path)
    assert model.epochs == [0] * 4 + [1] * 4
    for ids, labels in zip(model.ids, model.labels, strict=True):
        assert labels == [dataset.labels[sample] for sample in ids]
    first, second = ([sample for ids in model.ids[start : start + 4] for sample in ids] for start in (0, 4))
    assert sorted(first) == list(range(len(dataset))), "a permutation, as nothing was known"
    assert len(set(second)) < len(second), "drawn from the losses that were reported"


def test_losses_are_logged_weighted_by_the_size_of_their_batches(
    dataset: packed.Packed, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    model = Logs()
    options = {"image_size": packed.SIDE, "cache": "100%", "daemon": Daemon(job="lightning-logs")}
    with Loader(dataset.path, BATCH, **options) as train, Loader(dataset.path, BATCH, train=False, **options) as val:
        assert len(dataset) % BATCH != 0, "all batches have one size: a mean of means would pass"
        trainer = fit(model, train, tmp_path, val)
    assert len(model.validated) == len(dataset)
    logged = trainer.callback_metrics
    assert logged["val_loss"].item() == pytest.approx(sum(model.validated) / len(dataset), rel=1e-5)
    assert logged["train_loss_epoch"].item() > 0
    assert not [str(warning.message) for warning in recwarn if "batch_size" in str(warning.message)]
