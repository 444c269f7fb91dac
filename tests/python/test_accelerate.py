"""Accelerate trains, gathers, saves and resumes: with a DataLoader that it prepares, and our Loader."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import packed
import pytest
import torch
from shade_load import Daemon, ImageFolder, Loader, Plan
from torch.utils.data import DataLoader
from torchvision.transforms import v2

accelerate = pytest.importorskip("accelerate")
from shade_load.integrations.accelerate import PreparedLoader  # noqa: E402

BATCH = 16
EPOCHS = 2
INPUTS = 3 * packed.SIDE * packed.SIDE


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("accelerate")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture(autouse=True)
def no_state_stays() -> Iterator[None]:
    yield
    # Accelerate keeps one state for the process.
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def tiny() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """One linear layer and what trains it."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(INPUTS, len(packed.CLASSES)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def test_a_data_loader_over_image_folder(dataset: packed.Packed) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    items = ImageFolder(dataset.path, v2.PILToTensor())
    stock = DataLoader(items, BATCH, num_workers=2, persistent_workers=True)
    model, optimizer, loader = accelerator.prepare(*tiny(), stock)
    before = [value.detach().clone() for value in model.parameters()]
    seen = []
    for _ in range(EPOCHS):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.float() / 255), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            seen += labels.tolist()
    assert seen == EPOCHS * dataset.labels
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def opened(dataset: packed.Packed, accelerator: "accelerate.Accelerator", **options: Any) -> PreparedLoader:
    options = {"image_size": packed.SIDE, "cache": "100%", "daemon": Daemon(job="accelerate"), **options}
    return PreparedLoader(Loader(dataset.path, BATCH, **options), accelerator.device)


def test_gradients_of_several_batches_end_with_the_epoch(dataset: packed.Packed) -> None:
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
    train, val = (opened(dataset, accelerator, train=trains) for trains in (True, False))
    with train.loader, val.loader:
        assert accelerator.prepare(train.loader) is train.loader, "it finds rank and world size by itself"
        model, optimizer = accelerator.prepare(*tiny())
        steps = []
        for _ in range(EPOCHS):
            for images, labels in train:
                with accelerator.accumulate(model):
                    accelerator.backward(torch.nn.functional.cross_entropy(model(images.float() / 255), labels))
                    optimizer.step()
                    optimizer.zero_grad()
                    steps.append(accelerator.sync_gradients)
                if len(steps) == 2:
                    # Validation in mid-epoch is not the end of training's.
                    seen = [accelerator.gather_for_metrics(batch.labels) for batch in val]
                    assert torch.cat(seen).tolist() == dataset.labels
        assert steps == EPOCHS * [False, False, True, True], "four batches an epoch"


@pytest.mark.parametrize("tail", ["even", "drop", "pad"])
@pytest.mark.parametrize("count", [16, 18, 31, 61])
def test_all_rows_of_an_epoch_are_gathered_whatever_its_length(dataset: packed.Packed, count: int, tail: Any) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    plan = Plan(indices=range(count), tail=tail)
    for trains in (True, False):
        val = opened(dataset, accelerator, plan=plan, train=trains, daemon=Daemon(job=f"gathered-{tail}-{count}"))
        with val.loader:
            seen = torch.cat([accelerator.gather_for_metrics(batch.ids) for batch in val])
        expected = count - count % BATCH if tail == "drop" else count
        assert len(seen) == len(set(seen.tolist())) == expected


def test_all_rows_of_a_mixture_are_gathered(dataset: packed.Packed) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    mixture = [(dataset.path, 0.7), (dataset.path, 0.3)]
    options = {"image_size": packed.SIDE, "daemon": Daemon(job="gathered-mixture")}
    with Loader(mixture, BATCH, plan=Plan(epoch_length=31), **options) as loader:
        train = PreparedLoader(loader, accelerator.device)
        assert [len(accelerator.gather_for_metrics(batch.ids)) for batch in train] == [BATCH, 31 - BATCH]


@pytest.mark.parametrize("sampler", ["infobatch", "seta", "iis"])
def test_samplers_of_shorter_epochs_are_refused(dataset: packed.Packed, sampler: Any) -> None:
    options = {"image_size": packed.SIDE, "daemon": Daemon(job="accelerate-shorter"), "plan": Plan(sampler=sampler)}
    told = f"PreparedLoader: the sampler '{sampler}' leaves samples out"
    with Loader(dataset.path, BATCH, **options) as loader, pytest.raises(ValueError, match=told):
        PreparedLoader(loader)
    # In a mixture an epoch is as long as ever.
    with Loader([(dataset.path, 0.7), (dataset.path, 0.3)], BATCH, **options) as loader:
        PreparedLoader(loader)


def test_a_saved_training_goes_on_after_its_last_batch(dataset: packed.Packed, tmp_path: Path) -> None:
    def trained(resumed: bool) -> list[list[int]]:
        accelerator = accelerate.Accelerator(cpu=True)
        seen = []
        loader = opened(dataset, accelerator, plan=Plan(sampler="pads", cover=0))
        with loader.loader:
            model, optimizer = accelerator.prepare(*tiny())
            accelerator.register_for_checkpointing(loader)
            if resumed:
                accelerator.load_state(tmp_path / "state")
            for epoch in range(1 if resumed else 0, EPOCHS):
                loader.set_epoch(epoch)
                for batch in loader:
                    losses = torch.nn.functional.cross_entropy(
                        model(batch.images.float() / 255), batch.labels, reduction="none"
                    )
                    loader.loader.report(batch, losses)
                    optimizer.zero_grad()
                    accelerator.backward(losses.mean())
                    optimizer.step()
                    seen.append(batch.ids.tolist())
                    assert batch.labels.tolist() == [dataset.labels[sample] for sample in seen[-1]]
                    if (batch.epoch, batch.index) == (1, 1) and not resumed:
                        accelerator.save_state(tmp_path / "state")
        return seen

    whole = trained(resumed=False)
    first, second = (sum(whole[start : start + 4], []) for start in (0, 4))
    assert sorted(first) == list(range(len(dataset))), "a permutation, as nothing was known"
    assert len(set(second)) < len(second), "drawn from the losses that were reported"
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    assert trained(resumed=True) == whole[6:]
