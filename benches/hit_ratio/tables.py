"""Markdown tables, and the columns that belong beside every hit ratio."""

import textwrap
from collections.abc import Iterable, Sequence

from benches.hit_ratio.results import Row

WIDTH = 120
# The columns of `evidence`.
EVIDENCE = ("D/N %", "seen %", "largest repeat")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table and an empty line. All columns except the first are numbers."""
    line = "| " + " | ".join(head) + " |"
    rule = "|---|" + "---:|" * (len(head) - 1)
    return [line, rule, *("| " + " | ".join(row) + " |" for row in rows), ""]


def prose(text: str) -> list[str]:
    """Wraps paragraphs and lists anew after numbers were put in. Adds an empty line."""
    lines: list[str] = []
    for block in text.strip().split("\n\n"):
        if not block.startswith(("#", "|", "!")):
            points = block.split("\n- ") if block.startswith("- ") else [block]
            block = "\n".join(_wrapped(point, bullet=block.startswith("- ")) for point in points)
        lines += [*block.splitlines(), ""]
    return lines


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent. A negative value that rounds to zero has no sign."""
    text = f"{100 * share:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def hits(row: Row) -> str:
    return percent(row["hit_ratio"])


def evidence(rows: Sequence[Row]) -> tuple[str, ...]:
    """D/N, share ever seen and largest repeat of these rows: from least to greatest."""
    return (
        _span([percent(row["distinct_share"]) for row in rows]),
        _span([percent(row["ever_seen_share"]) for row in rows]),
        _span([str(row["repeat_max"]) for row in rows]),
    )


def widest(rows: Iterable[Row], of: str = "hit_ratio_ci95") -> str:
    """The largest error of these rows' means."""
    points = max(100 * row[of] for row in rows)
    return f"95 % intervals of the means are within ±{points:.2f} points."


def _wrapped(point: str, bullet: bool) -> str:
    text = " ".join(point.removeprefix("- ").split())
    before = ("- ", "  ") if bullet else ("", "")
    # Words of a command are not split at hyphens.
    return textwrap.fill(text, WIDTH, initial_indent=before[0], subsequent_indent=before[1], break_on_hyphens=False)


def _span(values: list[str]) -> str:
    low, high = min(values, key=float), max(values, key=float)
    return low if low == high else f"{low} to {high}"
