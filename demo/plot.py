"""Draws the runs of a result as one PNG: hit ratio, bytes read, stall and validation accuracy by epoch."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display needed
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

# Title, field of an epoch, factor to the unit shown.
PANELS = (
    ("Hit ratio (%)", "hit_ratio", 100.0),
    ("Read from the store (MB)", "bytes_read", 1e-6),
    ("Stall: waiting for batches (s)", "stall_seconds", 1.0),
    ("Validation accuracy (%)", "val_accuracy", 100.0),
)
# Told apart without colour, too.
STYLES = (("#b5533c", "o", "--"), ("#1f6f8b", "s", "-"), ("#5a7d2a", "^", ":"))


def draw(result: dict[str, Any], path: Path) -> None:
    """Writes `path` from what `report.record` made."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True, layout="constrained")
    for axis, (title, field, factor) in zip(axes.flat, PANELS, strict=True):
        for run, (colour, marker, line) in zip(result["runs"], STYLES, strict=False):
            epochs = run["epochs"]
            axis.plot(
                [epoch["epoch"] for epoch in epochs],
                [epoch[field] * factor for epoch in epochs],
                color=colour, marker=marker, linestyle=line, label=run["setting"]["name"],
            )  # fmt: skip
        axis.set_title(title, loc="left", fontsize=11)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
        if field != "val_accuracy":
            axis.set_ylim(bottom=0)
    for axis in axes[1]:
        axis.set_xlabel("epoch")
    axes[0][0].legend(frameon=False)
    figure.suptitle(_title(result), fontsize=12)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _title(result: dict[str, Any]) -> str:
    course, data = result["course"], result["data"]
    store = f"simulated store: {course['store_delay']} a read" if result["store_simulated"] else "local disk"
    images = f"{data['name']}, {data['train_samples']:,} images"
    return f"{images}, cache {course['cache']}, {store}, {course['depth']} reads in flight"
