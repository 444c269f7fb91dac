"""report.md: summary, the six studies, conclusions. Its sentences are about the full run."""

from pathlib import Path

from benches.hit_ratio import by_capacity, checks, expected, lookahead, presets, published, stall, tables, verdict
from benches.hit_ratio.results import Results, Scale

STUDIES = (by_capacity, published, lookahead, stall, presets, expected)

HEAD = """\
# Hit ratios and stall, simulated

Made on {date} with {program} ({git}). `make bench-hit-ratio` makes all of it; `results.json` has every row and the command
that made it. Where a table does not say otherwise: {samples:,} samples of one size, batches of 64, 12 epochs of which
the last 8 count, means of {seeds} seeds. Nothing is read and no model is trained: plans, cache and importance are the
daemon's own code, losses come from a model (`shade-load simulate --help`). So accuracy is not in here, and that is what
most of these options may cost.

Beside every hit ratio stand D/N, the share of an epoch's accesses that are different samples; *seen*, the share of the
dataset ever delivered; and the *largest repeat*, how often one sample comes in one epoch at most. A range is over the
row's capacities. MIN is Belady's, over the whole training, and may bypass.
"""

CHECKED = (
    "hits, misses, prefetches and exchanges are all accesses; the bytes read are theirs; no policy hits more than MIN "
    "of its trace, none more than 1 - D/N + c and what joins a read under way; `static`, `quiver`, `lookahead` and `min` hit c on permutations."
)

QUICK = """
**A quick run**: small datasets and two seeds. The tables show that it runs; the sentences are of the full run.
"""


def write(results: Results, scale: Scale, out: Path) -> None:
    """Writes report.md and its plots."""
    versions = results.about["versions"]
    head = HEAD.format(date=results.about["date"][:10], samples=scale.samples, seeds=scale.seeds, **versions)
    lines = tables.prose(head + QUICK if results.about["quick"] else head)
    lines += [*_checked(results), *verdict.in_short(results)]
    for study in STUDIES:
        lines += study.section(results, out)
    lines += verdict.what_follows(results)
    (out / "report.md").write_text("\n".join(lines).rstrip() + "\n")


def _checked(results: Results) -> list[str]:
    rows = sum(len(rows) for rows in results.by_label.values())
    found = checks.violations(results)
    if not found:
        return tables.prose(f"Checked of all {rows:,} rows, and true: {CHECKED}")
    points = "\n".join(f"- {each}" for each in found)
    return tables.prose(f"**Not true** of all {rows:,} rows: {CHECKED} What is wrong:\n\n{points}")
