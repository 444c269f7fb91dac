"""A plot of decoded batches: a panel for each kind of images and state, a bar for each loader."""

from pathlib import Path
from typing import Any

from benches.hit_ratio import plots
from benches.rivals.decode import BARE, GATHER, LEFT_OUT, OURS, TITLES

COLUMNS = 2
INCH_HIGH = 3.4
# Length of the axis over the longest bar: room for its figure.
ROOM = 1.4
# shade, the others, and the bounds: for loaders that decode whole images, and for those that copy
# pixels.
COLOURS = {"shade": "#1f77b4", "others": "#aaaaaa", "bare decoder": "#dddddd", "gather": "#dddddd"}


def draw(result: dict[str, Any], file: Path) -> None:
    """Writes it as SVG. The mark on a bar goes from the least run to the greatest."""
    by_panel: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        by_panel.setdefault((row["kind"], row["place"]), []).append(row)
    left = {name for name, version in result["versions"].items() if str(version).startswith(LEFT_OUT)}
    titles = [f"{kind}, {place}" for kind, place in by_panel]
    figure, axes = plots.panels(titles, min(COLUMNS, len(titles)), INCH_HIGH)
    for panel, ((kind, place), rows) in zip(axes, by_panel.items(), strict=True):
        # A place without a bar for a loader that is left out.
        places = {row["contender"]: TITLES[row["contender"]] for row in rows}
        for name, title in TITLES.items():
            if {f"{title}, {kind}", f"{title}, {kind}, {place}"} & left:
                places[name] = f"{title}: left out"
        names = list(places)
        for label, colour in COLOURS.items():
            of_colour = [row for row in rows if _label(row["contender"]) == label]
            if of_colour:
                medians = [row["median"] for row in of_colour]
                spread = [
                    [row["median"] - row["min"] for row in of_colour],
                    [row["max"] - row["median"] for row in of_colour],
                ]
                at = [names.index(row["contender"]) for row in of_colour]
                panel.barh(at, medians, xerr=spread, color=colour, label=label, error_kw={"linewidth": 0.8})
        for at, row in enumerate(rows):
            panel.text(row["max"], at, f" {row['median']:,.0f}", va="center", fontsize=7)
        panel.set_yticks(range(len(names)), list(places.values()), fontsize=8)
        panel.invert_yaxis()
        panel.set_xlim(0, ROOM * max(row["max"] for row in rows))
        panel.set_xlabel("samples/s", fontsize=8)
        panel.locator_params(axis="x", nbins=4)
        panel.set_axisbelow(True)
    plots.save(figure, axes, file)


def _label(contender: str) -> str:
    return {OURS: "shade", BARE: "bare decoder", GATHER: "gather"}.get(contender, "others")
