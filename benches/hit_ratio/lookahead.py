"""Study 3: range of `lookahead` by order, beside MIN and the bound of one-epoch plans."""

from pathlib import Path

from benches.hit_ratio import plots, tables
from benches.hit_ratio.results import Command, Results, Row, Scale

CAPACITIES = ("5%", "10%", "20%")
LOOKAHEADS = ("0", "0.1", "0.25", "0.5", "1")
ORDERS = ("shuffled", "spaced")
MIN = "min"
DOTTED = {"shuffled": "--", "spaced": ":"}

TEXT = """\
## 3. How far to look ahead

PADS, rep 1; hit ratio in per cent. L is `--lookahead` in epochs; L = 0 is APP's ranking by importance. Without
`--draw-ahead` lookahead ends with the epoch's plan, so with L = 1 it sees half an epoch on average. `min` is of the
same order and way of drawing. The bound 1 - D/N + c holds for every cache: in an epoch it can hit the repeats, and of
the first uses only what it held when the epoch began.

![hit ratio by lookahead](lookahead.svg)
"""


def label(order: str, draw_ahead: bool, lookahead: str) -> str:
    """`lookahead` in epochs, or `MIN`."""
    return f"lookahead {lookahead}, {order}{', draw-ahead' if draw_ahead else ''}"


def commands(scale: Scale) -> list[Command]:
    """Every lookahead, order and way of drawing; MIN of each order and way."""
    made = []
    for order in ORDERS:
        for draw_ahead in (False, True):
            words = ("--sampler", "pads", "--order", order, *(("--draw-ahead",) if draw_ahead else ()))
            words += ("--cache", ",".join(CAPACITIES))
            for lookahead in LOOKAHEADS:
                policy = ("--policy", "lookahead", "--lookahead", lookahead)
                made.append(Command(label(order, draw_ahead, lookahead), scale.words(*words, *policy)))
            made.append(Command(label(order, draw_ahead, MIN), scale.words(*words, "--policy", MIN)))
    return made


def bound(row: Row) -> float:
    """The bound of every cache: it hits an epoch's repeats and the samples that it began with."""
    return 1 - row["distinct_share"] + row["capacity_share"]


def section(results: Results, out: Path) -> list[str]:
    """One table of all, and a panel for each capacity."""
    _plot(results, out / "lookahead.svg")
    head = ("order, plans, c", *(f"L = {each}" for each in LOOKAHEADS), "min", "bound", *tables.EVIDENCE)
    rows, every = [], []
    for order in ORDERS:
        for draw_ahead in (False, True):
            for cache in CAPACITIES:
                of_lookahead = _by_lookahead(results, order, draw_ahead, cache)
                best = results.row(label(order, draw_ahead, MIN), MIN, cache)
                name = f"{order}, {'draw-ahead' if draw_ahead else 'as they come'}, {cache}"
                values = [*map(tables.hits, [*of_lookahead, best]), tables.percent(bound(best))]
                rows.append([name, *values, *tables.evidence(of_lookahead)])
                every += [*of_lookahead, best]
    return [*tables.prose(TEXT), *tables.table(head, rows), tables.widest(every), ""]


def _by_lookahead(results: Results, order: str, draw_ahead: bool, cache: str) -> list[Row]:
    return [results.row(label(order, draw_ahead, each), "lookahead", cache) for each in LOOKAHEADS]


def _plot(results: Results, file: Path) -> None:
    figure, axes = plots.panels([f"c = {cache}" for cache in CAPACITIES], columns=3)
    ahead = [float(each) for each in LOOKAHEADS]
    for panel, cache in zip(axes, CAPACITIES, strict=True):
        for nth, order in enumerate(ORDERS):
            for draw_ahead in (False, True):
                rows = _by_lookahead(results, order, draw_ahead, cache)
                name = f"{order}{', draw-ahead' if draw_ahead else ''}"
                look = plots.style(2 * nth + draw_ahead)
                panel.plot(ahead, [100 * row["hit_ratio"] for row in rows], label=name, **look)
            best = results.row(label(order, False, MIN), MIN, cache)
            panel.axhline(100 * best["hit_ratio"], label=f"min, {order}", **{**plots.BOUND, "linestyle": DOTTED[order]})
        panel.axhline(100 * bound(best), label="bound 1 - D/N + c", color="black", linewidth=0.6)
        panel.set(xlabel="lookahead, epochs", ylabel="hit ratio, %", ylim=(0, 65))
    plots.save(figure, axes, file)
