"""Transformers' Trainer fits, evaluates, logs, saves and resumes from our Loader."""

from pathlib import Path
from typing import Any

import packed
import pytest
import torch
from shade_load import Daemon, Loader, Plan

transformers = pytest.importorskip("transformers")
from shade_load.integrations.transformers import LoaderTrainer  # noqa: E402

BATCH = 16
BATCHES = 4
EPOCHS = 2
INPUTS = 3 * packed.SIDE * packed.SIDE


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("transformers")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


class Tiny(torch.nn.Module):
    """One linear layer with the arguments and outputs of an image classifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(INPUTS, len(packed.CLASSES)))

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Recording(LoaderTrainer):
    """Remembers what it was given."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: list[tuple[int, list[int]]] = []

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> torch.Tensor:
        batch = inputs["batch"]
        assert inputs["pixel_values"] is batch.images and inputs["labels"] is batch.labels
        self.seen.append((batch.epoch, batch.ids.tolist()))
        return super().training_step(model, inputs, *args, **options)


def opened(dataset: packed.Packed, **options: Any) -> Loader:
    options = {"image_size": packed.SIDE, "cache": "100%", "daemon": Daemon(job="transformers"), **options}
    return Loader(dataset.path, BATCH, transform=lambda images: images.float() / 255, **options)


def arguments(root: Path, **options: Any) -> "transformers.TrainingArguments":
    return transformers.TrainingArguments(
        output_dir=str(root),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        num_train_epochs=EPOCHS,
        report_to=[],
        disable_tqdm=True,
        **{"save_strategy": "no", "logging_steps": 1, **options},
    )


def test_it_fits_reports_evaluates_and_logs(dataset: packed.Packed, tmp_path: Path) -> None:
    model = Tiny()

    def accuracy(predicted: Any) -> dict[str, float]:
        assert predicted.label_ids.tolist() == dataset.labels, "each sample once, in order"
        return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}

    with opened(dataset, plan=Plan(sampler="pads", cover=0)) as train, opened(dataset, train=False) as val:
        assert train.needs_losses and not val.needs_losses
        options = {"train_dataset": train, "eval_dataset": val, "compute_metrics": accuracy}
        trainer = Recording(model, arguments(tmp_path, eval_strategy="epoch"), **options)
        trainer.train()
        assert train.stats()["total"]["reported_share"] == 1.0
        images = torch.cat([images for images, _ in val])
    first, second = ([sample for of, ids in trainer.seen for sample in ids if of == epoch] for epoch in range(EPOCHS))
    assert sorted(first) == list(range(len(dataset))), "a permutation, as nothing was known"
    assert len(second) == len(dataset) and len(set(second)) < len(second), "drawn from the losses that were reported"
    losses = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == EPOCHS * BATCHES and all("shade/wait_share" in entry for entry in losses)
    # Batches are opened ahead, so the last steps may be without an access.
    assert [entry["shade/hit_ratio"] for entry in losses if "shade/hit_ratio" in entry][-1] == 1.0
    evaluated = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert [entry["epoch"] for entry in evaluated] == [1.0, 2.0]
    assert len(dataset) % BATCH != 0, "all batches have one size: a mean of means would pass"
    with torch.no_grad():
        expected = model(images, torch.tensor(dataset.labels))["loss"].item()
    assert evaluated[-1]["eval_loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("accumulated", [1, 3])
def test_a_training_goes_on_from_any_checkpoint(dataset: packed.Packed, tmp_path: Path, accumulated: int) -> None:
    def trained(checkpoint: str | None) -> tuple[list[tuple[int, list[int]]], Tiny]:
        saves = {"save_strategy": "steps", "save_steps": 1} if checkpoint is None else {}
        options = {"gradient_accumulation_steps": accumulated, **saves}
        model = Tiny()
        with opened(dataset, plan=Plan(sampler="pads")) as train:
            trainer = Recording(model, arguments(tmp_path, **options), train_dataset=train)
            trainer.train(resume_from_checkpoint=checkpoint)
            assert trainer.state.epoch == EPOCHS
        return trainer.seen, model

    whole, expected = trained(None)
    assert [epoch for epoch, _ in whole] == [0] * BATCHES + [1] * BATCHES
    # Batches that were trained on after some steps: an epoch's last step has what is left of it.
    done = {2: 2, 4: 4, 7: 7} if accumulated == 1 else {1: 3, 2: 4, 3: 7}
    for step, batches in done.items():
        seen, model = trained(f"{tmp_path}/checkpoint-{step}")
        assert seen == whole[batches:], step
        for value, other in zip(model.parameters(), expected.parameters(), strict=True):
            assert torch.equal(value, other), "the same gradients"


class SavesWithin(transformers.TrainerCallback):
    """Saves a checkpoint before a step is done, as `enable_jit_checkpoint` does at a signal, and stops."""

    def __init__(self, step: int) -> None:
        self.step, self.trainer = step, None

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            self.trainer._save_checkpoint(self.trainer.model, trial=None)
            control.should_training_stop = True


@pytest.mark.parametrize("accumulated", [1, 3])
def test_a_checkpoint_within_a_step_has_the_steps_batches_still_to_come(
    dataset: packed.Packed, tmp_path: Path, accumulated: int
) -> None:
    def trained(checkpoint: str | None, *callbacks: SavesWithin) -> list[tuple[int, list[int]]]:
        options = {"gradient_accumulation_steps": accumulated}
        with opened(dataset) as train:
            trainer = Recording(Tiny(), arguments(tmp_path, **options), train_dataset=train, callbacks=list(callbacks))
            for callback in callbacks:
                callback.trainer = trainer
            trainer.train(resume_from_checkpoint=checkpoint)
        return trainer.seen

    whole = trained(None)
    # Batches of the steps before: the last step of an epoch is among them.
    for step, done in {1: 1, 3: 3, 6: 6}.items() if accumulated == 1 else {1: 3, 2: 4}.items():
        trained(None, SavesWithin(step))
        assert trained(f"{tmp_path}/checkpoint-{step}") == whole[done:], step


def test_a_part_is_evaluated_as_a_whole(dataset: packed.Packed, tmp_path: Path) -> None:
    """Of a length that is no multiple of the batch, other than the rest of the dataset's."""
    chosen = [*range(3, 32), 40, 50]
    assert len(chosen) % BATCH != 0 != (len(chosen) - len(dataset)) % BATCH
    model, part = Tiny(), Plan(indices=chosen)
    with opened(dataset, plan=part) as train, opened(dataset, plan=part, train=False) as val:
        trainer = LoaderTrainer(model, arguments(tmp_path), train_dataset=train, eval_dataset=val)
        found = trainer.predict(val)
        assert trainer.num_examples(trainer.get_train_dataloader()) == len(chosen)
        images = torch.cat([images for images, _ in val])
    labels = [dataset.labels[sample] for sample in chosen]
    assert found.label_ids.tolist() == labels and len(found.predictions) == len(chosen)
    with torch.no_grad():
        expected = model(images, torch.tensor(labels))["loss"].item()
    assert found.metrics["test_loss"] == pytest.approx(expected, rel=1e-4)


def test_a_trial_of_a_search_has_the_state_in_its_own_folder(
    dataset: packed.Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in `hyperparameter_search`, whose backends are not installed.
    monkeypatch.setattr(LoaderTrainer, "_get_output_dir", lambda self, trial: str(tmp_path / "run-2"))
    with opened(dataset) as train:
        saves = arguments(tmp_path, save_strategy="steps", save_steps=3)
        LoaderTrainer(Tiny(), saves, train_dataset=train).train()
    state = torch.load(tmp_path / "run-2/checkpoint-3/shade_load.pt", weights_only=True)
    assert (state["epoch"], state["batch"]) == (0, 3)


@pytest.mark.parametrize("sampler", ["infobatch", "seta", "iis"])
def test_samplers_of_shorter_epochs_are_refused(dataset: packed.Packed, tmp_path: Path, sampler: Any) -> None:
    told = f"LoaderTrainer: the sampler '{sampler}' leaves samples out"
    with opened(dataset, plan=Plan(sampler=sampler)) as train, pytest.raises(ValueError, match=told):
        LoaderTrainer(Tiny(), arguments(tmp_path), train_dataset=train)


def test_other_datasets_are_left_to_the_trainer(dataset: packed.Packed, tmp_path: Path) -> None:
    items = [{"pixel_values": torch.zeros(3, packed.SIDE, packed.SIDE), "labels": 0}] * 3
    with opened(dataset) as train:
        trainer = LoaderTrainer(Tiny(), arguments(tmp_path), train_dataset=train, eval_dataset={"none": items})
        trainer.train()
        assert "eval_none_loss" in trainer.evaluate()
        assert len(trainer.predict(items).predictions) == 3
    trainer = LoaderTrainer(Tiny(), arguments(tmp_path), train_dataset=items)
    trainer.train()


def test_another_batch_size_than_the_arguments_have_is_refused(dataset: packed.Packed, tmp_path: Path) -> None:
    with opened(dataset) as train:
        wrong = arguments(tmp_path)
        wrong.per_device_train_batch_size = 8
        with pytest.raises(ValueError, match="batches have 16 samples, .* per_device_train_batch_size=8"):
            LoaderTrainer(Tiny(), wrong, train_dataset=train)
