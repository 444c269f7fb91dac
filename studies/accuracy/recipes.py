"""The recipes: dataset, network and schedule, fixed before the first run (DESIGN.md)."""

from __future__ import annotations

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
    # Side of the images, and pixels of padding for their random crop.
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
        # The first records are older than cutout.
        return {name: getattr(self, name) for name in (*numbers, *["cutout"] * (self.cutout > 0))}

    def rate(self, done: float) -> float:
        """The learning rate when this share of the schedule is done: up, then down to 0."""
        factor = done / self.warmup if done < self.warmup else (1 - done) / (1 - self.warmup)
        return self.learning_rate * max(0.0, factor)


_SMALL: dict[str, Any] = {"network": networks.small_cnn, "device": "cpu", "epochs": 10, "batch_size": 128, "learning_rate": 0.1}
_RESNET: dict[str, Any] = {"device": "cuda", "side": 32, "batch_size": 512, "learning_rate": 0.4}

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("cifar10", side=32, **_SMALL),
        Recipe("fashion-mnist", side=28, **_SMALL),
        Recipe("cifar10", networks.resnet18, **_RESNET, epochs=24),
        Recipe("cifar10", networks.resnet18, **_RESNET, epochs=60, cutout=8, suffix="-long"),
    )
}


def runs_here(recipe: Recipe) -> bool:
    """Whether this machine has the recipe's device."""
    return recipe.device == "cpu" or torch.cuda.is_available()
