"""Study 2: the paper's "up to 4.5x LRU", beside four baselines."""

import math
from pathlib import Path

from benches.hit_ratio import plots, tables
from benches.hit_ratio.results import Command, Results, Row, Scale

CAPACITIES = ("5%", "10%", "20%")
REPS = ("1", "2", "3", "4")
ORDERS = ("hits_first", "shuffled")
GUARDS = {"guarded": (), "unguarded": ("--hit-cap", "1", "--cover", "0")}
POLICIES = "app,lru,lfu,lookahead"
ON_PERMUTATIONS, ON_UNIFORM_DRAWS = "4.5x: permutations", "4.5x: uniform draws"

TEXT = """\
## 2. The paper's "up to 4.5x LRU"

PADS + APP with {samples:,} samples; epochs from 1 on count, as in the reference simulation. Replication (`rep`) draws
cached samples more often. The baselines of the ratios, by column:

- **LRU on uniform draws** (`--sampler pads --explore 1`): it hits c, less some B/N ({at_5:.1f} % at c = 5 %), as a batch
  never has a sample twice. With this baseline 4.5x comes out.
- **LRU, own training**: LRU in place of APP, same seeds, same rep; its own residents are replicated. With rep 1 and
  `shuffled` that is the same trace. What it has above 1 is what the policy does, without the replication.
- **static** (CoorDL's, on permutations): it hits c.
- **LRU on permutations**: it hits next to nothing, so this ratio says nothing. It is printed because people quote it.

There is no row of LRU on APP's own replicated trace: `simulate` cannot record a plan that depends on residents.
`loader/core/tests/hit_ratios.rs` replays it, with the reference's start: 44.1 to 40.3 % at c = 10 %, rep 3, which is 1.09x.

![ratio by replication](published.svg)
"""


def label(guard: str, order: str, rep: str) -> str:
    return f"4.5x: rep {rep}, {order}, {guard}"


def commands(scale: Scale) -> list[Command]:
    """The baselines, and every combination of replication, order and guards."""
    made = []

    def add(name: str, policies: str, *words: str) -> None:
        common = scale.words(samples=scale.samples_of_the_papers, skip_epochs=1)
        made.append(Command(name, (*common, *words, "--policy", policies, "--cache", ",".join(CAPACITIES))))

    add(ON_PERMUTATIONS, "lru,static,min", "--sampler", "uniform")
    add(ON_UNIFORM_DRAWS, "lru,static,min", "--sampler", "pads", "--explore", "1", "--cover", "0")
    for guard, words in GUARDS.items():
        for order in ORDERS:
            for rep in REPS:
                add(label(guard, order, rep), POLICIES, "--sampler", "pads", "--order", order, "--rep", rep, *words)
    return made


class Baselines:
    """The ratios that the paper's may mean, at one capacity."""

    def __init__(self, results: Results, cache: str) -> None:
        self.permutations = results.row(ON_PERMUTATIONS, "lru", cache)
        self.uniform_draws = results.row(ON_UNIFORM_DRAWS, "lru", cache)
        self.static = results.row(ON_PERMUTATIONS, "static", cache)


def ratio(row: Row, baseline: Row) -> float:
    return row["hit_ratio"] / baseline["hit_ratio"]


def ratio_ci95(row: Row, baseline: Row) -> float:
    """Half of the 95 % interval of that ratio, if both vary independently."""
    parts = (each["hit_ratio_ci95"] / each["hit_ratio"] for each in (row, baseline))
    return ratio(row, baseline) * math.hypot(*parts)


def best(results: Results, guard: str, rep: str) -> tuple[str, Row, float, float]:
    """The greatest ratio of APP over LRU on uniform draws: capacity, row, ratio and interval."""
    found = []
    for cache in CAPACITIES:
        row, baseline = results.row(label(guard, "hits_first", rep), "app", cache), Baselines(results, cache)
        bounds = ratio(row, baseline.uniform_draws), ratio_ci95(row, baseline.uniform_draws)
        found.append((cache, row, *bounds))
    return max(found, key=lambda each: each[2])


def section(results: Results, out: Path) -> list[str]:
    """One table without and one with the guards."""
    _plot(results, out / "published.svg")
    samples = next(run["samples"] for run in results.runs.values() if run["label"] == ON_PERMUTATIONS)
    at_5 = Baselines(results, "5%").uniform_draws["hit_ratio"]
    lines = tables.prose(TEXT.format(samples=samples, at_5=100 * at_5))
    for guard, words in GUARDS.items():
        told = f"`{' '.join(words) or '--hit-cap 0.6 --cover 5'}`"
        lines += [f"### {guard}: {told}", "", *_table(results, guard)]
    return lines


def _table(results: Results, guard: str) -> list[str]:
    head = ("c, rep, order", "APP hit %", "±", *tables.EVIDENCE, "epochs without a miss")
    head += ("x LRU on uniform draws", "±", "x LRU, own training", "x static", "(x LRU on permutations)")
    lines = []
    for cache in CAPACITIES:
        baselines = Baselines(results, cache)
        for rep in REPS:
            for order in ORDERS:
                row = results.row(label(guard, order, rep), "app", cache)
                own = results.row(label(guard, order, rep), "lru", cache)
                line = [f"{cache}, rep {rep}, {order}", tables.hits(row), f"{100 * row['hit_ratio_ci95']:.1f}"]
                line += [*tables.evidence([row]), str(row["absorbing_epochs"])]
                line.append(f"{ratio(row, baselines.uniform_draws):.2f}")
                line.append(f"{ratio_ci95(row, baselines.uniform_draws):.2f}")
                others = (own, baselines.static, baselines.permutations)
                lines.append(line + [f"{ratio(row, each):.2f}" for each in others])
    return tables.table(head, lines)


def _plot(results: Results, file: Path) -> None:
    titles = [f"{guard}, hits_first" for guard in GUARDS]
    figure, axes = plots.panels(titles, columns=2)
    reps = [float(rep) for rep in REPS]
    for panel, guard in zip(axes, GUARDS, strict=True):
        for nth, cache in enumerate(CAPACITIES):
            baseline = Baselines(results, cache).uniform_draws
            rows = [results.row(label(guard, "hits_first", rep), "app", cache) for rep in REPS]
            panel.plot(reps, [ratio(row, baseline) for row in rows], label=f"APP, c = {cache}", **plots.style(nth))
        panel.axhline(4.5, label="the paper's 4.5x", **plots.BOUND)
        panel.set(xlabel="rep", ylabel="hit ratio over LRU's on uniform draws", ylim=(0, 6))
    plots.save(figure, axes, file)
