"""torchdata's StatefulDataLoader over our ImageFolder goes on in mid-epoch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from shade_load import ImageFolder

stateful = pytest.importorskip("torchdata.stateful_dataloader")
v2 = pytest.importorskip("torchvision.transforms.v2")

TENSOR = v2.Compose([v2.PILToTensor(), v2.CenterCrop(32)])


@pytest.mark.parametrize("workers", [0, 2])
def test_the_rest_of_an_epoch_is_the_same(png_dataset: Path, workers: int) -> None:
    def loader() -> Any:
        generator = torch.Generator().manual_seed(5)
        items = ImageFolder(png_dataset, TENSOR)
        return stateful.StatefulDataLoader(items, 16, shuffle=True, num_workers=workers, generator=generator)

    whole = loader()
    batches = iter(whole)
    next(batches)
    state = whole.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    count = 0
    for (images, labels), (our_images, our_labels) in zip(batches, resumed, strict=True):
        assert torch.equal(images, our_images) and torch.equal(labels, our_labels)
        count += len(labels)
    assert count == 90 - 16
