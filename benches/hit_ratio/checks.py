"""Checks that hold for every correct simulation. The report begins with their violations."""

from benches.hit_ratio import by_capacity, stall
from benches.hit_ratio.results import Results, Row

# In points. Seeds and rounded means differ by less.
POINTS = 0.05
CLOSED_FORM_POINTS = 0.3
# Each mean of counts is rounded.
ROUNDED = 2
# Accesses of batches that are being filled: eight of 64. A sample at the end of one epoch and at
# the start of the next joins the read that is under way, whatever the cache holds.
IN_FLIGHT = 512
# Reads at a time. Those under way when the counts begin are used later.
READS_IN_FLIGHT = 32


def violations(results: Results) -> list[str]:
    """The violations, in words. Empty if there is none."""
    found = []
    for label, rows in results.by_label.items():
        best = {row["cache"]: row for row in rows if row["policy"] == "min"}
        for row in rows:
            name = f"{label}, {row['policy']}, {row['cache']}"
            found += [f"{name}: {what}" for what in (*_of_counts(row), *_of_trace(row, best.get(row["cache"])))]
    for cache in by_capacity.CAPACITIES:
        for policy in ("static", "quiver", "lookahead", "min"):
            row = results.row(by_capacity.PERMUTATIONS, policy, cache)
            if abs(row["hit_ratio"] - row["capacity_share"]) * 100 > CLOSED_FORM_POINTS:
                found.append(f"{by_capacity.PERMUTATIONS}, {policy}, {cache}: its hit ratio is not c")
    return found


def _of_counts(row: Row) -> list[str]:
    wrong = []
    if abs(row["hits"] + row["misses"] + row["prefetched"] + row["exchanged"] - row["accesses"]) > ROUNDED:
        wrong.append("hits, misses, prefetched and exchanged are not all accesses")
    if row["bytes_read"] is not None and not _are_its_reads(row["bytes_read"] / stall.BYTES, row):
        wrong.append("the bytes read are not those of misses and prefetches")
    return wrong


def _are_its_reads(reads: float, row: Row) -> bool:
    """Whether the row reads this many records. The last prefetched ones may be used after its end,
    and its first ones may have been read before its start."""
    needed = row["misses"] + row["prefetched"]
    return -ROUNDED - READS_IN_FLIGHT <= reads - needed <= ROUNDED + row["capacity_share"] * row["accesses"]


def _of_trace(row: Row, best: Row | None) -> list[str]:
    # Presets that deliver other samples than the plan's, or epochs of other lengths, cannot be
    # compared.
    if row["policy"] in (*by_capacity.SUBSTITUTING, "ilfu"):
        return []
    wrong = []
    if best is not None and 100 * (row["hit_ratio"] - best["hit_ratio"]) > POINTS:
        wrong.append("hits more often than MIN on the same trace")
    bound = 1 - row["distinct_share"] + row["capacity_share"] + _joined_share(row)
    if 100 * (row["hit_ratio"] - bound) > POINTS:
        wrong.append("hits more often than 1 - D/N + c")
    return wrong


def _joined_share(row: Row) -> float:
    """The most accesses that join a read of the epoch before, as a share."""
    if row["capacity"] == 0:
        return 0.0
    samples = row["capacity"] / row["capacity_share"]
    return (IN_FLIGHT / samples) ** 2
