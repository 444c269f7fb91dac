"""The live bench of several nodes runs at its smallest, and its report follows from its record."""

from pathlib import Path
from typing import Any

import live_bench
import pytest

from benches.nodes import live_report
from benches.nodes.live_report import CACHED, DEPTH, HITS, SCALING


def test_live_nodes_are_measured(tmp_path: Path) -> None:
    record, report = live_bench.run("benches.nodes.live", tmp_path, "--quick")
    assert report == live_report.report(record)
    rows = {part: [row for row in record["rows"] if row["part"] == part] for part in live_report.PARTS}
    assert [(row["nodes"], row["ranks"]) for row in rows[HITS]] == [(1, 2), (2, 1)] * 3
    for row in rows[HITS]:
        # Each epoch is as long as the dataset, on however many nodes.
        assert {epoch["accesses"] for epoch in row["epochs"]} == {record["samples"]}
        assert row["epochs"][0]["hits"] == 0 < live_report.hit_ratio(row) < 1
    one, two = rows[SCALING]
    assert [row["nodes"] for row in (one, two)] == [1, 2]
    assert [epoch["steps"] for epoch in one["epochs"]] == [epoch["steps"] for epoch in two["epochs"]]
    for row in rows[CACHED]:
        first, *later = (epoch["reads"] for epoch in row["epochs"])
        assert first > 0 and not any(later), "read again"
        assert row["operations"]["read"] >= first
    for row in rows[DEPTH]:
        # Without a cache: only what joins a read in flight, of an epoch that is filled ahead.
        assert row["epochs"][0]["hits"] == 0
        assert [len(row["epochs"][-1][name]) for name in ("p50_ms", "p99_ms")] == [row["nodes"]] * 2


@pytest.mark.parametrize(
    ("part", "change", "verdict"),
    [
        (HITS, {}, "met"),
        (HITS, {"hits": 470}, "MISSED"),
        (SCALING, {}, "met"),
        (SCALING, {"seconds": 11.0, "computing_seconds": 10.5}, "met"),
        (SCALING, {"seconds": 11.0}, "MISSED"),
        (SCALING, {"cpu_seconds": {"trainers": 4.0, "daemons": 4.0, "store": 4.0}}, "void"),
        (CACHED, {"reads": 0}, "met"),
        (CACHED, {"reads": 1}, "MISSED"),
        (DEPTH, {}, "met"),
        (DEPTH, {"p99_ms": [10.0, 25.0]}, "MISSED"),
        (DEPTH, {"reads": 400}, "MISSED"),
    ],
)
def test_aims_are_compared(part: str, change: dict[str, Any], verdict: str) -> None:
    epoch = {
        "steps": 10, "seconds": 10.0, "computing_seconds": 10.0, "stall_seconds": 0.1, "accesses": 1000, "hits": 490,
        "reads": 500, "coalesced": 0, "p50_ms": [5.0], "p99_ms": [10.0],
        "cpu_seconds": {"trainers": 0.1, "daemons": 0.1, "store": 0.1},
    }  # fmt: skip
    simulated = {"hit_ratio": 0.485, "datasets_per_epoch": 0.5, "loader_efficiency": 0.98}
    of_all = {"part": part, "ranks": 1, "sampler": "pads", "rep": 1.0, "simulated": simulated, "operations": {"read": 1}}
    one = {**of_all, "nodes": 1, "epochs": [epoch] * 2}
    two = {**of_all, "nodes": 2, "epochs": [epoch, {**epoch, **change}]}
    record = {
        "date": "", "machine": {"cores": 2, "cpu": "", "kernel": ""}, "versions": {"git": ""}, "command": "",
        "busy": False, "samples": 1000, "samples_each": 500, "cache": 0.2, "batch": {HITS: 1, SCALING: 1},
        "compute_us": {SCALING: 1}, "store": {"delay_us": 1, "slots_each": 1},
        "deep_store": {"delay_us": 1, "slots": 1}, "simulated_seeds": 1, "rows": [one, two],
    }  # fmt: skip
    found = live_report.report(record).splitlines()
    line = next(line for line in found if line.startswith(("| importance | 2 |", "| 2 |")))
    assert line.split("|")[-2].strip().startswith(verdict)
