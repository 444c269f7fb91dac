"""Images of many sizes and modes, end to end, compared with torchvision's ImageFolder."""

from pathlib import Path

import pytest
import torch
from shade_load import Daemon, Loader, Plan
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

BATCH = 16
SIDE = 32
# Largest mean difference of an image to torchvision's, in grey levels. Resizing rounds differently,
# and large JPEGs are scaled while they are decoded. A shift by one pixel makes 3 or more.
DIFFERENCE_MAX = {".png": 1.0, ".jpg": 8.0}


@pytest.fixture(params=["png", "jpeg"])
def pair(request: pytest.FixtureRequest) -> tuple[ImageFolder, Path]:
    """An ImageFolder by torchvision, and the dataset packed from it."""
    folder = request.getfixturevalue(f"{request.param}_folder")
    return ImageFolder(folder), request.getfixturevalue(f"{request.param}_dataset")


def test_ids_labels_and_bytes_are_those_of_torchvision(pair: tuple[ImageFolder, Path]) -> None:
    judge, dataset = pair
    seen = []
    with Loader(dataset, BATCH, plan=Plan(sampler="uniform"), daemon=Daemon(job="real-raw")) as loader:
        for batch in loader:
            for row, sample in enumerate(batch.ids.tolist()):
                path, label = judge.samples[sample]
                assert batch.labels[row].item() == label
                assert batch.records.to_bytes(row) == Path(path).read_bytes(), path
                seen.append(sample)
    assert sorted(seen) == list(range(len(judge)))


def test_every_mode_and_size_is_decoded_as_torchvision_does_it(pair: tuple[ImageFolder, Path]) -> None:
    judge, dataset = pair
    transform = v2.Compose([v2.Resize(SIDE), v2.CenterCrop(SIDE), v2.PILToTensor()])
    seen = 0
    with Loader(
        dataset, BATCH, image_size=SIDE, plan=Plan(sampler="uniform"), daemon=Daemon(job="real-decoded")
    ) as loader:
        for batch in loader:
            assert batch.images.dtype == torch.uint8
            assert batch.images.shape == (len(batch), 3, SIDE, SIDE)
            for sample, image in zip(batch.ids.tolist(), batch.images, strict=True):
                path, _ = judge.samples[sample]
                difference = (transform(judge[sample][0]).float() - image.float()).abs().mean().item()
                assert difference < DIFFERENCE_MAX[Path(path).suffix], path
                seen += 1
    assert seen == len(judge)
