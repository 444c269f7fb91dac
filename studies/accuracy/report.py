"""REPORT.md and its plots, from the records alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from shade_load.compare.paired import CONFIDENCE, MARGIN, SEEDS_FOR_A_VERDICT

from studies.accuracy import claims, frontier, plots, results
from studies.accuracy.cells import CELLS, RETIRED
from studies.accuracy.recipes import RECIPES
from studies.accuracy.registered import TABLES, Table, opened, tables_of
from studies.accuracy.results import HELD_OUT, Run
from studies.accuracy.settings import CACHE, CACHES, RATES, RECORDED_SEED
from studies.accuracy.statistics import Difference, difference, mean, verdicts

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
        runs = results.read(folder, name)
        # What is not in an open table is not looked at.
        cells = opened(name, runs)
        lines += [f"## {name}", "", *_choices(results.read(results.folder_of(folder, HELD_OUT), name))]
        if not any(cells.values()):
            lines += _prose("No table of it is open: the recipe needs a GPU, or runs are missing.") + _missing(runs, name)
            continue
        plot = folder.parent / f"{name.replace('/', '-')}.svg"
        plots.write(cells, name, plot)
        live = results.read_live(folder, name)
        lines += [*_machines(cells), *_summary(cells, live), *_accuracy(cells, name)]
        lines += [f"![accuracy over bytes, samples and epochs]({plot.name})", ""]
        lines += [*_bytes(cells), *_times(cells), *_live(live), *claims.on_learning(cells, _judged(name, cells), _planned(name))]
        lines += [*_checks(cells), *_missing(runs, name)]
    lines += claims.on_time()
    out.write_text("\n".join(lines).rstrip() + "\n")
    return out


ABOUT = f"""\
# Accuracy per byte read

Made by `python -m studies.accuracy report` from the records in [results/](results/). What a cell, a
seed and a figure is, and why: [DESIGN.md](DESIGN.md), with its changes. What follows from it for users: [which sampler](../../docs/which-sampler.md).

*Accuracy* is the test accuracy after the last step: mean and two-sided {100 * CONFIDENCE:.0f} % interval over seeds.
*Beside permutations* is the mean of the paired differences, with the one-sided {100 * CONFIDENCE:.0f} %
bounds of that cell alone below and above it.

*Verdicts* allow for one another. Each of three questions has a correction of its own: all cells of a table's primary family
that are called better hold at once with {100 * CONFIDENCE:.0f} % (Holm), and so do all that are called worse, and all as good.
A cell is *as good* if it is shown to be above -{MARGIN} points, *worse* if it is shown to be below 0, and *better* if it is
shown to be above 0. Where none is shown it is *not told*: that is no proof of a loss. With fewer than
{SEEDS_FOR_A_VERDICT} seeds there is no verdict. Cells that are not primary have intervals only.

Test accuracies are those of tables that DESIGN.md lists as decided before their runs, with their dates. A table is opened once,
when all its runs are there. *First design* marks rows with records that are older than 2026-11-29: the test set was looked at before some of these cells were chosen, some
ran in builds with uncommitted changes, and their recordings were not kept.
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
    head = ("", "accuracy, %", "bytes, of N", "waits, of compute", "time", "waits, live, seed 0, by size of record")
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
        rows.append((name, accuracy, f"{share:.2f}", waits, f"{time / unit:.2f}", _waited_live(live, cell, policy)))
    about = (
        f"A cache of {CACHE_SHOWN}, and a store that serves {SUMMARY_RATE:g} times what the trainer computes. Accuracies are of "
        "all seeds; those over a page cache are the accuracies of permutations, as order and cache change nothing that is trained. "
        "Bytes, in passes over the data, waits and time are simulated from one recorded run of each cell: the store's bytes "
        "a second are limited. Time 1 is that of permutations that never wait. Live, its operations a second are limited, and the "
        "daemon reads neighbouring records together, the more the smaller they are: see below."
    )
    return ["### In short", "", *_prose(about), *_table(head, rows)]


def _waited_live(live: Cells, cell: str, policy: str) -> str:
    """Waits of compute that the cell had on a mounted store of the same rate; empty if it did not run there."""
    if policy != "lookahead":
        return ""
    runs = [run for of_cell in sorted(live.values(), key=_place_of_live) for run in of_cell]
    at_rate = [run for run in runs if run["cell"] == cell and run["rate"] == SUMMARY_RATE and run["store"]["kind"] == "mounted"]
    return ", ".join(
        f"{100 * run['stall_seconds'] / run['compute_seconds']:.1f} % ({_record_bytes(run) / 1000:.0f} KB)" for run in at_rate
    )


def _accuracy(cells: Cells, recipe: str) -> list[str]:
    lines: list[str] = []
    for table in tables_of(recipe):
        if table.is_open(cells) and any(cells.get(name) for name in table.cells):
            lines += _accuracy_of(table, cells)
    return [
        *lines,
        *_prose(
            f"Bytes are those that the daemon read with a cache of {CACHE_SHOWN}, live, in passes over the data. Cells of a variant, "
            "of several ranks, or with another schedule stand beside the permutations of that."
        ),
    ]


def _accuracy_of(table: Table, cells: Cells) -> list[str]:
    head = ("cell", "seeds", "accuracy, %", "beside permutations, points", "", "samples trained, of N", "bytes, of N", "records")
    baselines = {CELLS[name].baseline for name in table.cells}
    rows = []
    said = _verdicts(table, cells)
    for name, runs in _ordered(cells):
        if name not in table.cells and name not in baselines:
            continue
        beside = _beside_baseline(name, cells)
        rows.append(
            (
                f"`{name}`",
                str(len(runs)),
                str(mean(list(frontier.accuracies(runs).values()))),
                "" if beside is None else str(beside),
                said.get(name, ""),
                f"{_mean(run['samples_trained'] / run['dataset_samples'] for run in runs):.2f}",
                f"{_mean(run['bytes_read'] / run['dataset_bytes'] for run in runs):.2f}",
                "first design" if any("daemon" not in run for run in runs) else "",
            )
        )
    judged = sum(bool(said[name]) and said[name] != "too few seeds" for name in said)
    retired = [f"`{name}`: {why}" for name, why in RETIRED.items() if name in table.cells and cells.get(name)]
    changed = f" Today's daemon would not do the same as in {len(retired)} cells. {'. '.join(retired)}." if retired else ""
    return [
        f"### Accuracy: {table.name}",
        "",
        *_table(head, rows),
        *_prose(f"Decided on {table.date}. Verdicts allow for {judged} comparisons of the {len(table.primary)} primary ones.{changed}"),
    ]


def _verdicts(table: Table, cells: Cells) -> dict[str, str]:
    return verdicts({name: _beside_baseline(name, cells) for name in table.primary})


def _judged(recipe: str, cells: Cells) -> dict[str, str]:
    """The verdicts of all tables of a recipe that are open; of several on a cell the newest one's."""
    tables = [table for table in tables_of(recipe) if table.is_open(cells)]
    return {name: said for table in tables for name, said in _verdicts(table, cells).items()}


def _planned(recipe: str) -> set[str]:
    """Cells of the tables that are not the first design's."""
    return {cell for table in tables_of(recipe) if table is not TABLES[0] for cell in table.cells}


def _beside_baseline(name: str, cells: Cells) -> Difference | None:
    baseline = CELLS[name].baseline
    return None if name == baseline else difference(frontier.accuracies(cells.get(name, ())), frontier.accuracies(cells.get(baseline, ())))


def _choices(cells: Cells) -> list[str]:
    """What was chosen by held-out data, and among what."""
    if not cells:
        return []
    head = ("held-out tenth of the training data", "seeds", "accuracy, %", "highest learning rate")
    rows = [
        (f"`{runs[0]['cell']}`", str(len(runs)), str(mean(list(frontier.accuracies(runs).values()))), f"{runs[0]['options']['learning_rate']:g}")
        for runs in cells.values()
    ]
    return ["### Choices", "", *_table(head, rows)]


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
            "`static`. Empty: no permutation of the study reads so little. Cells that draw an epoch early are not here if their "
            "record is of the first design: who played a recording did not know the next epoch's plan then. What such a cell read "
            "live stands in the table above."
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
    runs = [run for of_cell in sorted(cells.values(), key=_place_of_live) for run in of_cell]
    if not runs:
        return [*title, *_prose("None yet: no cell has run on a store that makes training wait. All waits are simulated.")]
    head = (
        *("cell", "record, KB", "ρ", "epochs", "store", "computed, s", "waits, %", "alone, %", "points"),
        *("together, %", "points", "records per read", "bytes, of N"),
    )
    rows = []
    for run in runs:
        live = 100 * run["stall_seconds"] / run["compute_seconds"]
        # Older records have a store that is faster by the records per read instead.
        together = run.get("simulated_together", run.get("simulated_as_served"))
        rows.append(
            (
                f"`{run['cell']}`",
                f"{_record_bytes(run) / 1000:.1f}",
                "no limit" if run["rate"] is None else f"{run['rate']:g}",
                str(run["epochs"]),
                run["store"]["kind"],
                f"{run['compute_seconds']:.1f}",
                f"{live:.1f}",
                *_beside_live(run, run["simulated"], live),
                *_beside_live(run, together, live),
                "" if run["records_per_read"] is None else f"{run['records_per_read']:.2f}",
                f"{run['bytes_read'] / run['dataset_bytes']:.2f}",
            )
        )
    free = {(run["cell"], _record_bytes(run)): run["ids_sha256"] for run in runs if run["rate"] is None}
    limited = [run for run in runs if run["rate"] is not None]
    equal = sum(run["ids_sha256"] == free.get((run["cell"], _record_bytes(run))) for run in limited)
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
            "*Alone* is simulated with a read for each record, *together* with neighbours in one read, as the daemon reads them; "
            "in records older than 2026-11-29, for a store that is faster by the records per read. The simulated trainer computes as "
            "fast as that of the run itself; in records older than 2026-11-30, as that of the run without a limit."
        ),
        *_table(head, rows),
        *_prose(f"{equal} of {len(limited)} runs with a limit delivered the ids of the run without one."),
    ]


def _place_of_live(runs: Sequence[Run]) -> tuple[float, int]:
    """By size of record, and in the order of the cells."""
    return (_record_bytes(runs[0]), list(CELLS).index(runs[0]["cell"]))


def _record_bytes(run: Run) -> float:
    return run["dataset_bytes"] / run["dataset_samples"]


def _beside_live(run: Run, simulated: Mapping[str, float] | None, live: float) -> tuple[str, str]:
    """A simulated wait in per cent of compute, and how much longer the live one is, in points."""
    if simulated is None:
        return ("", "")
    # Older records are simulated with the trainer of the run without a limit.
    computed = run.get("simulated_samples_per_second") or run["samples_per_second"]
    share = 100 * simulated["stall_s"] * computed / run["samples_trained"]
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


def _missing(cells: Cells, recipe: str) -> list[str]:
    lines = []
    for table in tables_of(recipe):
        few = [f"`{name}` ({len(cells.get(name, ()))})" for name in table.cells if len(cells.get(name, ())) < table.seeds]
        said = f"cells with fewer than {table.seeds} seeds: {', '.join(few)}." if few else f"every cell has {table.seeds} seeds."
        closed = "" if table.is_open(cells) else " It is not open yet."
        lines += _prose(f"Table *{table.name}*, {said}{closed}")
    return ["### Missing", "", *lines]


def _ordered(cells: Cells) -> list[tuple[str, Sequence[Run]]]:
    return [(name, cells[name]) for name in CELLS if cells.get(name)]


def _is_played(name: str, runs: Sequence[Run]) -> bool:
    """Whether a recording of the cell can be played with other caches and stores."""
    cell = CELLS[name]
    # What was played of the first design did not know the plans that such cells draw early.
    played = [run for run in runs if run["seed"] == RECORDED_SEED and ("daemon" in run or not cell.plan.get("draw_ahead"))]
    return bool(played) and cell.is_plain


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
