"""Study 1: every policy at every capacity, on permutations, on uniform draws and on PADS."""

from pathlib import Path

from benches.hit_ratio import plots, tables
from benches.hit_ratio.results import Command, Results, Row, Scale

CAPACITIES = ("5%", "10%", "20%", "30%", "50%", "75%")
POLICIES = ("lru", "fifo", "lfu", "arc", "static", "topc", "app", "icache", "quiver", "lookahead")
DRAW_AHEAD = "lookahead --draw-ahead"
# These may deliver other samples than the plan's, so their trace is not that of the others or
# `min`.
SUBSTITUTING = ("icache", "quiver")
PERMUTATIONS, UNIFORM_DRAWS, PADS = "permutations", "uniform draws", "PADS rep 1"
REPLICATED = ("PADS rep 1.5", "PADS rep 2", "PADS rep 3")
TRACES = {
    PERMUTATIONS: ("--sampler", "uniform"),
    UNIFORM_DRAWS: ("--sampler", "pads", "--explore", "1"),
    PADS: ("--sampler", "pads"),
    **{trace: ("--sampler", "pads", "--rep", trace.split()[-1]) for trace in REPLICATED},
}

TEXT = """\
## 1. Hit ratio by capacity

Hit ratio in per cent of all accesses, cold misses included. Compare within a table: another trace is another task.
`min` is Belady's MIN over the whole training; it knows the future and may bypass. `icache` and `quiver` may deliver
another sample than the plan's, so `min` is no bound for them. With rep > 1 the plan depends on what is cached: each
policy has plans of its own, MIN is not defined before the fact (the program refuses it), and a higher hit ratio can
just mean fewer different samples: look at D/N. Where cached samples are more than the guard's 60 % of the draws
anyway, rep does nothing: all tables of PADS have the same row at 75 %.

![hit ratio by capacity](by-capacity.svg)
"""


def commands(scale: Scale) -> list[Command]:
    """One call per trace and capacity, and one for plans drawn an epoch early."""
    made = []
    for trace, words in TRACES.items():
        # Replicated plans depend on what is cached: the program refuses `min` there.
        known = () if trace in REPLICATED else ("min",)
        for cache in CAPACITIES:
            policies = ("--policy", ",".join(POLICIES + known), "--cache", cache)
            made.append(Command(trace, scale.words(*words, *policies)))
        # On permutations it adds no hit.
        if trace != PERMUTATIONS:
            policies = ("--policy", ",".join(("lookahead", *known)), "--cache", ",".join(CAPACITIES))
            made.append(Command(ahead(trace), scale.words(*words, "--draw-ahead", *policies)))
    return made


def ahead(trace: str) -> str:
    """The label of this trace's plans drawn an epoch early."""
    return f"{trace}, draw-ahead"


def section(results: Results, out: Path) -> list[str]:
    """A table and a panel for each trace."""
    _plot(results, out / "by-capacity.svg")
    lines = tables.prose(TEXT)
    for trace in TRACES:
        rows = [row for label in (trace, ahead(trace)) if label in results.by_label for row in results.rows(label)]
        lines += [f"### {trace}: `{' '.join(TRACES[trace])}`", ""]
        lines += tables.table(("policy", *CAPACITIES, *tables.EVIDENCE), _lines(results, trace))
        lines += [tables.widest(rows), ""]
    return lines


def series(results: Results, trace: str) -> dict[str, list[Row]]:
    """Each policy's hit ratio by capacity. MIN, which knows the future, comes last."""
    of_plan = {policy: _by_capacity(results, trace, policy) for policy in POLICIES}
    if ahead(trace) in results.by_label:
        of_plan[DRAW_AHEAD] = _by_capacity(results, ahead(trace), "lookahead")
    if trace not in REPLICATED:
        of_plan["min"] = _by_capacity(results, trace, "min")
    return of_plan


def _by_capacity(results: Results, label: str, policy: str) -> list[Row]:
    return [results.row(label, policy, cache) for cache in CAPACITIES]


def _lines(results: Results, trace: str) -> list[list[str]]:
    of_plan = series(results, trace)
    if trace not in REPLICATED and ahead(trace) in results.by_label:
        of_plan["min --draw-ahead"] = _by_capacity(results, ahead(trace), "min")
    return [[policy, *map(tables.hits, rows), *tables.evidence(rows)] for policy, rows in of_plan.items()]


def _plot(results: Results, file: Path) -> None:
    figure, axes = plots.panels(list(TRACES), columns=3)
    shares = [float(cache.rstrip("%")) for cache in CAPACITIES]
    for panel, trace in zip(axes, TRACES, strict=True):
        for nth, (policy, rows) in enumerate(series(results, trace).items()):
            look = plots.BOUND if policy == "min" else plots.style(nth)
            panel.plot(shares, [100 * row["hit_ratio"] for row in rows], label=policy, **look)
        panel.set(xlabel="capacity, % of the dataset", ylabel="hit ratio, %", xlim=(0, 80), ylim=(0, 100))
    plots.save(figure, axes, file)
