"""REPORT.md and its plots, from the records alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from studies.accuracy import claims, frontier, plots, results
from studies.accuracy.cells import CELLS
from studies.accuracy.recipes import RECIPES
from studies.accuracy.results import Run
from studies.accuracy.settings import CACHE, CACHES, RATES, RECORDED_SEED, SEEDS
from studies.accuracy.statistics import CONFIDENCE, MARGIN, SEEDS_FOR_A_VERDICT, Difference, difference, mean

WIDTH = 100
CACHE_SHOWN = CACHE.replace("%", " %")
# The rate of the store in the first table.
SUMMARY_RATE = 0.5
# Simulated bytes that are further off than this are named one by one.
FAR_OFF = 0.05
Cells = Mapping[str, Sequence[Run]]


def write(folder: Path) -> Path:
    """Writes REPORT.md and one plot a recipe beside the folder of the records; returns its path."""
    out = folder.parent / "REPORT.md"
    lines = _prose(ABOUT)
    for name in RECIPES:
        cells = results.read(folder, name)
        lines += [f"## {name}", ""]
        if not any(cells.values()):
            lines += _prose("No run yet: the recipe needs a GPU, or nobody has started it.")
            continue
        plot = folder.parent / f"{name.replace('/', '-')}.svg"
        plots.write(cells, name, plot)
        live = results.read_live(folder, name)
        lines += [*_machines(cells), *_summary(cells, live), *_accuracy(cells), f"![accuracy over bytes, samples and epochs]({plot.name})", ""]
        lines += [*_bytes(cells), *_times(cells), *_live(live), *claims.section(cells), *_checks(cells), *_missing(cells)]
    out.write_text("\n".join(lines).rstrip() + "\n")
    return out


ABOUT = f"""\
# Accuracy per byte read

Made by `python -m studies.accuracy report` from the records in [results/](results/). What a cell, a
seed and a figure is, and why: [DESIGN.md](DESIGN.md), written before the first run, with its later changes. What
follows from it for users: [which sampler](../../docs/which-sampler.md).

*Accuracy* is the test accuracy after the last step: mean and two-sided {100 * CONFIDENCE:.0f} % interval over seeds.
*Beside permutations* is the mean of the paired differences, with the one-sided {100 * CONFIDENCE:.0f} %
bounds of that cell alone below and above it.

*Verdicts* are by wider bounds, which hold for all cells of the table at once with {100 * CONFIDENCE:.0f} %
(Bonferroni). A cell is *as good* if the lower one is above -{MARGIN} points, *worse* if the upper
one is below 0, and *better* if the lower one is above 0. Where neither holds it is *not told*: that
is no proof of a loss. With fewer than {SEEDS_FOR_A_VERDICT} seeds there is no verdict. The test set was looked at
before some cells were chosen; DESIGN.md lists these changes with their dates.
"""


def _machines(cells: Cells) -> list[str]:
    runs = [run for of_cell in cells.values() for run in of_cell]
    devices = sorted({f"{run['device']} ({run['machine']})" for run in runs})
    dates = sorted(run["date"][:10] for run in runs)
    versions = sorted({f"torch {run['versions']['torch']}, shade {run['versions']['shade']}" for run in runs})
    dirty = sum(run["versions"]["shade"].endswith("-dirty") for run in runs)
    return _prose(
        f"{len(runs)} runs from {dates[0]} to {dates[-1]}. Device: {'; '.join(devices)}. Versions: {'; '.join(versions)}."
        + (f" {dirty} runs are of builds with changes that were not committed (`-dirty`)." if dirty else "")
    )


# What users compare: a name, a cell and the policy of its cache.
SUMMARY = (
    ("permutations, page cache (LRU), simulated", "uniform", "lru"),
    ("shade, permutations (the default)", "uniform", "lookahead"),
    ("shade, `echo`", "echo", "lookahead"),
    ("shade, `pads`", "pads", "lookahead"),
)


def _summary(cells: Cells, live: Cells) -> list[str]:
    head = ("", "accuracy, %", "bytes, of N", "waits, of compute", "time", "waits, live, seed 0")
    rows = []
    for name, cell, policy in SUMMARY:
        runs = cells.get(cell, ())
        read = frontier.bytes_read(runs, CACHE, (policy,))
        time = frontier.time_taken(runs, SUMMARY_RATE, CACHE, (policy,))
        if read is None or time is None or not cells.get("uniform"):
            continue
        compute = _mean(frontier.compute_time(run) for run in runs)
        unit = _mean(frontier.compute_time(run) for run in cells["uniform"])
        accuracy = str(mean(list(frontier.accuracies(runs).values())))
        share = read / runs[0]["dataset_bytes"]
        waits = f"{100 * (time / compute - 1):.0f} %"
        rows.append((name, accuracy, f"{share:.2f}", waits, f"{time / unit:.2f}", _waited_live(live.get(cell, ()), policy)))
    about = (
        f"A cache of {CACHE_SHOWN}, and a store that serves {SUMMARY_RATE:g} times what the trainer computes. Accuracies are of "
        "all seeds; those over a page cache are the accuracies of permutations, as order and cache change nothing that is trained. "
        "Bytes, in passes over the data, waits and time are simulated from one recorded run of each cell, with a read for each "
        "record. Time 1 is that of permutations that never wait. Live, the daemon reads neighbouring records together: see below."
    )
    return ["### In short", "", *_prose(about), *_table(head, rows)]


def _waited_live(runs: Sequence[Run], policy: str) -> str:
    """Waits of compute that the cell had on a mounted store of the same rate; empty if it did not run there."""
    if policy != "lookahead":
        return ""
    at_rate = [run for run in runs if run["rate"] == SUMMARY_RATE and run["store"]["kind"] == "mounted"]
    return " ".join(f"{100 * run['stall_seconds'] / run['compute_seconds']:.1f} %" for run in at_rate)


def _accuracy(cells: Cells) -> list[str]:
    head = ("cell", "seeds", "accuracy, %", "beside permutations, points", "", "samples trained, of N", "bytes, of N")
    rows = []
    differences = {name: _beside_baseline(name, runs, cells) for name, runs in _ordered(cells)}
    judged = sum(found is not None and found.count >= SEEDS_FOR_A_VERDICT for found in differences.values())
    for name, runs in _ordered(cells):
        beside = differences[name]
        rows.append(
            (
                f"`{name}`",
                str(len(runs)),
                str(mean(list(frontier.accuracies(runs).values()))),
                "" if beside is None else str(beside),
                "" if beside is None else beside.verdict(judged),
                f"{_mean(run['samples_trained'] / run['dataset_samples'] for run in runs):.2f}",
                f"{_mean(run['bytes_read'] / run['dataset_bytes'] for run in runs):.2f}",
            )
        )
    return [
        "### Accuracy",
        "",
        *_table(head, rows),
        *_prose(
            f"Verdicts are corrected for {judged} comparisons. Bytes are those that the daemon read with a cache of {CACHE_SHOWN}, "
            "live, in passes over the data. Cells of a variant, or of several ranks, stand beside the permutations of that. "
            "`infobatch` is a variant: it leaves out by ranks of losses within a batch, and has no annealing."
        ),
    ]


def _beside_baseline(name: str, runs: Sequence[Run], cells: Cells) -> Difference | None:
    baseline = CELLS[name].baseline
    return None if name == baseline else difference(frontier.accuracies(runs), frontier.accuracies(cells.get(baseline, ())))


def _bytes(cells: Cells) -> list[str]:
    head = ("cell", *(f"c = {cache}: passes" for cache in CACHES), *(f"c = {cache}: points" for cache in CACHES))
    rows = []
    for name, runs in _ordered(cells):
        if not _is_played(name, runs):
            continue
        read = [frontier.bytes_read(runs, cache, frontier.own_policy(runs)) for cache in CACHES]
        if None in read:
            continue
        beside = [_at_equal(runs, cells, partial(frontier.bytes_read, cache=cache)) for cache in CACHES]
        whole = runs[0]["dataset_bytes"]
        rows.append((f"`{name}`", *(f"{value / whole:.2f}" for value in read), *beside))
    return [
        "### Accuracy at equal bytes",
        "",
        *_prose(
            "Bytes read in the whole training, in passes over the data, by size of the cache, simulated for a store of "
            f"ρ = {frontier.RATE_OF_BYTES:g}; then the accuracy beside permutations with fewer epochs that read as many bytes "
            "with that cache, in points, interpolated between those that ran. Permutations have the better of `lookahead` and "
            "`static`. Empty: no permutation of the study reads so little. `pads-draw-ahead` is not here: who plays a recording does "
            "not know the next epoch's plan, which is what it reads ahead by. What it read live stands in the table above."
        ),
        *_table(head, rows),
    ]


def _times(cells: Cells) -> list[str]:
    head = ("cell", *(f"ρ = {rate:g}: time" for rate in RATES), *(f"ρ = {rate:g}: points" for rate in RATES))
    rows = []
    unit = _mean(frontier.compute_time(run) for run in cells.get("uniform", ()))
    for name, runs in _ordered(cells):
        if not _is_played(name, runs) or not unit:
            continue
        times = [frontier.time_taken(runs, rate, CACHE, frontier.own_policy(runs)) for rate in RATES]
        if None in times:
            continue
        beside = [_at_equal(runs, cells, partial(_time, rate=rate)) for rate in RATES]
        rows.append((f"`{name}`", *(f"{value / unit:.2f}" for value in times), *beside))
    page_cache = [frontier.time_taken(cells.get("uniform", ()), rate, CACHE, ("lru",)) for rate in RATES]
    if unit and all(page_cache):
        rows.append(("`uniform` over LRU, as a page cache", *(f"{value / unit:.2f}" for value in page_cache), "", "", ""))
    return [
        "### Accuracy at equal time",
        "",
        *_prose(
            f"Time of the whole training with a cache of {CACHE_SHOWN} and a store that serves ρ times what the trainer computes; 1 "
            "is the time of permutations that never wait. Then the accuracy beside permutations with fewer epochs that take "
            "as long, in points. Waits are simulated from the recorded run of each cell. Empty: no permutation of the study "
            "takes so little time."
        ),
        *_table(head, rows),
    ]


def _time(runs: Sequence[Run], policies: Sequence[str], rate: float) -> float | None:
    return frontier.time_taken(runs, rate, CACHE, policies)


def _live(cells: Cells) -> list[str]:
    title = ["### Live, beside simulated", ""]
    runs = [run for name in CELLS for run in cells.get(name, ())]
    if not runs:
        return [*title, *_prose("None yet: no cell has run on a store that makes training wait. All waits are simulated.")]
    head = (
        *("cell", "ρ", "epochs", "store", "computed, s", "waits, %", "simulated, %", "points"),
        *("records per read", "as served, %", "points"),
    )
    rows = []
    for run in runs:
        live = 100 * run["stall_seconds"] / run["compute_seconds"]
        both = [_beside_live(run, row, live) for row in (run["simulated"], run["simulated_as_served"])]
        rows.append(
            (
                f"`{run['cell']}`",
                "no limit" if run["rate"] is None else f"{run['rate']:g}",
                str(run["epochs"]),
                run["store"]["kind"],
                f"{run['compute_seconds']:.1f}",
                f"{live:.1f}",
                *both[0],
                "" if run["records_per_read"] is None else f"{run['records_per_read']:.2f}",
                *both[1],
            )
        )
    ids = {run["cell"]: run["ids_sha256"] for run in runs if run["rate"] is None}
    limited = [run for run in runs if run["rate"] is not None]
    equal = sum(run["ids_sha256"] == ids.get(run["cell"]) for run in limited)
    dates = sorted(run["date"][:10] for run in runs)
    machines = "; ".join(sorted({run["machine"] for run in runs}))
    return [
        *title,
        *_prose(
            f"Seed {RECORDED_SEED}, a cache of {CACHE_SHOWN}, {dates[0]} to {dates[-1]}, {machines}. A store of ρ serves ρ "
            "operations for each sample that the trainer computed without a limit. *Mounted* is a file system that "
            "delays real reads, *simulated* the daemon's simulated store. Waits are in per cent of compute, live of the "
            "run's own; points are live minus simulated."
            "\n\n"
            "`shade-load simulate` reads each record alone, where the daemon reads neighbours together. So *as served* is "
            "simulated for a store that is faster by the records per read. Its difference is that of everything else."
        ),
        *_table(head, rows),
        *_prose(f"{equal} of {len(limited)} runs with a limit delivered the ids of the run without one."),
    ]


def _beside_live(run: Run, simulated: Mapping[str, float] | None, live: float) -> tuple[str, str]:
    """A simulated wait in per cent of compute, and how much longer the live one is, in points."""
    if simulated is None:
        return ("", "")
    share = 100 * simulated["stall_s"] * run["samples_per_second"] / run["samples_trained"]
    return (f"{share:.1f}", f"{live - share:+.1f}")


def _at_equal(runs: Sequence[Run], cells: Cells, cost) -> str:
    if runs[0]["cell"] in frontier.BASELINE:
        return ""
    found = frontier.at_equal_cost(runs, cells, lambda runs, policies: cost(runs, policies=policies))
    return "" if found is None else str(found)


def _checks(cells: Cells) -> list[str]:
    with_lru, plain = ({run["seed"]: run["ids_sha256"] for run in cells.get(name, ())} for name in ("pads-lru", "pads"))
    seeds = with_lru.keys() & plain.keys()
    equal = sum(with_lru[seed] == plain[seed] for seed in seeds)
    lines = f"`pads-lru` delivered the ids of `pads` in {equal} of {len(seeds)} seeds: the cache changes nothing that is trained."
    if not seeds:
        lines = "`pads-lru`, which must deliver the ids of `pads`, has not run yet."
    live_rate = max(RATES)
    off: list[tuple[float, str]] = []
    for name, runs in _ordered(cells):
        for run in runs:
            simulated = frontier.bytes_read([run], CACHE, frontier.own_policy([run]), live_rate)
            if simulated:
                off.append((simulated / run["bytes_read"] - 1, name))
    if off:
        beyond = [f"`{name}` {100 * by:+.1f} %" for by, name in off if abs(by) > FAR_OFF]
        within = max((abs(by) for by, _ in off if abs(by) <= FAR_OFF), default=0.0)
        lines += (
            f" The store of the runs never made them wait. Simulated for ρ = {live_rate:g}, bytes differ from those that the "
            f"daemon read by {100 * within:.1f} % at most in {len(off) - len(beyond)} of {len(off)} recorded runs"
            f"{', and further in: ' + ', '.join(beyond) if beyond else ''}."
        )
    return ["### Checks", "", *_prose(lines)]


def _missing(cells: Cells) -> list[str]:
    missing = [f"`{name}` ({len(cells.get(name, ()))})" for name in CELLS if len(cells.get(name, ())) < SEEDS]
    if not missing:
        return _prose(f"Every cell has {SEEDS} seeds.")
    return ["### Missing", "", *_prose(f"Cells with fewer than {SEEDS} seeds: {', '.join(missing)}.")]


def _ordered(cells: Cells) -> list[tuple[str, Sequence[Run]]]:
    return [(name, cells[name]) for name in CELLS if cells.get(name)]


def _is_played(name: str, runs: Sequence[Run]) -> bool:
    """Whether a recording of the cell can be played with other caches and stores."""
    recorded = any(run["seed"] == RECORDED_SEED for run in runs)
    return recorded and CELLS[name].is_plain and not CELLS[name].plan.get("draw_ahead")


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rule = "|---|" + "---:|" * (len(head) - 1)
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _prose(text: str) -> list[str]:
    lines: list[str] = []
    for block in text.strip().split("\n\n"):
        filled = textwrap.fill(" ".join(block.split()), WIDTH, break_on_hyphens=False, break_long_words=False)
        lines += [*filled.splitlines(), ""]
    return lines
