"""The record as Markdown."""

from __future__ import annotations

from typing import Any

from benches.dlio.cell import OTHERS_CORES_MAX, STORES
from benches.dlio.rows import ROWS, TARGET_PERCENT, VARIANTS
from benches.rivals.report import head, median


def markdown(record: dict[str, Any]) -> str:
    """Tables of utilisation, and what each row took."""
    void = sum(row["busy"] for row in record["rows"])
    lines = head("shade under DLIO, beside DLIO's own loaders", record, "these figures are")
    lines += ["", f"DLIO's `resnet50_h100`, epochs of {record['steps']} steps, {record['written_samples']:,} samples on disk."]
    lines += [f"Target: {TARGET_PERCENT} % utilisation in all runs. **{void} of {len(record['rows'])} runs are void**:"]
    lines += [f"other programs took more than {OTHERS_CORES_MAX} cores meanwhile. They are marked with `?`."]
    for store in STORES:
        for variant in VARIANTS:
            rows = [row for row in record["rows"] if (row["store"], row["variant"]) == (store, variant)]
            if rows:
                lines += ["", f"## {STORES[store]}, {variant}", "", *_utilisation(rows), "", *_costs(rows)]
    return "\n".join(lines) + "\n"


def _utilisation(rows: list[dict[str, Any]]) -> list[str]:
    counts = sorted({row["accelerators"] for row in rows})
    lines = [f"| utilisation, %, each run | {' | '.join(f'{count} H100' for count in counts)} | passes |"]
    lines += ["|---" * (len(counts) + 2) + "|"]
    for name in _names(rows):
        told = {count: [row for row in rows if (row["row"], row["accelerators"]) == (name, count)] for count in counts}
        cells = [", ".join(_shown(run) for run in runs) or "not run" for runs in told.values()]
        lines.append(f"| {ROWS[name].title} | {' | '.join(cells)} | {_most(told)} |")
    return lines


def _most(told: dict[int, list[dict[str, Any]]]) -> str:
    """The most accelerators with which all runs reached the target, up to the first that did not."""
    most = 0
    for count, runs in told.items():
        if not runs or any((run["au"] or 0) < TARGET_PERCENT for run in runs):
            break
        most = count
    return str(most) if most else f"fewer than {min(told)}"


def _shown(run: dict[str, Any]) -> str:
    if run.get("failed"):
        return "failed"
    utilisation = "too slow" if run["au"] is None else f"{run['au']:.1f}"
    return utilisation + ("?" if run["busy"] else "")


def _costs(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| medians | H100 | samples/s | cores of loaders | of the store | ms of CPU for 1,000 | longest waits, s |"]
    lines += ["|---|--:|--:|--:|--:|--:|---|"]
    for name in _names(rows):
        for count in sorted({row["accelerators"] for row in rows if row["row"] == name}):
            runs = [row for row in rows if (row["row"], row["accelerators"]) == (name, count) and row["au"] is not None]
            if not runs:
                continue
            rate, cores, store = (
                median([run[key] for run in runs]) for key in ("dlio_samples_per_second", "loader_cores", "store_cores")
            )
            waits = ", ".join(f"{load['seconds']:.2f} (step {load['step']})" for load in runs[0]["longest_loads"][:3])
            lines.append(
                f"| {ROWS[name].title} | {count} | {rate:,.0f} | {cores:.2f} | {store:.2f} "
                f"| {1e6 * cores / rate:.0f} | {waits} |"
            )
    return lines


def _names(rows: list[dict[str, Any]]) -> list[str]:
    present = {row["row"] for row in rows}
    return [name for name in ROWS if name in present]
