"""The records of all runs, one JSON file each: RESULTS/DATASET/NETWORK/CELL/SEED.json, and of live
runs RESULTS/live/DATASET/NETWORK/CELL/RATE.json. Runs that hold data out have their own folder:
RESULTS/held-out. Beside the record of seed 0 lies the recording that its simulated figures were made from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# The folder of the live runs, in that of the records.
LIVE = "live"
# What a network is trained on and tested with: all training data and the test data, or nine tenths
# of the training data and the rest.
TEST, HELD_OUT = "test", "held-out"

Run = dict[str, Any]


class Damaged(Exception):
    """A record cannot be read. Names its file."""


def path_of(results: Path, recipe: str, cell: str, seed: int) -> Path:
    """Where the run's record is, or will be."""
    return results / recipe / cell / f"{seed}.json"


def recording_of(record: Path) -> Path:
    """Where the run's recording is kept, if it was recorded."""
    return record.with_suffix(".trace.xz")


def folder_of(results: Path, split: str) -> Path:
    """The folder of the records of this split."""
    return results if split == TEST else results / HELD_OUT


def live_path_of(results: Path, recipe: str, cell: str, rate: float | None, record_bytes: int = 0) -> Path:
    """Where the record of a live run is, apart from the study's runs. Records that are filled up have folders of their own."""
    folder = f"{cell}-{record_bytes}" if record_bytes else cell
    return results / LIVE / recipe / folder / f"{'no-limit' if rate is None else f'{rate:g}'}.json"


def read_live(results: Path, recipe: str) -> dict[str, list[Run]]:
    """The live runs of a recipe by cell, each cell's by rate; the run without a limit is the first."""
    by_rate = {folder.name: list(_runs(folder)) for folder in _folders(results / LIVE / recipe)}
    return {cell: sorted(runs, key=lambda run: run["rate"] or 0) for cell, runs in by_rate.items()}


def write(run: Run, path: Path) -> None:
    """Writes a record, whole or not at all: one line for each key, and for each row of a list."""
    lines = [f" {json.dumps(key)}: {_value(value)}" for key, value in run.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    os.replace(unfinished, path)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[\n  " + ",\n  ".join(json.dumps(row) for row in value) + "\n ]"
    return json.dumps(value)


def read(results: Path, recipe: str) -> dict[str, list[Run]]:
    """The runs of a recipe by cell, each cell's by seed."""
    return {folder.name: sorted(_runs(folder), key=lambda run: run["seed"]) for folder in _folders(results / recipe)}


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _runs(folder: Path) -> Iterator[Run]:
    for path in folder.glob("*.json"):
        yield load(path)


def load(path: Path) -> Run:
    """One record.

    Raises:
        Damaged: It is not whole.
    """
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise Damaged(f"{path} is no record of a run: {error}. Remove it, and `run` trains it again") from None


def is_of(run: Run, plan: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether the run had these options; a cell may have changed since."""
    had = run["options"]
    return all(had.get(name) == value for name, value in options.items()) and all(
        had["plan"].get(name) == value for name, value in plan.items()
    )
