"""The transforms of all runs: torchvision's, which shade's daemon takes as well."""

from typing import Any

from torchvision.transforms import CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize


def for_training(side: int, has_side: bool) -> list[Any]:
    """What is usual: images of the right size are shifted by an eighth, others cropped and resized."""
    crop = RandomCrop(side, padding=side // 8) if has_side else RandomResizedCrop(side)
    return [crop, RandomHorizontalFlip()]


def for_validation(side: int, has_side: bool) -> list[Any]:
    """The image, or its middle."""
    return [CenterCrop(side)] if has_side else [Resize(side * 8 // 7), CenterCrop(side)]
