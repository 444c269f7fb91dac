"""The plots: SVG with text as text, the same bytes for the same results."""

import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Without a display, and with the same ids in the file each time.
pyplot.switch_backend("svg")
pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "shade", "font.size": 9, "lines.linewidth": 1.2})

INCH_WIDE, INCH_HIGH = 3.4, 2.8
COLOURS = (*pyplot.get_cmap("tab10").colors, "#000080", "#556b2f")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1)))
# Black and dashed: bounds and MIN.
BOUND = {"color": "black", "linestyle": "--", "linewidth": 1.0}


def style(nth: int) -> dict[str, object]:
    """Style of the nth line. It has no markers, which would be most of a file's bytes."""
    return {"color": COLOURS[nth % len(COLOURS)], "linestyle": DASHES[nth % len(DASHES)]}


def panels(
    titles: Sequence[str], columns: int, inch_high: float = INCH_HIGH, same_y: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each title."""
    rows = -(-len(titles) // columns)
    size = (INCH_WIDE * columns + 2, inch_high * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, sharey=same_y, layout="constrained")
    axes = list(grid.flat)
    for panel, title in zip(axes, titles, strict=False):
        panel.set_title(title, fontsize=9)
        panel.grid(visible=True, linewidth=0.3)
    for panel in axes[len(titles) :]:
        panel.remove()
    return figure, axes[: len(titles)]


def save(figure: Figure, axes: Sequence[Axes], file: Path) -> None:
    """Writes the figure with one legend of all panels' lines on its right."""
    lines = {label: line for panel in axes for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside right upper", fontsize=8)
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    # Rounds to tenths of a point. matplotlib writes millionths, and spaces at the ends of lines.
    text = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), file.read_text())
    file.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")
