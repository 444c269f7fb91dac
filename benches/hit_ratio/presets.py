"""Study 5: whole systems as other papers mean them, on the axes of study 1."""

import dataclasses
from pathlib import Path

from benches.hit_ratio import plots, stall, tables
from benches.hit_ratio.by_capacity import CAPACITIES
from benches.hit_ratio.results import Command, Results, Row, Scale

# What the papers call them.
NAMES = {
    "default": "Default",
    "base": "Base",
    "ilfu": "iLFU",
    "icache": "iCACHE",
    "coordl": "CoorDL",
    "quiver": "Quiver",
    "deepio": "DeepIO",
    "shade": "SHADE",
    "clairvoyant": "clairvoyant (ours)",
}
LABEL = "presets"
BYTES = 110_000

TEXT = """\
## 5. Whole systems

The presets of the program, samples of 110 KB, a dataset of {gb:.1f} GB. They draw, order and cache in their own ways
and so train on different samples: a hit ratio here is no merit as such. Epochs of iCACHE's sampler (`iis`) are shorter:
accesses/N says how much. Base delivers unimportant samples too, with weight 0. *Stood in* are iCACHE's substitutes,
neither hits nor reads, from the least to the greatest capacity. *Randomness* is the entropy of where samples come in an
epoch, 1 as a shuffle, 0 as in storage; the least of all capacities.

![presets by capacity](presets.svg)
"""


def commands(scale: Scale) -> list[Command]:
    """One call per capacity. Samples have sizes, for the bytes read."""
    words = ("--sizes", f"fixed:{BYTES // 1000}KB", "--preset", ",".join(NAMES))
    return [Command(LABEL, scale.words(*words, "--cache", cache)) for cache in CAPACITIES]


@dataclasses.dataclass(frozen=True)
class Counted:
    """The rows' counts."""

    epochs: int
    samples: int
    bytes: int

    @classmethod
    def of(cls, results: Results) -> "Counted":
        """The counts that all runs of this study share."""
        run = next(run for run in results.runs.values() if run["label"] == LABEL)
        return cls(run["epochs"] - run["skipped_epochs"], run["samples"], run["bytes"])

    def accesses(self, row: Row) -> float:
        """Accesses of an epoch, over the samples."""
        return row["accesses"] / self.epochs / self.samples

    def read(self, row: Row) -> float:
        """Bytes of an epoch, over the dataset's."""
        return row["bytes_read"] / self.epochs / self.bytes


def section(results: Results, out: Path) -> list[str]:
    """Hits, bytes, and stall from study 4."""
    _plot(results, out / "presets.svg")
    by_name = {name: [results.row(LABEL, name, cache) for cache in CAPACITIES] for name in NAMES}
    counted = Counted.of(results)
    lines = [
        *tables.prose(TEXT.format(gb=counted.bytes / 1e9)),
        "### Hit ratio, %",
        "",
        *tables.table(
            ("system", *CAPACITIES, *tables.EVIDENCE, "accesses/N %"),
            (
                [NAMES[name], *map(tables.hits, rows), *tables.evidence(rows)]
                + [tables.percent(counted.accesses(rows[0]))]
                for name, rows in by_name.items()
            ),
        ),
        tables.widest(results.rows(LABEL)),
        "",
        "### Bytes read an epoch, % of the dataset",
        "",
        *tables.table(
            ("system", *CAPACITIES, "stood in, % of accesses", "randomness of the order"),
            (
                [NAMES[name], *(tables.percent(counted.read(row)) for row in rows), _stood_in(rows), _randomness(rows)]
                for name, rows in by_name.items()
            ),
        ),
    ]
    for ratio in stall.RATIOS:
        lines += [f"### Stall, ρ = {ratio}, c = {stall.CACHE}", ""]
        rows = {NAMES[name]: row for name, row in stall.of_presets(results, ratio).items()}
        lines += tables.table(stall.HEAD, stall.lines_of(rows, ratio))
    return lines


def _stood_in(rows: list[Row]) -> str:
    shares = [tables.percent(row["exchanged"] / row["accesses"]) for row in (rows[0], rows[-1])]
    return shares[0] if shares[0] == shares[1] else f"{shares[0]} to {shares[1]}"


def _randomness(rows: list[Row]) -> str:
    return f"{min(row['position_entropy'] for row in rows):.3f}"


def _plot(results: Results, file: Path) -> None:
    counted = Counted.of(results)
    figure, axes = plots.panels(["hits", "bytes read"], columns=2)
    shares = [float(cache.rstrip("%")) for cache in CAPACITIES]
    for nth, (preset, name) in enumerate(NAMES.items()):
        rows = [results.row(LABEL, preset, cache) for cache in CAPACITIES]
        axes[0].plot(shares, [100 * row["hit_ratio"] for row in rows], label=name, **plots.style(nth))
        axes[1].plot(shares, [100 * counted.read(row) for row in rows], label=name, **plots.style(nth))
    axes[0].set(ylabel="hit ratio, %")
    axes[1].set(ylabel="bytes read an epoch, %")
    for panel in axes:
        panel.set(xlabel="capacity, % of the dataset", xlim=(0, 80), ylim=(0, 100))
    plots.save(figure, axes, file)
