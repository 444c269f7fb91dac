"""The report of `benches.jobs.sweep`, from its record alone."""

from __future__ import annotations

from typing import Any

from benches.rivals.report import head

DATALOADERS, SEPARATE, ONE, GROUP = "four DataLoaders", "a daemon each", "one daemon", "one daemon, a group"
WAYS = (DATALOADERS, SEPARATE, ONE, GROUP)

# How many trainings, and what each one has of the cache.
WORDS = {2: ("two", "a half"), 4: ("four", "a quarter")}

Row = dict[str, Any]


def report(result: dict[str, Any]) -> str:
    """The report."""
    rows: list[Row] = result["rows"]
    store = result["store"]
    samples = result["samples"] * result["epochs"]
    count, share = WORDS[len(rows[0]["trainings"])]
    lines = [
        *head(f"A sweep of {count} trainings", result, "its times are"),
        "",
        f"- Data: {result['images']}, {result['samples']:,} for training; {result['epochs']} epochs of the demo's network,",
        f"  batches of {result['batch_size']}, random crops.",
        f"- Store: `shade-slow-store`, {store['delay_us'] / 1000:g} ms an operation, {store['at_once']} at once, without a page cache.",
        f"- DataLoaders: {result['workers']} workers each. shade: permutations, cache {100 * result['cache']:g} % of the data;",
        f"  with a daemon each, {share} of it each.",
        f"- A shell loop starts all {count}. None knows of the others; in a group they have its name in common.",
        "",
        "| way | time, s | training, s | × | waiting, s | operations | reads | datasets an epoch |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(_line(row, rows[0], samples) for row in rows),
        "",
        "Time: from the loop's start to the end of its last training, the start of Python included.",
        "Training: from the first one's imports on; ×: the first row's over it. Waiting: of",
        "a training for its batches, the mean. Operations and reads: what the store was sent. Datasets:",
        "records read by all trainings in an epoch, in datasets.",
        "",
        "| learning rate × | seed | " + " | ".join(f"accuracy, {row['way']}" for row in rows) + " |",
        "|---:|---:|" + "---:|" * len(rows),
        *(_accuracies(at, rows) for at in range(len(rows[0]["trainings"]))),
        "",
        "One run of each: accuracies a few points apart mean nothing.",
    ]
    return "\n".join(lines) + "\n"


def said(row: Row) -> str:
    """A line about a way."""
    return f"{row['way']}: {row['seconds']:.1f} s, training {row['trained_seconds']:.1f} s, {sum(row['operations'].values()):,} operations"


def _line(row: Row, first: Row, samples: int) -> str:
    trainings = row["trainings"]
    waiting = sum(training["stall_seconds"] for training in trainings) / len(trainings)
    # A DataLoader reads each file once in an epoch.
    records = [training["records_read"] for training in trainings]
    datasets = sum(samples if count is None else count for count in records) / samples
    return (
        f"| {row['way']} | {row['seconds']:.1f} | {row['trained_seconds']:.1f} "
        f"| {first['trained_seconds'] / row['trained_seconds']:.1f} | {waiting:.1f} "
        f"| {sum(row['operations'].values()):,} | {row['operations']['read']:,} | {datasets:.2f} |"
    )


def _accuracies(at: int, rows: list[Row]) -> str:
    training = rows[0]["trainings"][at]
    found = " | ".join(f"{100 * row['trainings'][at]['accuracy']:.1f} %" for row in rows)
    return f"| {training['rate']:g} | {training['seed']} | {found} |"
