"""The recipes: dataset, network and schedule, fixed before the first run (DESIGN.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from studies.accuracy import networks


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. Equal in all cells."""

    # A name of `studies.image_sets`.
    dataset: str
    network: Callable[[int], nn.Module]
    device: str
    # Side of the images, and pixels of padding for their random crop. Photographs are cropped at
    # random and resized instead.
    side: int
    epochs: int
    batch_size: int
    # The highest learning rate.
    learning_rate: float
    padding: int = 4
    weight_decay: float = 5e-4
    momentum: float = 0.9
    # Share of the schedule in which the learning rate rises.
    warmup: float = 0.25
    # Side of the square that is hidden in each image (cutout, DeVries and Taylor, 2017); 0: none.
    cutout: int = 0
    photographs: bool = False
    # Follows the network's name, where it has several recipes.
    suffix: str = ""

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.network_name}{self.suffix}"

    @property
    def network_name(self) -> str:
        return self.network.__name__.replace("_", "-")

    def schedule(self) -> dict[str, float]:
        """The numbers of the recipe, for a run's record."""
        numbers = ("side", "padding", "epochs", "batch_size", "learning_rate", "weight_decay", "momentum", "warmup")
        # The first records are older than cutout and photographs.
        newer = [name for name in ("cutout", "photographs") if getattr(self, name)]
        return {name: getattr(self, name) for name in (*numbers, *newer)}

    def rate(self, done: float, *, cosine: bool = False) -> float:
        """The learning rate when this share of the schedule is done: up, then down to 0."""
        if cosine:
            return self.learning_rate * (1 + math.cos(math.pi * min(1.0, done))) / 2
        factor = done / self.warmup if done < self.warmup else (1 - done) / (1 - self.warmup)
        return self.learning_rate * max(0.0, factor)


_SMALL: dict[str, Any] = {"network": networks.small_cnn, "device": "cpu", "epochs": 10, "batch_size": 128, "learning_rate": 0.1}
_RESNET: dict[str, Any] = {"device": "cuda", "side": 32, "batch_size": 512, "learning_rate": 0.4}
_PHOTOGRAPHS: dict[str, Any] = {"device": "cuda", "side": 128, "photographs": True, "batch_size": 64, "learning_rate": 0.1}

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("cifar10", side=32, **_SMALL),
        Recipe("fashion-mnist", side=28, **_SMALL),
        Recipe("imagenette", side=64, photographs=True, **{**_SMALL, "batch_size": 30, "learning_rate": 0.05}),
        Recipe("imagenette", networks.resnet18_strided, **_PHOTOGRAPHS, epochs=40),
        Recipe("cifar10", networks.resnet18, **_RESNET, epochs=24),
        Recipe("cifar10", networks.resnet18, **_RESNET, epochs=60, cutout=8, suffix="-long"),
    )
}


def runs_here(recipe: Recipe) -> bool:
    """Whether this machine has the recipe's device."""
    return recipe.device == "cpu" or torch.cuda.is_available()
