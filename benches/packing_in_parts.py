"""`python -m benches.packing_in_parts --programs target/release`: four processes beside one, on a store of 2 ms an operation.

One `shade-pack create`, and four processes that list and pack a part each, between `plan` and
`finish`. Each process stands for a machine: it has a mount of its own, so nothing that another has
asked for is cached for it, one thread that computes, and few reads in flight. All that it waits for
is the store, which has a delay and no limit."""

from __future__ import annotations

import argparse
import datetime
import filecmp
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DELAY_US = 2_000
CLASSES = 40
FILE_BYTES = 10_000
# Nobody waits for the disk: the store is what is measured.
QUIET = ("--no-sync", "--quiet")


def main() -> int:
    """Measures, prints a table, writes the record; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benches.packing_in_parts", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=Path, required=True, help="folder of shade-pack and shade-slow-store")
    parser.add_argument("--out", type=Path, help="file of the record (default: one in benches/record, by date)")
    parser.add_argument("--files", type=int, default=8_000, help="images in the source (default 8000)")
    parser.add_argument("--processes", type=int, default=4, help="processes beside one (default 4)")
    parser.add_argument("--in-flight", type=int, default=2, help="reads in flight of each process (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way, by turns (default 3)")
    arguments = parser.parse_args()
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    out = arguments.out or Path(__file__).parent / "record" / f"{date}-packing-in-parts.json"
    load_before = os.getloadavg()
    try:
        with tempfile.TemporaryDirectory(prefix="shade-parts-") as folder:
            rounds = _measure(Path(folder), arguments)
    except KeyboardInterrupt:
        return 130
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    medians = {stage: statistics.median(one[stage] for one in rounds) for stage in rounds[0]}
    for stage, seconds in medians.items():
        spread = sorted(one[stage] for one in rounds)
        print(f"{stage:28} {seconds:8.2f} s  ({spread[0]:.2f} to {spread[-1]:.2f})")
    all_stages = medians["one: create"] / sum(seconds for stage, seconds in medians.items() if stage != "one: create")
    print(f"{arguments.processes} processes are {all_stages:.2f} x one, all stages together")
    record = {
        "bench": "packing_in_parts",
        "date": date,
        "version": _told([arguments.programs / "shade-pack", "--version"]),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release()},
        "load": {"before": load_before, "after": os.getloadavg()},
        "delay_us": DELAY_US,
        "files": arguments.files,
        "file_bytes": FILE_BYTES,
        "processes": arguments.processes,
        "in_flight": arguments.in_flight,
        "rounds_seconds": rounds,
        "faster": all_stages,
    }
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {out}")
    return 0


def _measure(folder: Path, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Seconds of each stage, for each round."""
    source, mount = folder / "images", folder / "mount"
    _write_images(source, arguments.files)
    mount.mkdir()
    programs, count = arguments.programs.resolve(), arguments.processes

    def pack(command: str, out: Path, *options: str) -> list[str | Path]:
        words = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
        store = [programs / "shade-slow-store", "--delay-us", str(DELAY_US), "--out", os.devnull, source, mount, "--"]
        threads = ["--in-flight", str(arguments.in_flight)] + ([] if command == "list" else ["--jobs", "1"])
        return [*words, *store, programs / "shade-pack", command, mount, out, *options, *threads, *QUIET]

    rounds = []
    for _ in range(arguments.rounds):
        one, many = folder / "one", folder / "many"
        of = [f"{part}/{count}" for part in range(count)]
        size = ["--shard-size", "1MB"]
        rounds.append(
            {
                "one: create": _seconds([pack("create", one, *size)]),
                "many: list": _seconds([pack("list", many, "--part", part) for part in of]),
                "many: plan": _seconds([pack("plan", many, "--listed", *size)]),
                "many: create --part": _seconds([pack("create", many, "--part", part) for part in of]),
                "many: finish": _seconds([[programs / "shade-pack", "finish", many, *QUIET]]),
            }
        )
        names = sorted(path.name for path in one.iterdir())
        if filecmp.cmpfiles(one, many, names, shallow=False) != (names, [], []):
            raise OSError("one process and several made other bytes")
        shutil.rmtree(one)
        shutil.rmtree(many)
    return rounds


def _write_images(source: Path, files: int) -> None:
    draw = random.Random(0)
    for number in range(files):
        path = source / f"{number % CLASSES:03}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff\xe0" + draw.randbytes(FILE_BYTES))


def _seconds(commands: list[list[str | Path]]) -> float:
    """From the start of all commands at once to the end of the last."""
    started = time.monotonic()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    codes = [process.wait() for process in running]
    if any(codes):
        raise subprocess.CalledProcessError(max(codes), [str(word) for word in commands[codes.index(max(codes))]])
    return time.monotonic() - started


def _told(words: list[str | Path]) -> str:
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
