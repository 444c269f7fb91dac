"""timm's transforms and its collation to bytes, in PyTorch's DataLoader: what its `create_loader`
makes before a batch goes to the GPU. For recipes `create_loader` itself."""

import sys
from pathlib import Path

import timm
import torch
from timm.data import ImageDataset, create_loader, create_transform
from timm.data.loader import fast_collate
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import RandomSolarize

from benches.rivals import recipe_lists
from benches.rivals.kinds import (
    BLUR_P, COLOURS, GREY_P, JITTER, JITTER_P, RATIO, SCALE, SOLARIZE_FROM, SOLARIZE_P, Kind,
)  # fmt: skip
from benches.rivals.systems import ImageEpochs


def augment(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """The recipe by timm's own options. Its blur is Pillow's, and it has no solarize but in policies:
    torchvision's is put in."""
    recipes = {
        "colours": {"color_jitter": COLOURS},
        "contrastive": {
            "color_jitter": JITTER,
            "color_jitter_prob": JITTER_P,
            "grayscale_prob": GREY_P,
            "gaussian_blur_prob": BLUR_P,
        },
    }
    transform = create_transform(
        kind.side,
        is_training=True,
        use_prefetcher=True,
        scale=SCALE,
        ratio=RATIO,
        interpolation="bilinear",
        **recipes[kind.augments],
    )
    if kind.augments == "contrastive":
        # The last one makes an array of the image.
        transform.transforms.insert(-1, RandomSolarize(SOLARIZE_FROM, SOLARIZE_P))
    loader = DataLoader(
        ImageFolder(str(root / "files"), transform),
        size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=True,
        collate_fn=fast_collate,
    )
    while True:
        yield ((images.numpy(), labels.numpy()) for images, labels in loader)


# The recipes that its options give.
_RECIPES = {
    "deit3": {"auto_augment": "3a", "color_jitter": 0.3},
    "convnext": {"auto_augment": recipe_lists.policy(), "re_prob": 0.25, "re_mode": "pixel"},
}


def recipe(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """Workers make bytes. Its prefetcher makes floats of a batch and erases parts, on the CPU."""
    if kind.augments not in _RECIPES:
        sys.exit("timm's create_loader has one view of an image")
    loader = create_loader(
        ImageDataset(str(root / "files")),
        kind.side,
        size,
        is_training=True,
        scale=SCALE,
        ratio=RATIO,
        interpolation="bicubic",
        num_workers=workers,
        device=torch.device("cpu"),
        **_RECIPES[kind.augments],
    )
    # It leaves out a last batch that is not full, which all others deliver.
    loader.loader.batch_sampler.drop_last = False
    while True:
        yield (([images.numpy()], labels.numpy()) for images, labels in loader)


def version(_programs: Path) -> str:
    return f"timm {timm.__version__}"
