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
from studies.accuracy.statistics import CONFIDENCE, MARGIN, difference, mean

WIDTH = 100
CACHE_SHOWN = CACHE.replace("%", " %")
# The rate of the store in the first table.
SUMMARY_RATE = 0.5
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
        lines += [*_machines(cells), *_summary(cells), *_accuracy(cells), f"![accuracy over bytes, samples and epochs]({plot.name})", ""]
        lines += [*_bytes(cells), *_times(cells), *_live(results.read_live(folder, name)), *claims.section(cells), *_checks(cells), *_missing(cells)]
    out.write_text("\n".join(lines).rstrip() + "\n")
    return out


ABOUT = f"""\
# Accuracy per byte read

Made by `python -m studies.accuracy report` from the records in [results/](results/). What a cell, a
seed and a figure is, and why: [DESIGN.md](DESIGN.md), which was written before the first run. What
follows from it for users: [which sampler](../../docs/which-sampler.md).

*Accuracy* is the test accuracy after the last step: mean and two-sided {100 * CONFIDENCE:.0f} % interval over seeds.
*Beside permutations* is the mean of the paired differences, with the one-sided {100 * CONFIDENCE:.0f} %
bounds below and above it. A cell is *as good* if the lower bound is above -{MARGIN} points,
and *worse* if the upper bound is below 0; both can hold. Bounds are not corrected for the number of
cells.
"""


def _machines(cells: Cells) -> list[str]:
    runs = [run for of_cell in cells.values() for run in of_cell]
    devices = sorted({f"{run['device']} ({run['machine']})" for run in runs})
    dates = sorted(run["date"][:10] for run in runs)
    versions = sorted({f"torch {run['versions']['torch']}, shade {run['versions']['shade']}" for run in runs})
    return _prose(
        f"{len(runs)} runs from {dates[0]} to {dates[-1]}. Device: {'; '.join(devices)}. Versions: {'; '.join(versions)}."
    )


# What users compare: a name, a cell and the policy of its cache.
SUMMARY = (
    ("permutations, page cache (LRU), simulated", "uniform", "lru"),
    ("shade, permutations (the default)", "uniform", "lookahead"),
    ("shade, `echo`", "echo", "lookahead"),
    ("shade, `pads`", "pads", "lookahead"),
)


def _summary(cells: Cells) -> list[str]:
    head = ("", "accuracy, %", "bytes, of N", "waits, of compute", "time")
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
        rows.append((name, accuracy, f"{share:.2f}", f"{100 * (time / compute - 1):.0f} %", f"{time / unit:.2f}"))
    about = (
        f"A cache of {CACHE_SHOWN}, and a store that serves {SUMMARY_RATE:g} times what the trainer computes. Accuracies are of "
        "all seeds; bytes, in passes over the data, and waits are simulated from one recorded run of each cell. Time 1 is that "
        "of permutations that never wait."
    )
    return ["### In short", "", *_prose(about), *_table(head, rows)]


def _accuracy(cells: Cells) -> list[str]:
    head = ("cell", "seeds", "accuracy, %", "beside permutations, points", "", "samples trained, of N", "bytes, of N")
    rows = []
    for name, runs in _ordered(cells):
        baseline = cells.get(CELLS[name].baseline, ())
        beside = None if name == CELLS[name].baseline else difference(frontier.accuracies(runs), frontier.accuracies(baseline))
        rows.append(
            (
                f"`{name}`",
                str(len(runs)),
                str(mean(list(frontier.accuracies(runs).values()))),
                "" if beside is None else str(beside),
                "" if beside is None or beside.count < 2 else beside.verdict,
                f"{_mean(run['samples_trained'] / run['dataset_samples'] for run in runs):.2f}",
                f"{_mean(run['bytes_read'] / run['dataset_bytes'] for run in runs):.2f}",
            )
        )
    return [
        "### Accuracy",
        "",
        *_table(head, rows),
        *_prose(
            f"Bytes are those that the daemon read with a cache of {CACHE_SHOWN}, live, in passes over the data. Cells of a variant, "
            "or of several ranks, stand beside the permutations of that."
        ),
    ]


def _bytes(cells: Cells) -> list[str]:
    head = ("cell", *(f"c = {cache}: passes" for cache in CACHES), *(f"c = {cache}: points" for cache in CACHES))
    rows = []
    for name, runs in _ordered(cells):
        if not _is_recorded(runs) or not CELLS[name].is_plain:
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
            "`static`. Empty: no permutation of the study reads so little."
        ),
        *_table(head, rows),
    ]


def _times(cells: Cells) -> list[str]:
    head = ("cell", *(f"ρ = {rate:g}: time" for rate in RATES), *(f"ρ = {rate:g}: points" for rate in RATES))
    rows = []
    unit = _mean(frontier.compute_time(run) for run in cells.get("uniform", ()))
    for name, runs in _ordered(cells):
        if not _is_recorded(runs) or not CELLS[name].is_plain or not unit:
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
    off = []
    for runs in cells.values():
        for run in runs:
            simulated = frontier.bytes_read([run], CACHE, frontier.own_policy([run]), live_rate)
            if simulated:
                off.append(abs(simulated / run["bytes_read"] - 1))
    if off:
        lines += (
            f" The store of the runs never made them wait. Simulated for ρ = {live_rate:g}, bytes differ from those that the "
            f"daemon read by {100 * max(off):.1f} % at most, over {len(off)} recorded runs."
        )
    return ["### Checks", "", *_prose(lines)]


def _missing(cells: Cells) -> list[str]:
    missing = [f"`{name}` ({len(cells.get(name, ()))})" for name in CELLS if len(cells.get(name, ())) < SEEDS]
    if not missing:
        return _prose(f"Every cell has {SEEDS} seeds.")
    return ["### Missing", "", *_prose(f"Cells with fewer than {SEEDS} seeds: {', '.join(missing)}.")]


def _ordered(cells: Cells) -> list[tuple[str, Sequence[Run]]]:
    return [(name, cells[name]) for name in CELLS if cells.get(name)]


def _is_recorded(runs: Sequence[Run]) -> bool:
    return any(run["seed"] == RECORDED_SEED for run in runs)


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
