"""The report of `benches.nodes.live`, from its record alone."""

from __future__ import annotations

from typing import Any

from benches.rivals.report import head

HITS, SCALING, CACHED, DEPTH = PARTS = ("hits", "scaling", "cached", "depth")
# The first epoch reads everything.
SKIPPED = 1
# What is aimed at: points, the loader's efficiency, one controller's rate and latency.
HITS_WITHIN, EFFICIENCY, DEPTH_RATE, DEPTH_P99 = 1.0, 0.95, 0.95, 2.0
# More cores than this, and two have no room for what else goes on.
CORES_MAX = 1.0

Row = dict[str, Any]


def report(record: dict[str, Any]) -> str:
    """Markdown."""
    cache, batch, compute_us = f"{100 * record['cache']:g} %", record["batch"], record["compute_us"]
    store, deep = record["store"], record["deep_store"]
    most = deep["slots"] / deep["delay_us"] * 1e6
    about = {
        HITS: [
            f"{record['samples']:,} PNGs of 32 x 32 on the local disk, batches of {batch[HITS]}.",
            f"All caches together hold {cache} of them. The one daemon has as many ranks as the others together.",
        ],
        SCALING: [
            f"{record['samples_each']:,} PNGs of 80 x 80 for each node, {cache} of them cached; draws by importance,",
            f"batches of {batch[SCALING]}, {compute_us[SCALING] / 1e3:g} ms a sample. `shade-slow-store` takes",
            f"{store['delay_us'] / 1e3:g} ms for an operation, {store['slots_each']} at once for each node.",
        ],
        CACHED: ["The same data for each node. The caches hold all of it together."],
        DEPTH: [
            "The same data, no cache, no compute: as fast as the store answers. It takes",
            f"{deep['delay_us'] / 1e3:g} ms for an operation, {deep['slots']} at once: {most:,.0f} a second.",
            "Each daemon looks for the depth of its reads by itself.",
        ],
    }
    sections = {HITS: _hits, SCALING: _scaling, CACHED: _cached, DEPTH: _depth}
    lines = [
        *head("Several nodes, live", record, "times are"),
        "",
        "All daemons are on this machine: a node is a daemon with a cache of its own, and a rank a thread",
        f"that sleeps where others compute. All ranks end a step together. Epochs from the {_NTH[SKIPPED]} on count.",
        f"Simulated: the same training by `shade-load simulate`, {record['simulated_seeds']} seeds.",
        "",
    ]
    for part, section in sections.items():
        if rows := [row for row in record["rows"] if row["part"] == part]:
            lines += [f"## {_TITLES[part]}", "", *about[part], "", *section(rows), ""]
    return "\n".join(lines)


_NTH = ("first", "second", "third")
_TITLES = {
    HITS: "Hits",
    SCALING: "Weak scaling",
    CACHED: "Caches that together hold the dataset",
    DEPTH: "Depth controllers on one store",
}


def said(row: Row) -> str:
    """A line about a row."""
    about = f"{row['part']}: {row['nodes']} x {row['ranks']}, {_plan(row)}: {100 * hit_ratio(row):.2f} % hits"
    return f"{about}, {_seconds(row):.1f} s, stall {100 * _stall(row):.1f} %, {_cores(row):.2f} cores"


def hit_ratio(row: Row) -> float:
    """Of all nodes together."""
    return _total(row, "hits") / _total(row, "accesses")


def _hits(rows: list[Row]) -> list[str]:
    lines = [
        f"Aims: within {HITS_WITHIN:g} point of one daemon with all of the cache, and of the simulator.",
        "",
        "| plans | nodes | hits % | one daemon | simulated | off one daemon | off simulated | datasets read an epoch "
        "| one daemon | simulated | |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one, several in zip(rows[::2], rows[1::2], strict=True):
        simulated = several["simulated"]
        hits = [hit_ratio(several), hit_ratio(one), simulated["hit_ratio"]]
        off = [100 * (hits[0] - other) for other in hits[1:]]
        datasets = [_datasets(several), _datasets(one), simulated["datasets_per_epoch"]]
        figures = [*(f"{100 * hit:.2f}" for hit in hits), *(f"{points:+.2f}" for points in off)]
        figures += [f"{count:.3f}" for count in datasets]
        lines.append(_line(_plan(several), several["nodes"], *figures, _verdict(max(map(abs, off)) <= HITS_WITHIN)))
    numbers = range(1, 1 + len(rows[0]["epochs"]))
    lines += ["", "Hits of each epoch, %:", "", _line("plans", "nodes", "ranks of each", *numbers)]
    lines.append("|---|---:|---:|" + "---:|" * len(numbers))
    for row in rows:
        hits = [epoch["hits"] / epoch["accesses"] for epoch in row["epochs"]]
        lines.append(_line(_plan(row), row["nodes"], row["ranks"], *(f"{100 * hit:.2f}" for hit in hits)))
    return lines


def _scaling(rows: list[Row]) -> list[str]:
    lines = [
        f"Aim: {100 * EFFICIENCY:g} % for *the loader's*. Efficiency: steps a second over one node's. A step takes a",
        "batch on each node. *The loader's*: the efficiency over that of the same steps if no rank had waited",
        "for data, as threads also wake late. Stall: what a rank waits for its own batches, of the time. Cores:",
        f"CPU time over time; a row that took more than {CORES_MAX:g} in all is void.",
        "",
        "| nodes | steps/s | efficiency % | the loader's % | simulated | stall % | hits % | cores: trainers | daemons "
        "| store | |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    first = rows[0]
    for row in rows:
        loaders, simulated = _computing(row) / _computing(first), row["simulated"]["loader_efficiency"]
        shares = [_steps(row) / _steps(first), loaders, simulated, _stall(row), hit_ratio(row)]
        figures = [f"{_steps(row):.3f}", *(f"{100 * share:.1f}" for share in shares)]
        figures += [f"{_cores(row, name):.2f}" for name in ("trainers", "daemons", "store")]
        verdict = "" if row is first else _verdict(loaders >= EFFICIENCY)
        if _cores(row) > CORES_MAX:
            verdict = "void: too busy"
        lines.append(_line(row["nodes"], *figures, verdict))
    return lines


def _cached(rows: list[Row]) -> list[str]:
    lines = [
        "Aim: nothing is read from the second epoch on. The daemons count their reads by epoch. The store counts all,",
        "with those of the index by each daemon and rank, which are the rest: no more can be of later epochs.",
        "",
        "| plans | nodes | daemons' reads in each epoch | reads at the store | not the daemons' | hits % | |",
        "|---|---:|---|---:|---:|---:|---|",
    ]
    for row in rows:
        reads, at_store = [epoch["reads"] for epoch in row["epochs"]], row["operations"]["read"]
        of_epochs = ", ".join(f"{count:,}" for count in reads)
        figures = [of_epochs, f"{at_store:,}", f"{at_store - sum(reads):,}", f"{100 * hit_ratio(row):.2f}"]
        lines.append(_line(_plan(row), row["nodes"], *figures, _verdict(not any(reads[SKIPPED:]))))
    return lines


def _depth(rows: list[Row]) -> list[str]:
    lines = [
        f"Aims: {DEPTH_RATE:g} of one controller's rate, a 99th percentile of latencies of at most {DEPTH_P99:g} x.",
        "Latencies are those of the last reads, on the node where they are longest.",
        "",
        "| nodes | records/s | of one's | reads/s | p50 ms | p99 ms | of one's | cores | |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    first = rows[0]
    for row in rows:
        rate, p99 = _rate(row) / _rate(first), _latency(row, "p99_ms") / _latency(first, "p99_ms")
        latencies = [f"{_latency(row, name):.1f}" for name in ("p50_ms", "p99_ms")]
        figures = [f"{_rate(row):,.0f}", f"{rate:.3f}", f"{_total(row, 'reads') / _seconds(row):,.0f}", *latencies]
        verdict = "" if row is first else _verdict(rate >= DEPTH_RATE and p99 <= DEPTH_P99)
        lines.append(_line(row["nodes"], *figures, f"{p99:.2f}", f"{_cores(row):.2f}", verdict))
    return lines


def _counted(row: Row) -> list[Row]:
    epochs: list[Row] = row["epochs"][SKIPPED:]
    return epochs


def _total(row: Row, name: str) -> float:
    return sum(epoch[name] for epoch in _counted(row))


def _seconds(row: Row) -> float:
    return _total(row, "seconds")


def _steps(row: Row) -> float:
    """A second."""
    return _total(row, "steps") / _seconds(row)


def _computing(row: Row) -> float:
    """Share of the time that the steps would take without waits for data."""
    return _total(row, "computing_seconds") / _seconds(row)


def _stall(row: Row) -> float:
    return _total(row, "stall_seconds") / _seconds(row)


def _cores(row: Row, *names: str) -> float:
    """CPU time over time, of these or of all."""
    used = [epoch["cpu_seconds"] for epoch in _counted(row)]
    return sum(value for epoch in used for name, value in epoch.items() if not names or name in names) / _seconds(row)


def _rate(row: Row) -> float:
    """Records a second."""
    return (_total(row, "reads") + _total(row, "coalesced")) / _seconds(row)


def _datasets(row: Row) -> float:
    """Records read over the samples, the epochs' mean."""
    return (_total(row, "reads") + _total(row, "coalesced")) / _total(row, "accesses")


def _latency(row: Row, name: str) -> float:
    return max(row["epochs"][-1][name])


def _plan(row: Row) -> str:
    if row["sampler"] == "uniform":
        return "permutations"
    return "importance" + (f", rep {row['rep']:g}" if row["rep"] > 1 else "")


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
