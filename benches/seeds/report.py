"""The report, from the record alone."""

from __future__ import annotations

from typing import Any

from benches.rivals.report import head
from benches.seeds.task import BATCH, DATALOADER, DEFAULTS, IMPORTANCE, PERMUTATIONS, REDIS

Row = dict[str, Any]
MEANING = {
    DATALOADER: "PyTorch's DataLoader and DistributedSampler over torchvision's ImageFolder",
    REDIS: "shade, `Plan(sampler=\"pads\", rep=...)`, caches, and a Redis cluster with a server on each node",
    IMPORTANCE: "the same without Redis",
    PERMUTATIONS: "shade, each sample once an epoch, the same caches",
    DEFAULTS: "shade with all defaults: permutations, and on each node a cache as large as all caches above together",
}


def report(result: dict[str, Any]) -> str:
    """Markdown."""
    rows: list[Row] = result["rows"]
    lines = [
        *head("SHADE's experiment, on one machine", result, "its times are"),
        "",
        f"- Training: {result['samples']:,} images of {result['images']}, {result['nodes']} nodes of {result['ranks']} ranks",
        f"  (network namespaces, DDP over gloo), batch {BATCH} a rank, {result['epochs']} epochs of the demo's network,",
        f"  seed {result['seed']}.",
        f"- Store: one `shade-slow-store` for all nodes, {result['delay_us'] / 1000:g} ms an operation,",
        f"  {result['at_once']} at once, without a page cache.",
        f"- All caches together hold {100 * result['cache']:g} % of the dataset's bytes, and so does Redis.",
        f"  `rep` is {result['rep']:g}.",
        f"- DataLoader: {result['workers']} worker{'s' if result['workers'] != 1 else ''} a rank.",
        "",
        *(f"- *{row['way']}*: {MEANING[row['way']]}." for row in rows),
        "",
        "| way | memory, % of the data: caches + Redis | local hits % | tier hits % | MB from the store "
        "| operations | stall s | seconds | × | D/N % | accuracy % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(_line(row, rows[0], result) for row in rows),
        "",
        "Hits are shares of the samples delivered. Seconds: of all epochs, without the processes' start and",
        "without validation; ×: the first row's over it. Stall: what a rank waited for batches, the ranks'",
        "mean; what it waits for other ranks' gradients is not in it. Operations: what the store was sent, the",
        "start included. D/N: distinct samples of an epoch over the dataset's, the epochs' mean. Accuracy:",
        "after the last epoch.",
        *(["", left_alone] if (left_alone := _left_alone(rows)) else []),
        "",
        "| way | epoch | local hits % | tier hits % | MB from the store | stall s | seconds | D/N % | accuracy % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(_epoch(row["way"], number, epoch, result) for row in rows for number, epoch in enumerate(row["epochs"])),
        "",
        "What this cannot show: the processes share the cores with the store, with Redis and with each other,",
        "so what they compute is no time of a cluster, and Redis is slower than on machines of its own. All",
        "nodes see one mount: the kernel looks a name up once for all of them, which spares the DataLoader",
        "operations. The network is smaller than ResNet-18. One seed: accuracies a few points apart mean",
        "nothing.",
    ]
    return "\n".join(lines) + "\n"


def said(row: Row) -> str:
    """A line about a way."""
    epochs = row["epochs"]
    seconds, stall = (sum(epoch[name] for epoch in epochs) for name in ("seconds", "stall_seconds"))
    operations, accuracy = sum(row["operations"].values()), 100 * epochs[-1]["accuracy"]
    return f"{row['way']}: {seconds:.1f} s, waiting {stall:.1f} s, {operations:,} operations, accuracy {accuracy:.1f} %"


def _left_alone(rows: list[Row]) -> str:
    """Whether Redis was used all the time."""
    tiers = [tier for row in rows for epoch in row["epochs"] for tier in epoch["tier"] if tier]
    if not (resting := sum(tier["left_alone"] for tier in tiers)):
        return ""
    return f"At {resting} of {len(tiers)} epoch ends a daemon left Redis alone, as the store was faster."


def _line(row: Row, first: Row, result: dict[str, Any]) -> str:
    def total(of: Row, name: str) -> float:
        return sum(epoch[name] for epoch in of["epochs"])

    memory = f"{100 * row['memory']['caches']:.0f} + {100 * row['memory']['tier']:.0f}"
    delivered = total(row, "accesses") or result["samples"] * len(row["epochs"])
    cells = [
        row["way"],
        memory,
        f"{100 * total(row, 'hits') / delivered:.1f}",
        f"{100 * total(row, 'tier_hits') / delivered:.1f}",
        f"{total(row, 'bytes_read') / 1e6:.1f}",
        f"{sum(row['operations'].values()):,}",
        f"{total(row, 'stall_seconds'):.1f}",
        f"{total(row, 'seconds'):.1f}",
        f"{total(first, 'seconds') / total(row, 'seconds'):.1f}",
        f"{100 * total(row, 'distinct_share') / len(row['epochs']):.1f}",
        f"{100 * row['epochs'][-1]['accuracy']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _epoch(way: str, number: int, epoch: Row, result: dict[str, Any]) -> str:
    delivered = epoch["accesses"] or result["samples"]
    cells = [
        way,
        str(number),
        f"{100 * epoch['hits'] / delivered:.1f}",
        f"{100 * epoch['tier_hits'] / delivered:.1f}",
        f"{epoch['bytes_read'] / 1e6:.1f}",
        f"{epoch['stall_seconds']:.1f}",
        f"{epoch['seconds']:.1f}",
        f"{100 * epoch['distinct_share']:.1f}",
        f"{100 * epoch['accuracy']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"
