"""`python -m benches.jobs --program PATH --out FOLDER`: what several jobs read, over one cache and over a part each.

Everything is simulated by `shade-load simulate --jobs`."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

CACHES = "5%,10%,20%,40%,75%"
JOBS = (2, 4, 8, 16)
COMMON = ("--samples", "8000", "--epochs", "7", "--skip-epochs", "2", "--batch-size", "32", "--cache", CACHES)
# Name, what it is, and the options.
WAYS = (
    ("pads", "shade, draws by importance", ("--preset", "clairvoyant")),
    ("pads, a group", "the same, coupled", ("--preset", "clairvoyant", "--group")),
    ("permutations", "shade, permutations", ("--sampler", "uniform", "--policy", "lookahead")),
    ("permutations, a group", "the same, coupled", ("--sampler", "uniform", "--policy", "lookahead", "--group")),
    ("echo", "shade, each sample read comes twice", ("--sampler", "echo", "--policy", "lookahead")),
    ("page cache", "permutations over a page cache (LRU)", ("--sampler", "uniform", "--policy", "lru")),
    ("CoorDL", "permutations over a fixed cache, prepared together", ("--preset", "coordl-prep")),
    ("OneAccess", "permutations read once for all, over a FIFO", ("--preset", "oneaccess")),
    ("iCACHE", "its sampler and its two regions, by the jobs' aggregate", ("--preset", "icache")),
)
# The last of four jobs is slower by this share.
BEHIND = (0.015, 0.06, 0.15, 0.5)
# A store that serves a little less than four jobs want: what is it like for each?
STORE = ("--sizes", "fixed:110KB", "--store", "latency=2ms,depth=3", "--compute", "1ms")


def main() -> int:
    """Simulates, writes rows.json and report.md; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benches.jobs", description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=lambda text: Path(text).resolve(), required=True, help="where shade-load is")
    parser.add_argument("--out", type=Path, help="folder of the record (default: one in benches/record, by date)")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each row (default 5)")
    arguments = parser.parse_args()
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    out = arguments.out or Path(__file__).parents[1] / "record" / f"{date}-jobs"
    try:
        rows = {name: _simulate(arguments, options) for name, options in _commands().items()}
    except KeyboardInterrupt:
        return 130
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    record = {"date": date, "seeds": arguments.seeds, "version": _told([arguments.program, "--version"]), "rows": rows}
    (out / "rows.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / "report.md").write_text(report(record))
    print(f"written: {out / 'report.md'}")
    return 0


def _commands() -> dict[str, list[str]]:
    """The options of each simulation, by its name."""
    commands = {f"{way}, {jobs} jobs": ["--jobs", str(jobs), *options] for way, _, options in WAYS for jobs in JOBS}
    for behind in BEHIND:
        speeds = ["--jobs", "4", "--speeds", f"1,1,1,{1 - behind:g}", "--preset", "clairvoyant"]
        commands[f"pads, {behind:g} behind"] = speeds
        commands[f"pads, a group, {behind:g} behind"] = [*speeds, "--group"]
    for jobs in JOBS[:3]:
        commands[f"scarce store, {jobs} jobs"] = ["--jobs", str(jobs), "--preset", "clairvoyant", *STORE]
    for name, speeds in (("stopped", "1,0.001"), ("greedy", "1,1000")):
        commands[f"beside a {name} job"] = ["--jobs", "2", "--speeds", speeds, "--preset", "clairvoyant", *STORE]
    return commands


def _simulate(arguments: argparse.Namespace, options: list[str]) -> list[dict]:
    command = [arguments.program, "simulate", *COMMON, *options, "--seeds", str(arguments.seeds), "--json"]
    return json.loads(_told(command))["rows"]


def _told(words: list[str | Path]) -> str:
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def report(record: dict) -> str:
    """The report, from the rows alone."""
    rows = record["rows"]
    caches = CACHES.split(",")
    lines = [
        "# Several jobs on one cache, simulated",
        "",
        f"`{record['version']}`, {record['date']}; means of {record['seeds']} seeds with 95 % intervals.",
        "8,000 samples, epochs 2 to 6 of each job; losses of a sample in two jobs correlated by 0.7.",
        "Command: `python -m benches.jobs`.",
        "",
        "Records read in an epoch of all jobs together, in datasets. *A part each*: as many daemons, each",
        "with its share of the cache. The window of decoded rows that a group shares has 1,783 rows, as",
        "for 224 x 224 pixels. That is a fifth of these samples, and less of a larger dataset.",
    ]
    for jobs in JOBS:
        lines += ["", f"## {jobs} jobs", "", f"| way | cache | {' | '.join(caches)} |", "|---|---|" + "---:|" * len(caches)]
        for way, _, _ in WAYS:
            of = rows[f"{way}, {jobs} jobs"]
            for shared, text in ((True, "one"), (False, "a part each")):
                cells = [_amount(row) for row in of if row["is_shared"] == shared]
                lines.append(f"| {way} | {text} | {' | '.join(cells)} |")
    lines += ["", "The ways:", "", *(f"- {way}: {about}." for way, about, _ in WAYS)]
    lines += ["", "## Rows decoded by four jobs on one cache, % of those delivered", ""]
    lines += [f"| way | {' | '.join(caches)} |", "|---|" + "---:|" * len(caches)]
    for way, _, _ in WAYS:
        cells = [f"{100 * row['decoded_share']:.1f}" for row in rows[f"{way}, 4 jobs"] if row["is_shared"]]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    lines += ["", "## Four jobs, one of them slower; cache 20 %", "", "| slower by | one cache | coupled |", "|---|---:|---:|"]
    for behind in BEHIND:
        alone, group = (_at(rows[f"{way}, {behind:g} behind"], "20%") for way in ("pads", "pads, a group"))
        lines.append(f"| {100 * behind:g} % | {_amount(alone)} | {_amount(group)} |")
    lines += ["", "## Stalls with a scarce store; cache 20 %", "", f"Store and trainer: `{' '.join(STORE)}`.", ""]
    lines += ["| jobs | stall of each, % of compute | Jain's index |", "|---|---:|---:|"]
    label = {"beside a stopped job": "1, the other one stopped", "beside a greedy job": "1, beside one 1,000 times as fast"}
    for name in (*(f"scarce store, {jobs} jobs" for jobs in JOBS[:3]), *label):
        row = _at(rows[name], "20%")
        stalls = ", ".join(f"{100 * share:.1f}" for share in row["stall_shares"])
        # Equal stalls are right for equal jobs only.
        jain = "" if name in label else f"{row['jain']:.3f}"
        lines.append(f"| {label.get(name, len(row['stall_shares']))} | {stalls} | {jain} |")
    return "\n".join(lines) + "\n"


def _at(rows: list[dict], cache: str) -> dict:
    return next(row for row in rows if row["is_shared"] and row["cache"] == cache)


def _amount(row: dict) -> str:
    spread = row.get("datasets_per_epoch_ci95")
    return f"{row['datasets_per_epoch']:.3f}" + (f" ± {spread:.3f}" if spread is not None else "")


if __name__ == "__main__":
    sys.exit(main())
