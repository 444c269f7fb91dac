"""An epoch from a bucket 30 ms away by each loader, in turn, each run in a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benches.buckets.readers import READERS
from benches.buckets.store import RECORD_BYTES, SLOWNESS, environment, far_away, last_json, write_records
from benches.rivals import report
from benches.rivals.delivered import Delivered
from benches.rivals.rounds import LeftOut, interleave, print_left_out
from studies.bucket import Server

RECORDS = 4_000
# The slowest seen takes a quarter of it.
SECONDS_MAX = 600


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here."""
    expected = write_records(scratch / "images", arguments.records)
    names = [name for name in READERS if name in (arguments.only or READERS)]
    ready = _pack(names, scratch, arguments.programs)
    versions: dict[str, str] = {}
    with far_away(arguments.programs, scratch / "packed", scratch / "store") as server:

        def run(name: str) -> dict[str, Any]:
            told = _one(name, server, arguments.programs, scratch)
            versions[READERS[name].package] = told.pop("version")
            if told["delivered"] != asdict(expected):
                raise LeftOut(f"it delivered {told['delivered']}, expected {expected}")
            return told

        runs = interleave({name: READERS[name].title for name in ready}, arguments.rounds, run)
    return versions, [_row(name, of_one, expected) for name, of_one in runs.items()]


def _pack(names: list[str], scratch: Path, programs: Path) -> list[str]:
    """The loaders whose format could be written."""
    packed = scratch / "packed"
    packed.mkdir()
    ready = []
    for name in names:
        reader = READERS[name]
        try:
            if not (packed / reader.folder).exists():
                print(f"packing: {reader.title} ...", file=sys.stderr)
                reader.pack(scratch / "images", packed / reader.folder, programs)
        except (ImportError, OSError, subprocess.CalledProcessError) as why:
            print_left_out(reader.title, why)
        else:
            ready.append(name)
    return ready


def _one(name: str, server: Server, programs: Path, scratch: Path) -> dict[str, Any]:
    """An epoch: its times, what was delivered, and its requests."""
    before = server.be(SLOWNESS)
    with tempfile.TemporaryDirectory(dir=scratch) as home:
        command = [sys.executable, "-m", "benches.buckets.readers", name, server.endpoint]
        try:
            done = subprocess.run(
                command,
                env=environment(server, Path(home), programs),
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LeftOut(f"not done after {SECONDS_MAX} s") from error
        if done.returncode != 0:
            raise LeftOut((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
        return {**last_json(done.stdout), "requests": server.be(SLOWNESS) - before}


def _row(name: str, runs: list[dict[str, Any]], expected: Delivered) -> dict[str, Any]:
    rates = [expected.records / run["seconds"] for run in runs]
    firsts = [run["first_seconds"] for run in runs]
    return {
        **report.row(READERS[name].title, rates, "records/s", RECORD_BYTES),
        "first_256_seconds": report.median(firsts),
        "first_256_seconds_min": min(firsts),
        "first_256_seconds_max": max(firsts),
        "requests": report.median([run["requests"] for run in runs]),
        "shuffle": READERS[name].shuffle,
    }


def details(row: dict[str, Any]) -> str:
    """What a row has besides rates."""
    return f"first 256 after {row['first_256_seconds']:6.2f} s, {row['requests']:,.0f} requests, shuffles {row['shuffle']}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument("--only", action="append", choices=READERS, help="this one; may be repeated")
    parser.set_defaults(records=RECORDS)
