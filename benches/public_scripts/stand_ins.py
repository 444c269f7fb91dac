"""What scripts find in place of a GPU, a network, or an option that they do not have. The table names each."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class StandIn:
    """A change in the script's process, before it runs."""

    what: str
    put: Callable[[dict[str, Any]], None]


def _no_gpu(order: dict[str, Any]) -> None:
    import torch
    from torch import distributed
    from torch.nn import parallel

    def itself(thing: Any, *_: Any, **__: Any) -> Any:
        return thing

    begin, make = distributed.init_process_group, torch.tensor

    def by_gloo(backend: str, **options: Any) -> None:
        begin("gloo", **options)

    def on_cpu(content: Any, *, device: Any = None, **options: Any) -> Any:
        return make(content, device="cpu" if str(device).startswith("cuda") else device, **options)

    class OnCpu(parallel.DistributedDataParallel):
        def __init__(self, module: Any, device_ids: Any = None, **options: Any) -> None:
            super().__init__(module, **options)

    torch.Tensor.cuda = torch.nn.Module.cuda = itself  # type: ignore[method-assign]
    # A function for each: torch's compiler tells functions apart.
    torch.cuda.synchronize = lambda *_, **__: None
    torch.cuda.set_device = lambda *_, **__: None
    torch.tensor = on_cpu
    distributed.init_process_group = by_gloo
    parallel.DistributedDataParallel = OnCpu  # type: ignore[misc]


def _torch_six(order: dict[str, Any]) -> None:
    module = ModuleType("torch._six")
    module.inf = math.inf  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


def _no_hub(order: dict[str, Any]) -> None:
    import torch

    torch.hub.list = lambda *_, **__: []


def _accuracy(order: dict[str, Any]) -> None:
    import evaluate

    class Accuracy:
        @staticmethod
        def compute(predictions: Any, references: Any) -> dict[str, float]:
            return {"accuracy": float((predictions == references).mean())}

    evaluate.load = lambda *_, **__: Accuracy()


def _made_cifar(order: dict[str, Any]) -> None:
    from torchvision.datasets import CIFAR10, cifar

    CIFAR10._check_integrity = lambda self: True  # type: ignore[method-assign]
    cifar.check_integrity = lambda *_, **__: True


def _lenet(order: dict[str, Any]) -> None:
    import models

    models.SimpleDLA = models.LeNet


def _save_each_epoch(order: dict[str, Any]) -> None:
    import conf

    conf.settings.SAVE_EPOCH = 1


def _no_workers(order: dict[str, Any]) -> None:
    from torch.utils.data import DataLoader

    make = DataLoader.__init__

    def without(loader: Any, *args: Any, **options: Any) -> None:
        make(loader, *args, **options | {"num_workers": 0, "pin_memory": False, "persistent_workers": False})

    DataLoader.__init__ = without  # type: ignore[method-assign]


def _resume_lightning(order: dict[str, Any]) -> None:
    import pytorch_lightning

    fit = pytorch_lightning.Trainer.fit

    def from_checkpoint(trainer: Any, *args: Any, **options: Any) -> None:
        fit(trainer, *args, **options, ckpt_path=order["checkpoint"])

    if order["checkpoint"]:
        pytorch_lightning.Trainer.fit = from_checkpoint


# Transforms that choose a part of the image, turn it, or make floats of it: their result follows
# from what a Loader tells of each crop.
_GEOMETRY = (
    "RandomResizedCropAndInterpolation", "RandomResizedCrop", "RandomCrop", "Resize", "CenterCrop",
    "RandomHorizontalFlip", "ToTensor", "MaybeToTensor", "Normalize",
)  # fmt: skip


def _geometry_only(order: dict[str, Any]) -> None:
    from shade_load import Loader

    make = Loader.__init__

    def plain(steps: Any) -> Any:
        if isinstance(steps, list):
            return [plain(view) for view in steps]
        parts = getattr(steps, "transforms", None)
        if type(steps).__name__ == "Compose" and parts is not None:
            return [part for step in parts for part in plain(step)]
        return [steps] if type(steps).__name__ in _GEOMETRY else []

    def without_operations(loader: Any, *args: Any, **options: Any) -> None:
        make(loader, *args, **options | {"decode": plain(options["decode"])})

    Loader.__init__ = without_operations  # type: ignore[method-assign]


ALL = {
    "no workers": StandIn("DataLoaders without worker processes", _no_workers),
    "no GPU": StandIn("`.cuda()` and torch.cuda's calls do nothing, NCCL is gloo", _no_gpu),
    "torch._six": StandIn("a module `torch._six`, which torch 2 does not have", _torch_six),
    "no hub": StandIn("`torch.hub.list` is empty", _no_hub),
    "accuracy": StandIn('`evaluate.load("accuracy")` without the hub', _accuracy),
    "made CIFAR": StandIn("made pickles in CIFAR's layout, whose checksums nobody checks", _made_cifar),
    "LeNet": StandIn("`net = LeNet()`, one of the repository's models", _lenet),
    "saves each epoch": StandIn("SAVE_EPOCH is 1", _save_each_epoch),
    "ckpt_path": StandIn("`trainer.fit(ckpt_path=...)`: the script cannot resume", _resume_lightning),
    "geometry only": StandIn("operations on pixels are left out of `decode`", _geometry_only),
}
