"""`python -m benches.packages --program PATH --out FOLDER`: packages on a store whose operations are the limit.

Everything is simulated by `shade-load simulate --package-bytes`."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

CACHES = "10%,20%,40%"
SAMPLES, BYTES = 50_000, 3_000
EPOCHS, SKIPPED = 10, 4
COMMON = (
    *("--samples", str(SAMPLES), "--sizes", f"fixed:{BYTES}", "--epochs", str(EPOCHS), "--skip-epochs", str(SKIPPED)),
    *("--batch-size", "64", "--compute", "100us/sample"),
)
# 8 operations of 2 ms at a time are 0.4 of what the trainer computes. Options, and the caches.
STORES = {
    "10 Gbit/s": ("latency=2ms,depth=8,bandwidth=10Gbit", CACHES),
    "1 Gbit/s": ("latency=2ms,depth=8,bandwidth=1Gbit", "20%"),
    "200 Mbit/s": ("latency=2ms,depth=8,bandwidth=200Mbit", "20%"),
}
ALONE, TOGETHER = "each alone", "neighbours"
SOME, ALL = (TOGETHER, "64KiB"), (ALONE, TOGETHER, "16KiB", "64KiB", "256KiB")
# What it is, its options, and how it reads.
SYSTEMS = {
    "permutations, lookahead": (("--sampler", "uniform", "--policy", "lookahead"), ALL),
    "icache": (("--preset", "icache"), ALL),
    "quiver": (("--preset", "quiver"), ALL),
    "importance, lookahead": (("--preset", "clairvoyant"), SOME),
    "coordl": (("--preset", "coordl"), SOME),
    "base": (("--preset", "base"), (TOGETHER,)),
    "permutations, lru": (("--sampler", "uniform", "--policy", "lru"), SOME),
}


def main() -> int:
    """Simulates, writes rows.json and report.md; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benches.packages", description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=lambda text: Path(text).resolve(), required=True, help="where shade-load is")
    parser.add_argument("--out", type=Path, help="folder of the record (default: one in benches/record, by date)")
    parser.add_argument("--only", action="append", help="only the row of this name, as `10 Gbit/s: base, neighbours`; may be repeated")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each row (default 5)")
    arguments = parser.parse_args()
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    out = arguments.out or Path(__file__).parents[1] / "record" / f"{date}-packages"
    try:
        wanted = arguments.only or _commands()
        rows = {name: _simulate(arguments, options) for name, options in _commands().items() if name in wanted}
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
    commands = {}
    for store, (model, caches) in STORES.items():
        for system, (options, ways) in SYSTEMS.items():
            for way in ways:
                reads = {ALONE: [], TOGETHER: ["--coalesce"]}.get(way, ["--package-bytes", way])
                commands[_name(store, system, way)] = [*options, *reads, "--store", model, "--cache", caches]
    return commands


def _name(store: str, system: str, way: str) -> str:
    return f"{store}: {system}, {way}"


def _simulate(arguments: argparse.Namespace, options: list[str]) -> list[dict]:
    command = [arguments.program, "simulate", *COMMON, *options, "--seeds", str(arguments.seeds), "--json"]
    return json.loads(_told(command))["rows"]


def _told(words: list[str | Path]) -> str:
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def report(record: dict) -> str:
    """The report, from the rows alone."""
    lines = [
        "# Packages, simulated",
        "",
        f"`{record['version']}`, {record['date']}; means of {record['seeds']} seeds, the stall with its 95 % interval.",
        f"{SAMPLES:,} samples of {BYTES:,} bytes, {EPOCHS} epochs of which the first {SKIPPED} do not count, 100 us of",
        "compute a sample, batches of 64. The store serves 8 operations of 2 ms at a time, 0.4 of what the",
        "trainer computes. Command: `python -m benches.packages`.",
        "",
        "*Each alone*: a read brings one record. *Neighbours*: records that are wanted at the same time and lie",
        "within 16 KiB are read together, as the daemon does. A size is that of `--package-bytes`. Reads are",
        "operations of the store in an epoch, and bytes are all that pass its link, both over those of the dataset.",
    ]
    for store, (_, caches) in STORES.items():
        of = caches.split(",")
        heads = [f"{what}, {cache}" for what in ("reads", "bytes", "stall, %") for cache in of]
        if not any(name.startswith(f"{store}: ") for name in record["rows"]):
            continue
        lines += ["", f"## {store}", "", f"| system | reads by | {' | '.join(heads)} |", "|---|---|" + "---:|" * len(heads)]
        for system, (_, ways) in SYSTEMS.items():
            for way in ways:
                rows = record["rows"].get(_name(store, system, way))
                if rows is None:
                    continue
                cells = [*(_reads(row) for row in rows), *(_bytes(row) for row in rows), *(_stall(row) for row in rows)]
                lines.append(f"| {system} | {way} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _reads(row: dict) -> str:
    return f"{row['reads'] / SAMPLES / (EPOCHS - SKIPPED):.3f}"


def _bytes(row: dict) -> str:
    return f"{(row['bytes_read'] + row['bytes_between']) / (SAMPLES * BYTES) / (EPOCHS - SKIPPED):.2f}"


def _stall(row: dict) -> str:
    spread = row.get("stall_share_ci95")
    return f"{100 * row['stall_share']:.1f}" + (f" ± {100 * spread:.1f}" if spread is not None else "")


if __name__ == "__main__":
    sys.exit(main())
