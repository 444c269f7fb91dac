"""The report, from the results alone."""

from __future__ import annotations

import re
from typing import Any

Row = dict[str, Any]
# What is aimed at.
HITS_WITHIN = 1.0
EFFICIENCY_AIMS = {8: 95.0, 1000: 90.0}
DEPTH_RATE, DEPTH_P99 = 0.95, 2.0


def report(record: dict[str, Any]) -> str:
    """Markdown."""
    runs = record["runs"]
    lines = [
        "# Several nodes, simulated",
        "",
        f"`{record['version']}`, {record['date']}; scale *{record['scale']}*; means of {record['seeds']} seeds with 95 %",
        "intervals. Command: `python -m benches.nodes`. Each node has an equal part of the cache, and nothing",
        "but its own. Policy `lookahead`; the first epochs do not count.",
    ]
    sections = (_hits, _one_plan, _everything_cached, _lost, _scaling, _depths)
    for section in sections:
        lines += ["", *section(runs)]
    lines += ["", "## Commands", "", *(f"- {name}: `{run['command']}`" for name, run in runs.items())]
    return "\n".join(lines) + "\n"


def _hits(runs: dict[str, Any]) -> list[str]:
    lines = [
        "## Hits of all nodes together",
        "",
        f"Aim: within {HITS_WITHIN:g} point of one node with all of the cache. Nothing takes time but computing.",
        "",
        "| sampler | samples | nodes | strata | cache | hit % | one node | difference | within |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for sampler, samples, nodes, run in _named(runs, r"hits, (\w+), (\d+) samples, (\d+) nodes"):
        if nodes == "1":
            continue
        # A record that is not complete may lack it.
        one = runs.get(f"hits, {sampler}, {samples} samples, 1 nodes", {"rows": []})
        for row, alone in zip(run["rows"], one["rows"], strict=False):
            difference = 100 * (row["hit_ratio"] - alone["hit_ratio"])
            within = "yes" if abs(difference) <= HITS_WITHIN else "**no**"
            cells = [sampler, _count(samples), _count(nodes), _count(run["strata"]), row["cache"], _hit(row), _hit(alone)]
            lines.append(f"| {' | '.join(cells)} | {difference:+.2f} | {within} |")
    return lines


def _one_plan(runs: dict[str, Any]) -> list[str]:
    lines = [
        "## Without strata",
        "",
        "One plan of the whole dataset, whose positions go to the ranks by turns: a node's cache rarely",
        "has what its ranks are given.",
        "",
        "| sampler | nodes | cache | hit % | with strata |",
        "|---|---:|---:|---:|---:|",
    ]
    for sampler, samples, nodes, run in _named(runs, r"one plan, (\w+), (\d+) samples, (\d+) nodes"):
        strata = runs[f"hits, {sampler}, {samples} samples, {nodes} nodes"]
        for row, better in zip(run["rows"], strata["rows"], strict=True):
            lines.append(f"| {sampler} | {nodes} | {row['cache']} | {_hit(row)} | {_hit(better)} |")
    return lines


def _everything_cached(runs: dict[str, Any]) -> list[str]:
    lines = [
        "## Caches that together hold the dataset",
        "",
        "Aim: nothing is read from the second epoch on.",
        "",
        "| sampler | nodes | cache | datasets read in each epoch |",
        "|---|---:|---:|---|",
    ]
    for sampler, nodes, run in _named(runs, r"everything cached, (\w+), (\d+) nodes"):
        for row in run["rows"]:
            read = ", ".join(f"{epoch['datasets']:.4f}" for epoch in row["by_epoch"])
            lines.append(f"| {sampler} | {nodes} | {row['cache']} | {read} |")
    return lines


def _lost(runs: dict[str, Any]) -> list[str]:
    lines = ["## A node is lost", ""]
    for nodes, run in _named(runs, r"one node lost, (\d+) nodes"):
        for row in run["rows"]:
            moved = sum(epoch["strata_moved"] for epoch in row["by_epoch"])
            lines += [
                f"One of {nodes} nodes, which held an equal part of {_count(run['strata'])} strata. {_count(moved)} of them moved:",
                f"{100 * moved / run['strata']:.1f} %. The others keep their caches, and the lost one's part of the cache is gone.",
                "",
                "| epoch | strata moved before it | hit % | datasets read |",
                "|---:|---:|---:|---:|",
            ]
            for epoch in row["by_epoch"]:
                cells = [str(epoch["epoch"]), _count(epoch["strata_moved"]), f"{100 * epoch['hit_ratio']:.2f}", f"{epoch['datasets']:.3f}"]
                lines.append(f"| {' | '.join(cells)} |")
    return lines


def _scaling(runs: dict[str, Any]) -> list[str]:
    aims = " and ".join(f"{aim:g} % with {nodes} nodes" for nodes, aim in EFFICIENCY_AIMS.items())
    lines = [
        "## Weak scaling",
        "",
        f"Aims: {aims}, for *the loader's*. Efficiency is the time of one node alone, with its",
        "part of dataset, cache and store, over the time of all. Sigma is that of the ranks' compute times,",
        "drawn anew in each step. A step ends with its slowest rank: *stragglers* is what that costs, whatever",
        "the loader does. *Without waits* is the efficiency of the same trainers if they never waited for",
        "data, and *the loader's* the efficiency over that. *Stall* is what the loader costs; *a rank's own*",
        "is what a rank alone would wait.",
        "",
        "| sigma | nodes | hit % | stall % | a rank's own | stragglers % | boundary ms | efficiency % | without waits % | the loader's % |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for nodes, sigma, run in _named(runs, r"weak scaling, (\d+) nodes, sigma ([\d.]+)"):
        one = runs[f"weak scaling, 1 nodes, sigma {sigma}"]["rows"][0]
        for row in run["rows"]:
            # From the shares, which older records have, too.
            without = (1 + one["straggle_share"]) / (1 + row["straggle_share"])
            efficiency, loader = _spread(100 * row["efficiency"], row.get("efficiency_ci95"), 1), 100 * row["efficiency"] / without
            cells = [sigma, _count(nodes), _hit(row), _spread(100 * row["stall_share"], row.get("stall_share_ci95"), 2)]
            cells += [f"{100 * row['rank_stall_share']:.2f}", f"{100 * row['straggle_share']:.2f}"]
            lines.append(f"| {' | '.join(cells)} | {1e3 * row['boundary_s']:.1f} | {efficiency} | {100 * without:.1f} | {loader:.1f} |")
    return lines


def _depths(runs: dict[str, Any]) -> list[str]:
    lines = [
        "## Depth controllers on one store",
        "",
        "No cache and hardly any compute: as fast as the store answers. Each node looks for the depth of its",
        f"reads by itself. Aims: {DEPTH_RATE:g} of one's rate, a 99th percentile of the latency of at most {DEPTH_P99:g} x.",
        "",
        "| nodes | MB/s | of one's | depth of each | p99 ms | of one's |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    found = [(nodes, run["rows"][0]) for nodes, run in _named(runs, r"one store, (\d+) depth controllers")]
    first_rate, first_p99 = _rate(found[0][1]), found[0][1]["read_p99_ms"]
    for nodes, row in found:
        rate, p99 = _rate(row), row["read_p99_ms"]
        cells = [nodes, f"{rate / 1e6:,.0f}", f"{rate / first_rate:.3f}", f"{row['depth']:.1f}", f"{p99:.2f}", f"{p99 / first_p99:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _rate(row: Row) -> float:
    return row["bytes_read"] / row["time_s"]


def _named(runs: dict[str, Any], pattern: str) -> list[tuple[Any, ...]]:
    """The parts of each name that has this pattern, with its run."""
    matches = ((re.fullmatch(pattern, name), run) for name, run in runs.items())
    return [(*match.groups(), run) for match, run in matches if match]


def _hit(row: Row) -> str:
    return _spread(100 * row["hit_ratio"], row.get("hit_ratio_ci95"), 2)


def _spread(value: float, half: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" + (f" ± {100 * half:.{digits}f}" if half is not None else "")


def _count(number: str | int) -> str:
    return f"{int(number):,}"
