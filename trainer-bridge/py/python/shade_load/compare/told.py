"""A comparison as text of at most 100 columns, and as one JSON document."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .paired import SEEDS_FOR_A_VERDICT
from .tables import KINDS, TOO_FEW, Row, Runs, Summary, Table, summary, table, whole_seeds

WIDTH = 100
# Scores whose margin is smaller have four digits.
_SMALL_MARGIN = 0.1
# What a verdict at the end of the schedule means in a sentence.
_SENTENCES = {
    "better": "is better than",
    "as good": "is as good as",
    "worse": "is worse than",
    "worse, within the margin": "is worse, by less than the margin, than",
    "not told": "cannot be told from",
}


@dataclass(frozen=True)
class Comparison:
    """Finished runs, compared."""

    title: str
    runs: Runs
    margin: float
    lower_is_better: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def seeds(self) -> list[int]:
        return whole_seeds(self.runs)

    @property
    def summaries(self) -> list[Summary]:
        return [summary(cell, [of_cell[seed] for seed in self.seeds]) for cell, of_cell in self.runs.items()]

    @property
    def tables(self) -> list[Table]:
        return [table(kind, self.runs, self.margin, -1 if self.lower_is_better else 1) for kind in KINDS]

    def as_text(self) -> str:
        """The tables, what they allow to say, and notes."""
        if not self.seeds:
            return "\n".join([self.title, "", "no seed has a run of every cell yet"])
        lines = [self.title, "", *self._summary_lines(), ""]
        width = max(map(len, self.runs)) + 2
        lines.append(f"{'beside ' + next(iter(self.runs)):<{width + 2}}  better by [95 % interval]    verdict")
        for each in self.tables:
            lines += self._table_lines(each, width)
        others = len(self.runs) - 1
        compared = f"{others} comparison{'s' * (others > 1)}"
        lines += [f"margin {self.margin:g}; verdicts allow for {compared} of each table (Holm)", ""]
        said = [*self.sentences(), *(f"note: {note}" for note in self.notes)]
        return "\n".join([*lines, *(textwrap.fill(each, WIDTH, subsequent_indent="  ") for each in said)])

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "title": self.title,
            "seeds": self.seeds,
            "margin": self.margin,
            "lower_is_better": self.lower_is_better,
            "cells": [
                {
                    **vars(each),
                    "runs": {str(seed): [vars(point) for point in self.runs[each.cell][seed]] for seed in self.seeds},
                }
                for each in (self.summaries if self.seeds else [])
            ],
            "tables": [_table_json(each) for each in (self.tables if self.seeds else [])],
            "verdicts": self.sentences(),
            "notes": self.notes,
        }

    def sentences(self) -> list[str]:
        """A plain sentence for each cell, from the end of the schedule, with what it cost."""
        if not self.seeds:
            return []
        baseline, *others = self.summaries
        rows = {row.cell: row for row in self.tables[0].rows}
        return [self._sentence(rows[each.cell], each, baseline) for each in others]

    def _sentence(self, row: Row, cell: Summary, baseline: Summary) -> str:
        low, high = row.difference.interval()
        if row.verdict == TOO_FEW:
            said = f"{cell.cell}: {TOO_FEW}, {row.difference.count} of at least {SEEDS_FOR_A_VERDICT}"
        else:
            said = f"{cell.cell} {_SENTENCES[row.verdict]} {baseline.cell}: {self._score(row.difference.mean, '+')} "
            said += f"[{self._score(low, '+')}, {self._score(high, '+')}]"
        if row.verdict == "not told" and (seeds := row.difference.seeds_for(self.margin)):
            said += f", about {seeds} seeds would tell"
        return (
            f"{said}; it read {100 * cell.bytes / max(baseline.bytes, 1):.0f} % of the bytes, in "
            f"{100 * cell.seconds / baseline.seconds:.0f} % of the time"
        )

    def _summary_lines(self) -> list[str]:
        rows = [("cell", "score", "epochs", "MB read", "seconds", "waits")]
        for each in self.summaries:
            score = self._score(each.score)
            if each.half_width is not None:
                score += f" ± {self._score(each.half_width)}"
            rows.append(
                (
                    *(each.cell, score, f"{each.epochs:g}", f"{each.bytes / 1e6:,.1f}", f"{each.seconds:,.1f}"),
                    f"{100 * each.stall / each.seconds:.1f} %",
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows)]
        return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]

    def _table_lines(self, each: Table, width: int) -> list[str]:
        lines, baseline = [each.kind.title], next(iter(self.runs))
        for row in each.rows:
            low, high = row.difference.interval()
            shown = self._score(row.difference.mean, "+")
            if row.difference.count > 1:
                shown += f" [{self._score(low, '+')}, {self._score(high, '+')}]"
            lines.append(f"  {row.cell:<{width}}  {shown:<26}  {row.verdict}")
            if row.budget is not None:
                unit = f"{row.budget / 1e6:,.1f} MB" if each.kind.name == "bytes" else f"{row.budget:,.1f} s"
                epochs = f"after {row.epochs:.1f} epochs, {baseline} after {row.epochs_of_baseline:.1f}"
                lines.append(f"  {'':<{width}}  {unit}: {epochs}")
        return lines + [f"  {cell:<{width}}  {why}" for cell, why in each.left_out.items()]

    def _score(self, value: float, sign: str = "") -> str:
        return f"{value:{sign}.{4 if self.margin < _SMALL_MARGIN else 2}f}"


def _table_json(each: Table) -> dict[str, Any]:
    rows = []
    for row in each.rows:
        low, high = row.difference.interval()
        figures = {"difference": row.difference.mean, "seeds": row.difference.count, "chance": row.chance}
        figures |= {"low": low, "high": high} if row.difference.count > 1 else {"low": None, "high": None}
        names = ("cell", "verdict", "chance_of_loss", "budget", "epochs", "epochs_of_baseline")
        rows.append({name: getattr(row, name) for name in names} | figures)
    return {"at": each.kind.name, "rows": rows, "left_out": each.left_out}


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds as a range."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
