"""The time that the training loop spends to take a batch of 256 decoded images, once they are
decoded.

Each run is a fresh process."""

import argparse
from pathlib import Path
from typing import Any

from benches.rivals import made_images, report
from benches.rivals.hand_over_process import BATCHES, SIDE
from benches.rivals.kinds import BATCH
from benches.rivals.rounds import interleave, module_command, run_json, with_cpu_time
from benches.rivals.systems import shade_pack

TITLES = {"shade": "shade Loader", "dataloader": "DataLoader"}
OURS = "shade"
NAMES = list(TITLES)
SECONDS_MAX = 300
MILLISECONDS = 1_000


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here."""
    names = {name: title for name, title in TITLES.items() if name in (arguments.only or TITLES)}
    if OURS in names:
        made_images.make_jpegs(arguments.programs, BATCHES * BATCH, scratch).rename(scratch / "files")
        shade_pack.prepare_shards(scratch, arguments.programs)

    def one(name: str) -> dict[str, Any]:
        words = [name, scratch / shade_pack.SHARDS, str(arguments.workers)]
        return run_json(with_cpu_time(module_command("hand_over_process", *words)), SECONDS_MAX)

    runs = interleave(names, arguments.rounds, one)
    rows = [
        _row(TITLES[name], what, each)
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
