"""The report of `benches.jobs.live`, from its record alone."""

from __future__ import annotations

from typing import Any

from benches.rivals.report import head

# What four coupled jobs should come to.
JOBS, WAY, OTHER = 4, "one daemon, a group", "a daemon each"
DATASETS_MAX, CPU_MAX, STALL_OFF_MAX = 0.65, 0.35, 0.02
# Equal jobs wait equally long, where they wait: over a store that is too slow for them.
JAIN_MIN = 0.98
SCARCE = "scarce store"
# A job that is stopped, dead or greedy may cost another one so much of its compute.
BESIDE_MAX = 0.1
# The store counts the indexes and the shards' openings, too.
STORE_OFF_MAX = 0.02

Row = dict[str, Any]


def report(result: dict[str, Any]) -> str:
    """The report."""
    rows = result["rows"]
    store = result["store"]
    together = [row for row in rows if row["beside"] is None]
    lines = [
        *head("Several jobs, live", result, "CPU times and stalls are"),
        "",
        f"- Data: {result['samples']:,} samples, JPEGs and PNGs by turns, {result['record_bytes'] / 1000:.1f} KB each.",
        f"- Trainers: a process each, which sleeps {result['compute_us'] / 1000:g} ms a sample; batches of {result['batch_size']}, random crops,",
        f"  draws by importance. Epochs {result['skip_epochs']} to {result['epochs'] - 1} count.",
        f"- Store: `shade-slow-store`, {store['delay_us'] / 1000:g} ms an operation, {store['at_once']} at once, past the page cache.",
        f"- Cache: {100 * result['cache']:g} % of the data; with a daemon each, a part each.",
        f"- Simulated: the same jobs by `shade-load simulate`, {result['simulated_seeds']} seeds. Daemons of their own",
        "  have a part of the store each there.",
        "",
        "## Reads, CPU and stalls",
        "",
        "Datasets and reads: records and read operations in an epoch of all jobs, over the samples. CPU:",
        "of the daemons, for a row that a trainer was given, from the first epoch on. Stall: waiting over",
        "computing, the mean of the jobs.",
        "",
        "| jobs | way | datasets | simulated | reads | hits, % | CPU, µs a row | stall, % | simulated | Jain's index |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(_line(row) for row in together),
        "",
        "## Aims",
        "",
        *aims(rows),
        "",
        "## One job beside another",
        "",
        "| beside it | stall, % of compute |",
        "|---|---:|",
        *(f"| {_beside(row)} | {100 * row['stall_shares'][0]:.1f} |" for row in rows if row["jobs"] == 1),
        "",
        "## Checks",
        "",
        *_checks(rows),
    ]
    return "\n".join(lines) + "\n"


def said(row: Row) -> str:
    """A line about a row."""
    stall = f"stall {100 * _stall(row):.1f} %, faults: {_faults(row) or 'none'}"
    if row["beside"] is not None:
        return f"jobs: {row['jobs']}, {_beside(row)}: {stall}"
    about = f"{row['datasets_per_epoch']:.2f} datasets an epoch, {row['daemon_cpu_us_per_row']:.0f} µs of CPU a row"
    return f"jobs: {row['jobs']}, {row['way']}: {about}, {stall}"


def aims(rows: list[Row]) -> list[str]:
    """What four coupled jobs came to, beside what they should."""
    found = {row["way"]: row for row in rows if row["jobs"] == JOBS and row["beside"] is None}
    if WAY not in found:
        return [f"Not measured: this run has no {JOBS} jobs."]
    row, other = found[WAY], found[OTHER]
    cpu = row["daemon_cpu_us_per_row"] / other["daemon_cpu_us_per_row"]
    off = abs(_stall(row) - row["simulated"]["stall_share"])
    return [
        f"{JOBS} jobs in a group:",
        "",
        "| | aim | measured | |",
        "|---|---:|---:|---|",
        _aim("datasets read an epoch", DATASETS_MAX, row["datasets_per_epoch"], 3),
        _aim(f"CPU of the daemon for a row, over that of {JOBS} daemons", CPU_MAX, cpu, 2),
        _aim("stall, off the simulator's, share of compute", STALL_OFF_MAX, off, 3),
        "",
        *_fairness(rows),
    ]


def _fairness(rows: list[Row]) -> list[str]:
    """Whether equal jobs over a store that is too slow for them wait equally long."""
    lines = []
    for row in rows:
        if row["beside"] == SCARCE:
            stalls = ", ".join(f"{100 * stall:.0f}" for stall in row["stall_shares"])
            index = _jain(row["stall_shares"])
            verdict = "met" if index >= JAIN_MIN else "MISSED"
            lines += [
                f"{row['jobs']} jobs of one daemon that compute in {row['compute_us'] / 1000:g} ms a sample, so that the store is too slow for",
                f"them, wait {stalls} % of their compute. Jain's index: {index:.3f} (aim: ≥ {JAIN_MIN:g}): {verdict}.",
            ]
    return lines


def _line(row: Row) -> str:
    simulated = row["simulated"]
    cells = [
        str(row["jobs"]),
        row["way"],
        f"{row['datasets_per_epoch']:.3f}",
        f"{simulated['datasets_per_epoch']:.3f}",
        f"{row['reads_per_epoch']:.3f}",
        f"{100 * row['hit_ratio']:.1f}",
        f"{row['daemon_cpu_us_per_row']:.0f}",
        f"{100 * _stall(row):.1f}",
        f"{100 * simulated['stall_share']:.1f}",
        "" if row["jobs"] == 1 else f"{_jain(row['stall_shares']):.3f}",
    ]
    return f"| {' | '.join(cells)} |"


def _aim(name: str, most: float, value: float, digits: int) -> str:
    return f"| {name} | ≤ {most:g} | {value:.{digits}f} | {'met' if value <= most else 'MISSED'} |"


def _checks(rows: list[Row]) -> list[str]:
    checked = sum(trainer["ledger"]["rows"] for row in rows for trainer in row["trainers"])
    faults = [f"{row['jobs']} jobs, {row['way']}: {_faults(row)}" for row in rows if _faults(row)]
    off = [(row["operations"]["read"] - row["reads_of_daemons"]) / row["reads_of_daemons"] for row in rows if row["beside"] is None]
    store = "agree with" if max(map(abs, off)) <= STORE_OFF_MAX else "DIFFER from"
    lines = [
        f"- {checked:,} rows in the ledgers: ids as often as planned, labels, pixels and crops checked.",
        *(f"- FAULTS: {text}" for text in faults or []),
        *([] if faults else ["- No fault."]),
        f"- Reads counted at the store {store} the daemons' own: {100 * min(off):+.1f} to {100 * max(off):+.1f} %. The store also counts",
        "  the reads of indexes.",
    ]
    alone = next(row for row in rows if row["jobs"] == 1 and row["beside"] is None)
    for row in rows:
        if row["jobs"] == 1 and row["beside"] is not None:
            more = row["stall_shares"][0] - alone["stall_shares"][0]
            verdict = "met" if more <= BESIDE_MAX else "MISSED"
            lines.append(f"- A {row['beside']} job costs the other one {100 * more:+.1f} % of its compute (aim: ≤ {100 * BESIDE_MAX:g}): {verdict}.")
    return lines


def _faults(row: Row) -> str:
    found = [f"{count} x {name}" for trainer in row["trainers"] for name, count in trainer["ledger"]["faults"].items()]
    return ", ".join(found)


def _beside(row: Row) -> str:
    return "nothing" if row["beside"] is None else f"a {row['beside']} job"


def _stall(row: Row) -> float:
    return sum(row["stall_shares"]) / len(row["stall_shares"])


def _jain(stalls: list[float]) -> float:
    """Jain's index of fairness: 1 if all are equal, also if nobody waits."""
    squares = len(stalls) * sum(stall * stall for stall in stalls)
    return sum(stalls) ** 2 / squares if squares else 1.0
