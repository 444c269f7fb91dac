"""Markdown tables, and what has to stand beside every hit ratio."""

import textwrap
from collections.abc import Iterable, Sequence

from benches.hit_ratio.results import Row

WIDTH = 120
# What `evidence` tells.
EVIDENCE = ("D/N %", "seen %", "largest repeat")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table and the empty line behind it. Columns but the first are numbers."""
    line = "| " + " | ".join(head) + " |"
    rule = "|---|" + "---:|" * (len(head) - 1)
    return [line, rule, *("| " + " | ".join(row) + " |" for row in rows), ""]


def prose(text: str) -> list[str]:
    """Paragraphs and lists wrapped anew, as numbers have been put in, and the empty line behind them."""
    lines: list[str] = []
    for block in text.strip().split("\n\n"):
        if not block.startswith(("#", "|", "!")):
            points = block.split("\n- ") if block.startswith("- ") else [block]
            block = "\n".join(_wrapped(point, bullet=block.startswith("- ")) for point in points)
        lines += [*block.splitlines(), ""]
    return lines


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent. Nothing less than nothing is written without its sign."""
    text = f"{100 * share:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def hits(row: Row) -> str:
    return percent(row["hit_ratio"])


def evidence(rows: Sequence[Row]) -> tuple[str, ...]:
    """D/N, share ever seen and largest repeat of these rows; from least to greatest where they differ."""
    return (
        _span([percent(row["distinct_share"]) for row in rows]),
        _span([percent(row["ever_seen_share"]) for row in rows]),
        _span([str(row["repeat_max"]) for row in rows]),
    )


def widest(rows: Iterable[Row], of: str = "hit_ratio_ci95") -> str:
    """How far off the means of these rows are at most."""
    points = max(100 * row[of] for row in rows)
    return f"95 % intervals of the means are within ±{points:.2f} points."


def _wrapped(point: str, bullet: bool) -> str:
    text = " ".join(point.removeprefix("- ").split())
    before = ("- ", "  ") if bullet else ("", "")
    # No word of a command is parted at its hyphens.
    return textwrap.fill(text, WIDTH, initial_indent=before[0], subsequent_indent=before[1], break_on_hyphens=False)


def _span(values: list[str]) -> str:
    low, high = min(values, key=float), max(values, key=float)
    return low if low == high else f"{low} to {high}"
