"""shade_load: a data loader for image training, with a cache that knows the epoch's order.

from shade_load import Loader

with Loader("photos.shade", batch_size=256, image_size=224) as loader:
    for epoch in range(10):
        loader.set_epoch(epoch)
        for images, labels in loader:
            loss = criterion(model(images.float() / 255), labels)
"""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._native import (
    DEBUG_BUILD,
    DaemonGone,
    LoaderTimeout,
    RecordError,
    ShadeError,
    __version__,
)
from .batch import Batch, Records
from .buckets import bucket_sizes
from .convert import convert
from .daemon import Daemon
from .dataset import PackedDataset
from .launch import find_daemon
from .loader import Loader
from .normalize import Normalize
from .per_sample.function import PerSample, Sample
from .plan import Plan
from .writer import Writer

if TYPE_CHECKING:
    from .image_folder import ImageFolder

__all__ = [
    "Batch",
    "Daemon",
    "DaemonGone",
    "ImageFolder",
    "Loader",
    "LoaderTimeout",
    "Normalize",
    "PackedDataset",
    "PerSample",
    "Plan",
    "RecordError",
    "Records",
    "Sample",
    "ShadeError",
    "Writer",
    "__version__",
    "bucket_sizes",
    "cmake_prefix_path",
    "convert",
    "find_daemon",
]

cmake_prefix_path = str(Path(__file__).parent / "capi")
"""Folder with headers and library for C and C++, and packages for CMake and pkg-config; only a wheel brings it."""

if DEBUG_BUILD:
    warnings.warn(
        "shade_load was built without optimisation: do not measure with it; build it with maturin --release",
        RuntimeWarning,
        stacklevel=2,
    )


def __getattr__(name: str) -> Any:
    # At the first access: it imports torch and Pillow, and the rest works without them.
    if name == "ImageFolder":
        from .image_folder import ImageFolder

        return globals().setdefault(name, ImageFolder)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
