"""What a run left: the notes of its Loaders, its log, and the points that both make."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .inside import NOTES

Row = dict[str, Any]
# Lines and the redrawn lines of progress bars.
_ENDS = re.compile(rb"[\r\n]")


@dataclass(frozen=True)
class Notes:
    """What a Loader noted: its first line, and the others in turn."""

    about: Row
    rows: list[Row]

    @property
    def epochs(self) -> list[Row]:
        """The epochs that ended."""
        return [row for row in self.rows if "epoch" in row]


@dataclass(frozen=True)
class Point:
    """Where a run was at the end of an epoch, and the score that came after it."""

    epochs: int
    bytes: int
    seconds: float
    stall: float
    score: float | None = None


def notes_in(folder: Path) -> list[Notes]:
    """The notes of all Loaders of a run, by rank. A line that is not whole yet is left out."""
    found = []
    for path in sorted((folder / NOTES).glob("*.jsonl")):
        lines = path.read_bytes().split(b"\n")[:-1]
        if lines:
            about, *rows = map(json.loads, lines)
            found.append(Notes(about, rows))
    return found


def trained(notes: Sequence[Notes]) -> list[Notes]:
    """The Loaders of the first rank that trained on the dataset."""
    return [each for each in notes if each.about["is_compared"] and each.about["rank"] == 0 and each.epochs]


def reported(notes: Sequence[Notes]) -> list[tuple[int, float]]:
    """The scores that the script gave to `report_validation`, with the epochs that had ended by then.

    Any rank may report. The lowest one that does counts.
    """
    first = trained(notes)
    ends = [row["at"] for row in first[0].epochs] if first else []
    for each in notes:
        scores = [row for row in each.rows if "score" in row and each.about["is_compared"]]
        if scores:
            # One that comes within an epoch is told at that epoch's end: what it had cost is not
            # known.
            return [(sum(end <= row["at"] for end in ends) + row.get("within", False), row["score"]) for row in scores]
    return []


def matched(
    log: bytes, pattern: re.Pattern[bytes], ends: Sequence[int], begun: Sequence[float] = ()
) -> list[tuple[int, float]]:
    """The scores in lines of a log, with the epochs that had ended when they were printed, or the one in which they were.

    `ends` are the log's lengths at the end of each epoch, `begun` those at its first batch. A line has one score, its last.
    The score's own place counts: its line may begin before the epoch does.

    Raises: ValueError: A match is no number.
    """
    found, at = [], 0
    for line in _ENDS.split(log):
        matches = list(pattern.finditer(line))
        if matches:
            score = float(matches[-1][pattern.groups] or b"")
            if not math.isfinite(score):
                raise ValueError(f"{score} in {line.decode(errors='replace')!r}")
            place = at + matches[-1].start(pattern.groups)
            ended = sum(end <= place for end in ends)
            found.append((ended + (ended < len(begun) and begun[ended] <= place), score))
        at += len(line) + 1
    return found


def points_of(epochs: Sequence[Row], began: float, scores: Sequence[tuple[int, float]]) -> list[Point]:
    """A point for each epoch, with the latest score before the next one's end. Scores before the first are left out."""
    points, total, before = [], 0, {"bytes": 0, "successors": 0}
    for number, row in enumerate(epochs, start=1):
        # A successor of a daemon that died counts from its own beginning.
        total += row["bytes"] - (before["bytes"] if row["successors"] == before["successors"] else 0)
        before = row
        points.append(Point(number, total, row["at"] - began, row["stall"]))
    for after, score in scores:
        if 0 < after <= len(points):
            points[after - 1] = replace(points[after - 1], score=score)
    return points
