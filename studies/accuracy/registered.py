"""The tables of the study that were decided before their runs: cells, seeds, and which of them are judged.

A table is opened when all its runs are there, or when somebody writes down that no more will come. The report reads the test
accuracy of a run only if its recipe and cell are in a table that is open. All choices are made by held-out data
(`--split held-out`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from studies.accuracy.cells import CELLS, IMBALANCE, IMBALANCE_20, NOISE, OF_FIRST_DESIGN
from studies.accuracy.results import Run


@dataclass(frozen=True)
class Table:
    """One table. DESIGN.md names it, with its reason."""

    name: str
    # The day on which it was written down.
    date: str
    recipes: tuple[str, ...]
    # In the order of their runs.
    cells: tuple[str, ...]
    # The primary family: each is compared with its baseline, and all verdicts hold at once. The
    # other cells have intervals only.
    primary: tuple[str, ...]
    seeds: int = 10
    # The day on which it was opened although runs are missing: no more will come.
    opened: str = ""

    def is_open(self, runs: Mapping[str, Sequence[object]]) -> bool:
        """Whether its test accuracies may be looked at, of a recipe with these runs by cell."""
        return bool(self.opened) or all(len(runs.get(name, ())) >= self.seeds for name in self.cells)


def _on(variant: object, *names: str) -> tuple[str, ...]:
    return tuple(f"{name}-{variant}" for name in names)


_PHOTOGRAPHS = (
    *("uniform", "echo", "pads-explore-1", "pads", "pads-draw-ahead", "uniform-60", "uniform-50"),
    *_on(NOISE, "uniform", "echo", "pads-explore-1", "pads", "pads-draw-ahead"),
    *_on(IMBALANCE_20, "uniform", "echo", "pads-explore-1", "pads", "pads-draw-ahead"),
)
_JUDGED = ("echo", "pads", "pads-draw-ahead")
_OF_PHOTOGRAPHS = (*_JUDGED, *_on(NOISE, *_JUDGED), *_on(IMBALANCE_20, *_JUDGED))

TABLES = (
    Table(
        "first design",
        "2026-11-23",
        ("cifar10/small-cnn", "fashion-mnist/small-cnn", "cifar10/resnet18", "cifar10/resnet18-long"),
        OF_FIRST_DESIGN,
        tuple(name for name in OF_FIRST_DESIGN if CELLS[name].baseline != name),
        opened="2026-11-27",
    ),
    Table("photographs", "2026-11-29", ("imagenette/small-cnn",), (*_PHOTOGRAPHS, *_on(IMBALANCE, "uniform", *_JUDGED)), _OF_PHOTOGRAPHS),
    Table("photographs, a large network", "2026-11-29", ("imagenette/resnet18-strided",), _PHOTOGRAPHS, _OF_PHOTOGRAPHS, seeds=5),
    Table(
        "a large network",
        "2026-11-29",
        ("cifar10/resnet18",),
        ("echo", "pads-explore-1", "uniform-60", *_on(NOISE, "uniform", "echo", "pads-explore-1", "pads")),
        ("echo", *_on(NOISE, "echo", "pads")),
        seeds=5,
    ),
    Table(
        "methods as published",
        "2026-11-29",
        ("cifar10/small-cnn",),
        (
            *("infobatch-by-loss", "seta", "cis-dropped", "shade-published", "icache-packages"),
            *("uniform-cosine", "rs2-50", "rs2-30", "rs2-10", "pads-50", "pads-40", "pads-30"),
            *_on(IMBALANCE_20, "uniform", *_JUDGED, "balanced"),
        ),
        (
            *("infobatch-by-loss", "seta", "cis-dropped", "shade-published", "icache-packages", "rs2-50", "rs2-30"),
            *_on(IMBALANCE_20, *_JUDGED),
        ),
    ),
)


def tables_of(recipe: str) -> list[Table]:
    """The tables that a recipe has a part in, oldest first."""
    return [table for table in TABLES if recipe in table.recipes]


def opened(recipe: str, runs: Mapping[str, Sequence[Run]]) -> dict[str, Sequence[Run]]:
    """The runs whose test accuracy may be looked at."""

    def is_seen(name: str, run: Run) -> bool:
        tables = [table for table in tables_of(recipe) if name in table.cells]
        if "daemon" in run:
            # What ran after the first design is of the tables that came later, if they have the
            # cell, too.
            tables = [table for table in tables if table is not TABLES[0]] or tables
        return any(table.is_open(runs) for table in tables)

    seen = {name: [run for run in of_cell if is_seen(name, run)] for name, of_cell in runs.items()}
    return {name: of_cell for name, of_cell in seen.items() if of_cell}
