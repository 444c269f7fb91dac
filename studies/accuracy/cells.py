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
IMBALANCE_20 = Variant(imbalance=20)
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
    # Rows of weight 0 have no part in the loss and its gradient; they are computed for their own
    # loss only.
    drops: bool = False
    # The learning rate falls by half a cosine from the first step on, in place of the recipe's
    # shape.
    cosine: bool = False

    @property
    def baseline(self) -> str:
        """The cell of permutations that it is compared with."""
        if self.variant != PLAIN:
            return f"uniform-{self.variant}"
        if self.cosine:
            return "uniform-cosine"
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
            # Records of cells without them are older than these.
            **({} if self.ranks == 1 else {"ranks": self.ranks}),
            **({"drops": True} if self.drops else {}),
            **({"cosine": True} if self.cosine else {}),
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


def _as_published() -> list[Cell]:
    """What papers have, as far as the daemon has it: see DESIGN.md."""
    hits_first = {"order": "hits_first", "hit_cap": 1.0, "cover": 0}
    return [
        Cell("infobatch-by-loss", {"sampler": "infobatch", "cover": 0}, weighted_loss=True),
        Cell("seta", {"sampler": "seta", "cover": 0}),
        Cell("cis-dropped", {"sampler": "cis", "cover": 0}, drops=True),
        Cell("shade-published", {"sampler": "pads", "rep": 2.0, **hits_first}, daemon={"policy": "app"}),
        Cell("icache-packages", {"sampler": "iis"}, daemon={"policy": "icache", "package_bytes": "64KiB"}),
        Cell("uniform-cosine", {"sampler": "uniform"}, cosine=True),
        *(Cell(f"rs2-{round(100 * share)}", {"sampler": "uniform"}, epochs=share, cosine=True) for share in (0.5, 0.3, 0.1)),
        *(Cell(f"pads-{round(100 * share)}", {"sampler": "pads"}, epochs=share) for share in (0.5, 0.4, 0.3)),
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


_FIRST = (
    *_plain(),
    *_of_ranks(),
    *_on(NOISE, "uniform", "pads", "replacement", "echo", "infobatch", "pads-weighted", "iis"),
    *_on(IMBALANCE, "uniform", "pads", "replacement", "echo", "infobatch", "pads-weighted", "iis"),
    Cell(f"balanced-{IMBALANCE}", {"sampler": "balanced"}, variant=IMBALANCE),
    Cell(f"balanced-once-{IMBALANCE}", {"sampler": "balanced", "replacement": False}, variant=IMBALANCE),
)

# In the order of the tables.
CELLS: dict[str, Cell] = {
    cell.name: cell
    for cell in (
        *_FIRST,
        *_as_published(),
        *_on(NOISE, "pads-explore-1", "pads-draw-ahead"),
        *_on(IMBALANCE, "pads-draw-ahead"),
        *_on(IMBALANCE_20, "uniform", "echo", "pads-explore-1", "pads", "pads-draw-ahead"),
        Cell(f"balanced-{IMBALANCE_20}", {"sampler": "balanced"}, variant=IMBALANCE_20),
    )
}
# Those of the first design, 2026-11-23 to 2026-11-27.
OF_FIRST_DESIGN = tuple(cell.name for cell in _FIRST)

_BY_RANKS = "it left out by ranks of losses within a batch, and today's sampler does by the losses themselves"
# Cells that today's daemon would do otherwise, and why. Their records stay; they are not run again.
RETIRED = {
    **{name: _BY_RANKS for name in ("infobatch", f"infobatch-{NOISE}", f"infobatch-{IMBALANCE}")},
    "icache-exchange": "it ran without packages, which the policy `icache` has had since 2026-11-24",
}
