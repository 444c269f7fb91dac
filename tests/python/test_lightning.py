"""Lightning fits, validates, logs, saves and resumes, with a DataLoader and with our Loader, under both names."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import packed
import pytest
import torch
from shade_load import Daemon, ImageFolder, Loader, Plan
from torch.utils.data import DataLoader
from torchvision.transforms import v2

pytest.importorskip("lightning")
from shade_load.integrations.lightning import LoaderCallback, LoaderData  # noqa: E402

BATCH = 16
EPOCHS = 2
INPUTS = 3 * packed.SIDE * packed.SIDE


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def lightning(request: pytest.FixtureRequest) -> ModuleType:
    """The package that trains."""
    return pytest.importorskip(request.param)


@pytest.fixture
def dataset(tmp_path: Path) -> packed.Packed:
    """One for each test: a daemon that lingers would have its records."""
    root = tmp_path / "dataset"
    root.mkdir()
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


class Tiny:
    """One linear layer, and a record of what it was given; a module by the package that trains."""

    @classmethod
    def of(cls, lightning: ModuleType) -> Any:
        return type(cls.__name__, (cls, lightning.LightningModule), {})()

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
    """Takes our batches, logs without naming the batch size, and returns the losses for the callback."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, list[int]]] = []
        self.validated: list[float] = []

    def training_step(self, batch: Any, _: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        self.seen.append((batch.epoch, batch.ids.tolist()))
        losses = self.losses(images, labels)
        self.log("train_loss", losses.mean(), on_epoch=True)
        return {"loss": losses.mean(), "losses": losses.detach()}

    def on_validation_epoch_start(self) -> None:
        self.validated = []

    def validation_step(self, batch: Any, _: int) -> None:
        losses = self.losses(*batch)
        self.validated += losses.tolist()
        self.log("val_loss", losses.mean(), on_epoch=True)


@contextmanager
def loaders(dataset: packed.Packed, job: str, plan: Plan = Plan()) -> Iterator[LoaderData]:
    options: dict[str, Any] = {"image_size": packed.SIDE, "cache": "100%", "daemon": Daemon(job=job)}
    data = LoaderData(
        train=lambda: Loader(dataset.path, BATCH, plan=plan, **options),
        val=lambda: Loader(dataset.path, BATCH, train=False, **options),
    )
    try:
        yield data
    finally:
        data.close()


def fit(lightning: ModuleType, model: Any, batches: Any, root: Path, **options: Any) -> Any:
    """Trains on the CPU, and expects that the model has changed."""
    before = [value.detach().clone() for value in model.parameters()]
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=EPOCHS,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=root,
        **{"logger": False, "enable_checkpointing": False, **options.pop("trainer", {})},
    )
    trainer.fit(model, batches, **options)
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    return trainer


def test_a_data_loader_over_image_folder(lightning: ModuleType, dataset: packed.Packed, tmp_path: Path) -> None:
    items = ImageFolder(dataset.path, v2.PILToTensor())
    model = OverDataLoader.of(lightning)
    fit(lightning, model, DataLoader(items, BATCH, num_workers=2, persistent_workers=True), tmp_path)
    assert [label for labels in model.labels for label in labels] == EPOCHS * dataset.labels


def test_the_callback_reports_losses_and_logs_metrics(lightning: ModuleType, dataset: packed.Packed, tmp_path: Path) -> None:
    model, logger = OverLoader.of(lightning), lightning.loggers.CSVLogger(tmp_path)
    with loaders(dataset, "lightning", Plan(sampler="pads", cover=0)) as data:
        fit(lightning, model, data, tmp_path, trainer={"callbacks": [LoaderCallback()], "logger": logger, "log_every_n_steps": 1})
        assert data.train_dataloader().stats()["epoch"]["reported_share"] == 1.0
    first, second = ([sample for of, ids in model.seen for sample in ids if of == epoch] for epoch in range(EPOCHS))
    assert sorted(first) == list(range(len(dataset))), "a permutation, as nothing was known"
    assert len(second) == len(dataset) and len(set(second)) < len(second), "drawn from the losses that were reported"
    with open(Path(logger.log_dir) / "metrics.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["shade/hit_ratio"]]
    assert len(rows) == EPOCHS
    assert float(rows[0]["shade/read_mb_per_s"]) > 0 and float(rows[1]["shade/samples_per_s"]) > 0
    assert float(rows[1]["shade/read_mb_per_s"]) == 0, "the metrics are those of the epoch"
    assert float(rows[1]["shade/hit_ratio"]) == 1.0, "all is cached after the first epoch"


def test_losses_are_logged_weighted_by_the_size_of_their_batches(
    lightning: ModuleType, dataset: packed.Packed, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    model = OverLoader.of(lightning)
    assert len(dataset) % BATCH != 0, "all batches have one size: a mean of means would pass"
    with loaders(dataset, "lightning-logs") as data:
        logged = fit(lightning, model, data, tmp_path).callback_metrics
    assert len(model.validated) == len(dataset)
    assert logged["val_loss"].item() == pytest.approx(sum(model.validated) / len(dataset), rel=1e-5)
    assert logged["train_loss_epoch"].item() > 0
    assert not [str(warning.message) for warning in recwarn if "batch_size" in str(warning.message)]


def test_an_epoch_that_is_cut_short_is_followed_by_the_next(lightning: ModuleType, dataset: packed.Packed, tmp_path: Path) -> None:
    model = OverLoader.of(lightning)
    with loaders(dataset, "lightning-short") as data:
        fit(lightning, model, data, tmp_path, trainer={"callbacks": [LoaderCallback()], "limit_train_batches": 2})
    assert [epoch for epoch, _ in model.seen] == [0, 0, 1, 1]


def test_without_the_callback_lightning_tells_the_sampler(
    lightning: ModuleType, dataset: packed.Packed, tmp_path: Path
) -> None:
    model = OverLoader.of(lightning)
    with loaders(dataset, "lightning-bare") as data:
        loader = data.train_dataloader()
        fit(lightning, model, loader, tmp_path, trainer={"limit_train_batches": 2})
    assert [epoch for epoch, _ in model.seen] == [0, 0, 1, 1]


def test_seeds_of_workers_may_be_asked_for(
    lightning: ModuleType, dataset: packed.Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As LightningCLI asks for them."""
    for variable in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        # For the environment to be restored.
        monkeypatch.setenv(variable, "0")
    lightning.seed_everything(42, workers=True)
    model = OverLoader.of(lightning)
    with loaders(dataset, "lightning-seeded") as data:
        fit(lightning, model, data, tmp_path, trainer={"callbacks": [LoaderCallback()]})
    assert [epoch for epoch, _ in model.seen] == [0] * 4 + [1] * 4


def test_the_same_few_batches_may_be_overfitted(lightning: ModuleType, dataset: packed.Packed, tmp_path: Path) -> None:
    model = OverLoader.of(lightning)
    with loaders(dataset, "lightning-overfits", Plan(sampler="sequential")) as data:
        limits = {"limit_train_batches": 2, "limit_val_batches": 2}
        fit(lightning, model, data, tmp_path, trainer={"callbacks": [LoaderCallback()], **limits})
    same = [list(range(BATCH)), list(range(BATCH, 2 * BATCH))]
    assert model.seen == [(epoch, ids) for epoch in range(EPOCHS) for ids in same]


@pytest.mark.parametrize("sampler", ["infobatch", "seta", "iis"])
def test_samplers_of_shorter_epochs_are_refused(
    lightning: ModuleType, dataset: packed.Packed, tmp_path: Path, sampler: str
) -> None:
    plan = Plan(sampler=sampler)
    with loaders(dataset, "lightning-shorter", plan) as data:
        with pytest.raises(ValueError, match=f"LoaderData: the sampler '{sampler}' leaves samples out"):
            fit(lightning, OverLoader.of(lightning), data, tmp_path)
        [loader] = data._made.values()
        with pytest.raises(ValueError, match=f"LoaderCallback: the sampler '{sampler}' leaves samples out"):
            fit(lightning, OverLoader.of(lightning), loader, tmp_path, trainer={"callbacks": [LoaderCallback()]})


class FailsOnce(OverLoader):
    """Fails at a batch, as a full device does: in its step, or on the way to it."""

    fails_at: tuple[int, int] | None = None
    is_early = False

    def on_after_batch_transfer(self, batch: Any, _: int) -> Any:
        self.fail(batch, here=self.is_early)
        return batch

    def training_step(self, batch: Any, index: int) -> dict[str, torch.Tensor]:
        self.fail(batch, here=not self.is_early)
        return super().training_step(batch, index)

    def fail(self, batch: Any, here: bool) -> None:
        if here and self.trainer.training and (batch.epoch, batch.index) == self.fails_at:
            raise MemoryError("the device is full")


@pytest.mark.parametrize("is_early", [False, True], ids=["in-the-step", "before-it"])
def test_a_checkpoint_that_an_exception_leaves_has_its_batch_still_to_come(
    lightning: ModuleType, dataset: packed.Packed, tmp_path: Path, is_early: bool
) -> None:
    def trained(fails_at: tuple[int, int] | None = None, checkpoint: Path | None = None) -> FailsOnce:
        model = FailsOnce.of(lightning)
        model.fails_at, model.is_early = fails_at, is_early
        saves = lightning.callbacks.OnExceptionCheckpoint(tmp_path)
        # It removes its checkpoint as a training ends well.
        saves.teardown = lambda *_, **__: None
        options = {"callbacks": [LoaderCallback(), saves], "enable_checkpointing": True}
        with loaders(dataset, "lightning-failed") as data:
            if fails_at is None:
                fit(lightning, model, data, tmp_path, trainer=options, ckpt_path=checkpoint)
            else:
                with pytest.raises(MemoryError):
                    fit(lightning, model, data, tmp_path, trainer=options)
        return model

    whole = trained().seen
    for epoch, batch in ((0, 0), (1, 2), (1, 3)):
        trained(fails_at=(epoch, batch))
        rest = trained(checkpoint=tmp_path / "on_exception.ckpt")
        assert rest.seen == whole[4 * epoch + batch :], (epoch, batch)
        assert rest.validated, "its epoch ends as always"


@pytest.mark.parametrize("at_train_end", [False, True], ids=["after-validation", "before-validation"])
def test_a_training_goes_on_from_any_checkpoint(lightning: ModuleType, dataset: packed.Packed, tmp_path: Path, at_train_end: bool) -> None:
    """From one at an epoch's end, and from those after a step, the epoch's last among them."""

    def trained(checkpoint: Path | None) -> list[tuple[int, list[int]]]:
        model = OverLoader.of(lightning)
        saves = [
            lightning.callbacks.ModelCheckpoint(tmp_path / "steps", "{step}", save_top_k=-1, every_n_train_steps=1),
            lightning.callbacks.ModelCheckpoint(tmp_path / "ends", "{step}", save_top_k=-1, save_on_train_epoch_end=at_train_end),
        ]
        first = checkpoint is None
        options = {"callbacks": [LoaderCallback(), *(saves if first else [])], "enable_checkpointing": first}
        with loaders(dataset, "lightning-resumed", Plan(sampler="pads")) as data:
            fit(lightning, model, data, tmp_path, trainer=options, ckpt_path=checkpoint)
        return model.seen

    whole = trained(None)
    assert [epoch for epoch, _ in whole] == [0] * 4 + [1] * 4
    assert trained(tmp_path / "ends/step=4.ckpt") == whole[4:]
    for step in (2, 4, 7) if at_train_end else ():
        assert trained(tmp_path / "steps" / f"step={step}.ckpt") == whole[step:], step
