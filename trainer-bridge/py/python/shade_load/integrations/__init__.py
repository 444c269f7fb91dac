"""What frameworks need to train from a Loader, a module for each. They import the framework, `shade_load` does not."""

from __future__ import annotations

from ..loader import Loader


def figures(loader: Loader) -> dict[str, float]:
    """A Loader's figures for loggers: of the current epoch, and the seconds waited since it was made."""
    stats = loader.stats()
    epoch = stats["epoch"]
    return {
        "shade/hit_ratio": epoch["hit_ratio"],
        "shade/bytes_read": float(epoch["bytes_read"]),
        "shade/stall_seconds": stats["stall_seconds"],
    }
