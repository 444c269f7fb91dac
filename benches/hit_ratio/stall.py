"""Study 4: stall with a store slower than the trainer, beside the least that misses cost."""

from pathlib import Path

from benches.hit_ratio import plots, tables
from benches.hit_ratio.results import Command, Results, Row, Scale

# The store's samples a second, over the trainer's.
RATIOS = ("0.3", "0.4", "0.5")
CACHE = "20%"
BYTES = 110_000
SAMPLES_PER_SECOND = 1000
UNCACHED, STATIC, LOOKAHEAD = "permutations, no cache", "permutations, static", "permutations, lookahead"
# Policy and capacity on permutations.
ON_PERMUTATIONS = {UNCACHED: ("static", "0%"), STATIC: ("static", CACHE), LOOKAHEAD: ("lookahead", CACHE)}
PACED = "lookahead, spaced, pace"
# Policy and plan on PADS. Every one is also run with --draw-ahead.
VARIANTS = {
    "lru": ("lru",),
    "SHADE as published, rep 1": ("app", "--order", "hits_first"),
    "SHADE as published, rep 2": ("app", "--order", "hits_first", "--rep", "2"),
    "app": ("app",),
    "lookahead": ("lookahead",),
    "lookahead, pace": ("lookahead", "--pace"),
    "lookahead, spaced": ("lookahead", "--order", "spaced"),
    PACED: ("lookahead", "--order", "spaced", "--pace"),
    "min": ("min",),
    "min, spaced": ("min", "--order", "spaced"),
}
PRESETS = ("icache", "coordl", "quiver", "deepio", "default", "base", "ilfu")

TEXT = """\
## 4. How long training waits

Samples of 110 KB, 1 ms of compute each, c = {cache}; a simulated store of 2 ms latency and 64 reads at a time whose
bandwidth is ρ times what the trainer computes. Stall is in per cent of compute. The bound is max(0, m/ρ - 1) with the
row's own share of reads m, misses and prefetched records: the store must serve them, whenever it does. What is above it
comes of reads that are bunched, so that the store idles at one time and is waited for at another, and of each epoch's first batches. A row can
be near a bound that is high: then its reads are even, but many. *SHADE as published* is PADS, APP and `hits_first`;
the guards are on, and epoch 0 is a permutation as everywhere here.

![stall and its bound](stall.svg)
"""


def label(variant: str, ratio: str) -> str:
    return f"stall: {variant}, {ratio}"


def ahead(variant: str) -> str:
    """The variant's name with plans drawn an epoch early."""
    return f"{variant}, draw-ahead"


def store(ratio: str) -> tuple[str, ...]:
    """Options for a store with this ratio, and for the sizes."""
    bandwidth = round(float(ratio) * BYTES * SAMPLES_PER_SECOND / 1e6)
    model = f"latency=2ms,bandwidth={bandwidth}MB,depth=64"
    return ("--sizes", f"fixed:{BYTES // 1000}KB", "--store", model, "--compute", "1ms/sample")


def commands(scale: Scale) -> list[Command]:
    """Permutations, every variant without and with --draw-ahead, and the presets."""
    made = []
    for ratio in RATIOS:
        common = scale.words(*store(ratio))
        for name, (policy, cache) in ON_PERMUTATIONS.items():
            words = ("--sampler", "uniform", "--policy", policy, "--cache", cache)
            made.append(Command(label(name, ratio), (*common, *words)))
        for variant, (policy, *plan) in VARIANTS.items():
            words = (*common, "--sampler", "pads", *plan, "--policy", policy, "--cache", CACHE)
            made.append(Command(label(variant, ratio), words))
            made.append(Command(label(ahead(variant), ratio), (*words, "--draw-ahead")))
        words = ("--preset", ",".join(PRESETS), "--cache", CACHE)
        made.append(Command(label("presets", ratio), (*common, *words)))
    return made


def reads(row: Row) -> float:
    """Share of the accesses that cause reads, on time or ahead."""
    return (row["misses"] + row["prefetched"]) / row["accesses"]


def bound(row: Row, ratio: str) -> float:
    """The least stall over compute, if the store serves this row's reads."""
    return max(0.0, reads(row) / float(ratio) - 1)


def above(row: Row, ratio: str) -> float:
    """Stall beyond that, over compute."""
    return row["stall_share"] - bound(row, ratio)


def of_variants(results: Results, ratio: str) -> dict[str, Row]:
    """All rows except the presets', by name."""
    names = [*ON_PERMUTATIONS, *(name for variant in VARIANTS for name in (variant, ahead(variant)))]
    return {name: results.rows(label(name, ratio))[0] for name in names}


def of_presets(results: Results, ratio: str) -> dict[str, Row]:
    return {row["policy"]: row for row in results.rows(label("presets", ratio))}


def lines_of(rows: dict[str, Row], ratio: str) -> list[list[str]]:
    """The columns of `HEAD` for each row."""
    lines = []
    for name, row in rows.items():
        shares = (reads(row), row["stall_share"], row["stall_share_ci95"], bound(row, ratio), above(row, ratio))
        lines.append([name, tables.hits(row), *tables.evidence([row]), *map(tables.percent, shares)])
    return lines


HEAD = ("plan and policy", "hit %", *tables.EVIDENCE, "reads %", "stall %", "±", "bound %", "above it")


def section(results: Results, out: Path) -> list[str]:
    """One table and one panel for each store."""
    _plot(results, out / "stall.svg")
    lines = tables.prose(TEXT.format(cache=CACHE))
    for ratio in RATIOS:
        rows = of_variants(results, ratio)
        uncached = rows[UNCACHED]["stall_share"]
        lines += [f"### ρ = {ratio}: `{' '.join(store(ratio)[2:4])}`", ""]
        lines += tables.table(HEAD, lines_of(rows, ratio))
        expected = 100 / float(ratio) - 100
        lines += [f"Check: without a cache 1/ρ - 1 = {expected:.1f} %, simulated {100 * uncached:.1f} %.", ""]
    return lines


def _plot(results: Results, file: Path) -> None:
    figure, axes = plots.panels([f"ρ = {ratio}" for ratio in RATIOS], columns=3, inch_high=4.2, same_y=True)
    # The first is on top. A variant's two bars touch.
    middles = [-nth for nth in range(len(VARIANTS))]
    for panel, ratio in zip(axes, RATIOS, strict=True):
        rows = of_variants(results, ratio)
        for nth, (name, called) in enumerate((("plans as they come", str), ("draw-ahead", ahead))):
            of_plans = [rows[called(variant)] for variant in VARIANTS]
            places = [middle + 0.2 - 0.4 * nth for middle in middles]
            stalls = [100 * row["stall_share"] for row in of_plans]
            panel.barh(places, stalls, height=0.4, color=plots.COLOURS[nth], label=name)
            bounds = [100 * bound(row, ratio) for row in of_plans]
            panel.plot(bounds, places, color="black", marker="|", linestyle="", label="bound max(0, m/ρ - 1)")
        panel.set(xlabel="stall, % of compute", yticks=middles, yticklabels=list(VARIANTS))
    plots.save(figure, axes, file)
