"""The plot of a recipe: accuracy over bytes, over samples trained, and by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot
from matplotlib.axes import Axes

from studies.accuracy import frontier
from studies.accuracy.cells import CELLS
from studies.accuracy.results import Run
from studies.accuracy.settings import CACHE
from studies.accuracy.statistics import mean

# Without a display, and with the same ids in the file each time.
pyplot.switch_backend("svg")
pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "shade", "font.size": 9})

# Cells whose curves are drawn: more cannot be told apart.
CURVES = ("uniform", "replacement", "pads", "pads-weighted", "echo", "infobatch", "iis")


def write(cells: Mapping[str, Sequence[Run]], title: str, file: Path) -> None:
    """Writes an SVG: the same bytes for the same records."""
    figure, (over_bytes, over_samples, by_epoch) = pyplot.subplots(1, 3, figsize=(14, 4.5), layout="constrained")
    figure.suptitle(title)
    plain = {name: cells[name] for name, cell in CELLS.items() if cell.is_plain and cells.get(name)}
    for name, runs in plain.items():
        _point(over_samples, name, runs, sum(run["samples_trained"] for run in runs) / len(runs) / 1000)
        read = frontier.bytes_read(runs, CACHE, frontier.own_policy(runs))
        if read is not None:
            _point(over_bytes, name, runs, read / 1e6)
    for axes, label in ((over_bytes, f"MB read, cache {CACHE}"), (over_samples, "thousand samples trained")):
        axes.set_xlabel(label)
        axes.set_ylabel("test accuracy, %")
    _baseline(over_bytes, plain)
    for name in CURVES:
        if name in plain:
            curves = [[row["test_accuracy"] for row in run["curve"]] for run in plain[name]]
            by_epoch.plot([100 * sum(column) / len(column) for column in zip(*curves, strict=True)], label=name)
    by_epoch.set_xlabel("epoch")
    by_epoch.legend(fontsize=8)
    for axes in (over_bytes, over_samples, by_epoch):
        axes.grid(visible=True, linewidth=0.3)
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    file.write_text("\n".join(line.rstrip() for line in file.read_text().splitlines()) + "\n")


def _point(axes: Axes, name: str, runs: Sequence[Run], at: float) -> None:
    accuracy = mean(list(frontier.accuracies(runs).values()))
    error = accuracy.half_width if accuracy.count > 1 else 0.0
    is_baseline = name in frontier.BASELINE
    axes.errorbar(at, accuracy.value, error, fmt="o" if is_baseline else "s", color="black" if is_baseline else None)
    axes.annotate(name, (at, accuracy.value), xytext=(4, 4), textcoords="offset points", fontsize=6)


def _baseline(axes: Axes, cells: Mapping[str, Sequence[Run]]) -> None:
    """The line through permutations with fewer epochs."""
    points = []
    for name in frontier.BASELINE:
        read = frontier.bytes_read(cells.get(name, ()), CACHE, ("lookahead", "static"))
        if read is not None:
            points.append((read / 1e6, mean(list(frontier.accuracies(cells[name]).values())).value))
    axes.plot(*zip(*sorted(points), strict=True), color="black", linestyle="--", linewidth=1) if points else None
