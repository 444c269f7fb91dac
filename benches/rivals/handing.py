"""What it costs the training loop to be handed a batch of 256 decoded images, once they are decoded.

Each run is a fresh process."""

import argparse
import sys
from pathlib import Path
from typing import Any

from benches.rivals import images, report
from benches.rivals.decoded import BATCH
from benches.rivals.handed import BATCHES, SIDE
from benches.rivals.readers import shards
from benches.rivals.turns import take_turns, tell

# What `handed` takes, in the order of the table.
HANDERS = {"shade": "shade Loader", "dataloader": "DataLoader"}
OURS = "shade"
NAMES = list(HANDERS)
SECONDS_MAX = 300
MILLISECONDS = 1_000


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here."""
    names = {name: title for name, title in HANDERS.items() if name in (arguments.only or HANDERS)}
    if OURS in names:
        images.make(arguments.programs, BATCHES * BATCH, scratch).rename(scratch / "files")
        shards.prepare(scratch, arguments.programs)

    def one(name: str) -> dict[str, Any]:
        words = ["-m", "benches.rivals.handed", name, scratch / shards.FOLDER, str(arguments.workers)]
        # Everything that it starts, daemons too, is below whole_tree and has ended when it ends.
        return tell([sys.executable, "-m", "benches.rivals.whole_tree", sys.executable, *words], SECONDS_MAX)

    runs = take_turns(names, arguments.rounds, one)
    rows = [
        _row(HANDERS[name], what, each)
        for name, each in runs.items()
        for what in ("ready", "at full speed")
        if what in each[0]
    ]
    return {name: each[0]["version"] for name, each in runs.items()}, rows


def _row(name: str, what: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [MILLISECONDS / sum(run[what].values()) for run in runs]
    row = report.row(f"{name}, batches {what}", rates, "batches/s", BATCH * SIDE * SIDE * 3)
    row["milliseconds"] = {part: report.median([run[what][part] for run in runs]) for part in runs[0][what]}
    return row


def details(row: dict[str, Any]) -> str:
    """What the table says besides rates."""
    parts = ", ".join(f"{part} {milliseconds:.3f}" for part, milliseconds in row["milliseconds"].items())
    return f"{sum(row['milliseconds'].values()):.3f} ms a batch ({parts})"
