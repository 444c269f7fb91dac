"""Live runs: cells that train on a store that makes them wait, beside the waits that are simulated.

The first run of a cell has no limit. It says how fast the trainer computes beside this daemon and
store, which a rate is of, and `shade-load simulate` plays its recording, as it does for the study.
A trainer that waits does not compute as fast, and a shared machine is not as fast at all times: so
each run is simulated with a trainer as fast as it was itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from studies.accuracy import data, recording, training
from studies.accuracy.cells import CELLS, Cell
from studies.accuracy.live_process import Task
from studies.accuracy.recipes import RECIPES
from studies.accuracy.results import Run
from studies.accuracy.settings import RECORDED_SEED
from studies.slow_store import SlowStore, find

# An operation takes about this long, as in the study's simulations.
LATENCY_US = 1000


class Live:
    """Live runs of a recipe, all over one kind of store."""

    def __init__(self, recipe: str, folder: Path, programs: Path, scratch: Path, record_bytes: int = 0) -> None:
        self.recipe, self.folder, self.scratch, self.record_bytes = recipe, folder, scratch, record_bytes
        self.store = find(programs, LATENCY_US, 1, scratch)

    @property
    def is_mounted(self) -> bool:
        """Whether reads are real ones, of a file system that delays them."""
        return self.store.program is not None

    def runs(self, cell: Cell, rates: Sequence[float], epochs: int | None) -> Iterator[Run]:
        """The cell's record without a limit, and then one for each rate."""
        train_set, _ = data.prepared(RECIPES[self.recipe].dataset, cell.variant, self.folder, record_bytes=self.record_bytes)
        epochs = epochs or training.epochs_of(RECIPES[self.recipe], cell)
        trace = self.scratch / "trace"
        free = self._run(cell, epochs, train_set, None, trace)
        yield free
        computed = free["samples_trained"] / free["compute_seconds"]
        policy = cell.daemon.get("policy", "lookahead")

        for rate in rates:
            store = _of_rate(self.store, rate * computed)
            run = self._run(cell, epochs, train_set, store, None)
            yield run | {"rate": rate, "samples_per_second": round(computed, 1)} | simulated(run, trace, _text(store), policy)

    def _run(self, cell: Cell, epochs: int, train_set: Path, store: SlowStore | None, trace: Path | None) -> Run:
        """One run, in a process of its own. Without a store nothing is delayed."""
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        told, result = self.scratch / "task.json", self.scratch / "result.json"

        def command(train: Path) -> list[Any]:
            Task(
                recipe=self.recipe,
                cell=cell.name,
                seed=RECORDED_SEED,
                epochs=epochs,
                train=str(train),
                store=None if store is None or self.is_mounted else _text(store),
                trace=None if trace is None else str(trace),
                result=str(result),
            ).write(told)
            return [sys.executable, "-m", "studies.accuracy.live_process", told]

        # The run without a limit is over the same mount, which then costs it the same.
        operations = (store or replace(self.store, delay_us=0)).run(train_set, command)
        found = json.loads(result.read_text())
        wall, stall = (sum(row[name] for row in found["curve"]) for name in ("seconds", "stall_seconds"))
        dataset, network = self.recipe.split("/")
        record_bytes = recording.record_bytes(train_set)
        per_read = None
        if operations is not None:
            per_read = round(found["bytes_read"] / record_bytes / max(1, operations["read"]), 3)
        return {
            "dataset": dataset,
            "network": network,
            "cell": cell.name,
            "sampler": cell.plan["sampler"],
            "seed": RECORDED_SEED,
            "rate": None,
            "store": {
                "kind": "mounted" if self.is_mounted else "simulated",
                "because": self.store.simulated_because,
                "delay_us": store.delay_us if store else 0,
                "at_once": store.at_once if store else None,
            },
            "epochs": epochs,
            "dataset_bytes": round(found["dataset_samples"] * record_bytes),
            "record_bytes": round(record_bytes),
            "samples_trained": sum(row["samples_trained"] for row in found["curve"]),
            "wall_seconds": round(wall, 3),
            "compute_seconds": round(wall - stall, 3),
            "stall_seconds": round(stall, 3),
            "operations": operations,
            # The daemon reads neighbours together. None: the store does not count.
            "records_per_read": per_read,
            # What the trainer computed without a limit.
            "samples_per_second": None,
            # What the simulated trainer computes: as much as this run's.
            "simulated_samples_per_second": None,
            # By `shade-load simulate` for this store: a read for each record, and neighbours in
            # one.
            "simulated": None,
            "simulated_together": None,
            **found,
            "date": date,
        }


def simulated(run: Run, trace: Path, store: str, policy: str) -> dict[str, Any]:
    """How long the run waits in a simulation of its store, by a recording of the same ids: with a read for each record, and
    with neighbours in one read."""
    own = run["samples_trained"] / run["compute_seconds"]
    ways = {"simulated": False, "simulated_together": True}
    waits = {name: recording.waits(trace, store, own, policy, together=together) for name, together in ways.items()}
    return {"simulated_samples_per_second": round(own, 1), **waits}


def _of_rate(store: SlowStore, per_second: float) -> SlowStore:
    """The store, if it serves that many operations a second."""
    at_once = max(1, round(per_second * LATENCY_US / 1e6))
    return replace(store, delay_us=round(at_once / per_second * 1e6), at_once=at_once)


def _text(store: SlowStore) -> str:
    """The store as `shade-load` simulates it."""
    return f"latency={store.delay_us}us,depth={store.at_once}"


def said(run: Run) -> str:
    """A line about a run."""
    at = "no limit" if run["rate"] is None else f"ρ = {run['rate']:g}"
    line = f"{run['cell']}, {at}: computed {run['compute_seconds']:.1f} s, waited {run['stall_seconds']:.1f} s"
    return line if run["simulated"] is None else f"{line}, simulated {run['simulated']['stall_s']:.1f} s"
