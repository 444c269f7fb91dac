"""The cells of the study: ways of choosing samples, on variants of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    """What is changed in the training data."""

    label_noise: float = 0.0
    imbalance: float = 1.0

    def __str__(self) -> str:
        parts = [f"noise-{self.label_noise:g}"] * (self.label_noise > 0) + [f"imbalance-{self.imbalance:g}"] * (
            self.imbalance > 1
        )
        return "-".join(parts) or "plain"


PLAIN = Variant()
NOISE = Variant(label_noise=0.1)
IMBALANCE = Variant(imbalance=50)
# A training of several nodes: its ranks, and the strata that four nodes of two of them have.
RANKS = 8
STRATA = 120


@dataclass(frozen=True)
class Cell:
    """One row of the study."""

    name: str
    # Arguments of `shade_load.Plan`.
    plan: Mapping[str, Any]
    # The losses are multiplied by `batch.weights`.
    weighted_loss: bool = False
    # Share of the recipe's epochs.
    epochs: float = 1.0
    # Arguments of `shade_load.Daemon`.
    daemon: Mapping[str, Any] = field(default_factory=dict)
    variant: Variant = PLAIN
    # A batch is trained as by this many ranks that divide it, each with batch norm of its own rows.
    ranks: int = 1

    @property
    def baseline(self) -> str:
        """The cell of permutations that it is compared with."""
        if self.variant != PLAIN:
            return f"uniform-{self.variant}"
        return "uniform" if self.ranks == 1 else f"uniform-ranks-{self.ranks}"

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the choice of samples is changed."""
        return self.baseline == "uniform"

    def options(self) -> dict[str, Any]:
        """All but the plan, for a run's record."""
        return {
            "daemon": dict(self.daemon),
            "weighted_loss": self.weighted_loss,
            "label_noise": self.variant.label_noise,
            "imbalance": self.variant.imbalance,
            **({} if self.ranks == 1 else {"ranks": self.ranks}),
        }


def _plain() -> list[Cell]:
    return [
        Cell("uniform", {"sampler": "uniform"}),
        *(
            Cell(f"uniform-{round(100 * share)}", {"sampler": "uniform"}, epochs=share)
            for share in (0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
        ),
        Cell("pads", {"sampler": "pads"}),
        # `pads` without importance: a permutation first, then draws with replacement.
        Cell("pads-explore-1", {"sampler": "pads", "explore": 1.0}),
        Cell("replacement", {"sampler": "replacement"}),
        Cell("echo", {"sampler": "echo"}),
        *(Cell(f"echo-{times:g}", {"sampler": "echo", "echo": times}) for times in (1.5, 3.0, 4.0)),
        Cell("infobatch", {"sampler": "infobatch"}, weighted_loss=True),
        Cell("pads-weighted", {"sampler": "pads"}, weighted_loss=True),
        Cell("pads-spaced", {"sampler": "pads", "order": "spaced"}),
        Cell("replacement-spaced", {"sampler": "replacement", "order": "spaced"}),
        Cell("iis", {"sampler": "iis"}),
        Cell("cis", {"sampler": "cis"}, weighted_loss=True),
        Cell("pads-draw-ahead", {"sampler": "pads", "draw_ahead": True}),
        Cell("pads-rep-2", {"sampler": "pads", "rep": 2.0}),
        Cell("pads-rep-3", {"sampler": "pads", "rep": 3.0}),
        Cell("pads-cover-2", {"sampler": "pads", "cover": 2}),
        Cell("pads-cover-0", {"sampler": "pads", "cover": 0}),
        # The same ids as `pads`: a cache without substitution changes nothing that is trained.
        Cell("pads-lru", {"sampler": "pads"}, daemon={"policy": "lru"}),
        # iCACHE's and Quiver's samples that stand in for others.
        Cell("icache-exchange", {"sampler": "iis"}, daemon={"policy": "icache"}),
        Cell("quiver-exchange", {"sampler": "uniform"}, daemon={"policy": "quiver"}),
    ]


def _of_ranks() -> list[Cell]:
    """A training on four nodes of two ranks: one plan for all, each rank's own strata, and strata that move."""
    strata = {"strata": STRATA}
    plans = {"": {}, "-strata": strata, "-strata-mix-0.05": strata | {"mix": 0.05}}
    return [
        Cell(f"{sampler}-ranks-{RANKS}{name}", {"sampler": sampler} | plan, ranks=RANKS)
        for sampler in ("uniform", "pads")
        for name, plan in plans.items()
    ]


def _on(variant: Variant, *names: str) -> list[Cell]:
    plain = {cell.name: cell for cell in _plain()}
    return [
        Cell(f"{name}-{variant}", cell.plan, cell.weighted_loss, cell.epochs, cell.daemon, variant)
        for name in names
        for cell in (plain[name],)
    ]


# In the order of the tables.
CELLS: dict[str, Cell] = {
    cell.name: cell
    for cell in (
        *_plain(),
        *_of_ranks(),
        *_on(NOISE, "uniform", "pads", "replacement", "echo", "infobatch", "pads-weighted", "iis"),
        *_on(IMBALANCE, "uniform", "pads", "replacement", "echo", "infobatch", "pads-weighted", "iis"),
        Cell(f"balanced-{IMBALANCE}", {"sampler": "balanced"}, variant=IMBALANCE),
        Cell(f"balanced-once-{IMBALANCE}", {"sampler": "balanced", "replacement": False}, variant=IMBALANCE),
    )
}

# What the first conclusions need. The other cells follow in the order of the tables.
FIRST = (
    *("uniform", "pads", "replacement", "echo", "uniform-60", "uniform-70", "uniform-50"),
    *("pads-explore-1", "pads-lru", "uniform-40"),
    *(f"{name}-{NOISE}" for name in ("uniform", "pads", "echo", "pads-weighted")),
    "infobatch",
    *(f"{name}-{IMBALANCE}" for name in ("uniform", "echo", "pads")),
    *("echo-4", "uniform-30", "pads-weighted", "iis", "icache-exchange", "quiver-exchange"),
)


def in_order_of_runs() -> list[str]:
    """The names of all cells, the most wanted first."""
    return [*FIRST, *(name for name in CELLS if name not in FIRST)]
