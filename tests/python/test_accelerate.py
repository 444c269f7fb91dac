"""Accelerate trains from a packed dataset: with a DataLoader that it prepares, and our Loader."""

from collections.abc import Iterator

import packed
import pytest
import torch
from shade_load import Daemon, ImageFolder, Loader, Plan
from torch.utils.data import DataLoader
from torchvision.transforms import v2

accelerate = pytest.importorskip("accelerate")

BATCH = 16
EPOCHS = 2
INPUTS = 3 * packed.SIDE * packed.SIDE


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("accelerate")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture
def accelerator() -> Iterator["accelerate.Accelerator"]:
    yield accelerate.Accelerator(cpu=True)
    # Accelerate keeps one state for the process.
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def tiny() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """One linear layer and what trains it."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(INPUTS, len(packed.CLASSES)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def test_a_data_loader_over_image_folder(dataset: packed.Packed, accelerator: "accelerate.Accelerator") -> None:
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


def test_the_loader_in_an_accelerated_loop(dataset: packed.Packed, accelerator: "accelerate.Accelerator") -> None:
    plan, daemon = Plan(sampler="pads", cover=0), Daemon(job="accelerate")
    with Loader(dataset.path, BATCH, image_size=packed.SIDE, cache="100%", plan=plan, daemon=daemon) as ours:
        # Our Loader finds rank and world size by itself, so `prepare` returns it unchanged.
        model, optimizer, loader = accelerator.prepare(*tiny(), ours)
        assert loader is ours
        before = [value.detach().clone() for value in model.parameters()]
        epochs: list[list[int]] = []
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            epochs.append([])
            for batch in loader:
                images = batch.images.to(accelerator.device).float() / 255
                losses = torch.nn.functional.cross_entropy(model(images), batch.labels, reduction="none")
                loader.report(batch, losses)
                optimizer.zero_grad()
                accelerator.backward(losses.mean())
                optimizer.step()
                epochs[-1] += batch.ids.tolist()
                assert batch.labels.tolist() == [dataset.labels[sample] for sample in batch.ids.tolist()]
    assert sorted(epochs[0]) == list(range(len(dataset))), "a permutation, as nothing was known"
    assert len(set(epochs[1])) < len(epochs[1]), "drawn from the losses that were reported"
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
