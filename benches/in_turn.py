"""Ways to get the same samples, run in turn, each as a process of its own that tells its second epoch."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from benches.recorded import Record
from benches.rivals.process_tree import below, cpu_seconds

PHOTOGRAPH = (500, 375)
Told = dict[str, Any]


class Way(NamedTuple):
    """What a process measures."""

    # An epoch of batches.
    epoch: Callable[[], Iterator[Any]]
    end: Callable[[], None] = lambda: None
    # Processes beside this one and those that it has started.
    daemons: tuple[int, ...] = ()


def arguments_of(parser: argparse.ArgumentParser, samples: int) -> argparse.Namespace:
    """The arguments of such a bench."""
    parser.add_argument("--samples", type=int, default=samples, help=f"photographs (default {samples})")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way (default 3)")
    parser.add_argument("--one", nargs=3, metavar=("WAY", "FOLDER", "OUT"), help=argparse.SUPPRESS)
    return parser.parse_args()


def run_in_turn(module: str, ways: Sequence[str], arguments: argparse.Namespace, folder: Path) -> dict[str, list[Told]]:
    """What each run of each way has told."""
    told = folder / "told.json"
    runs: dict[str, list[Told]] = {way: [] for way in ways}
    for number in range(arguments.rounds):
        for way in ways:
            more = ["--workers", arguments.workers, "--one", way, folder, told]
            subprocess.run([sys.executable, "-m", module, *map(str, more)], check=True)
            runs[way].append(json.loads(told.read_text()))
            print(f"{number + 1}, {way}: {runs[way][-1]['samples_per_second']:.0f} samples/s", file=sys.stderr)
    return runs


def second_epoch(way: Way, look: Callable[[Any], None], count_of: Callable[[Any], int]) -> Told:
    """The second epoch of a way, in this process. `look` sees each batch of the first."""
    for batch in way.epoch():
        look(batch)
    begun, own, of_all, count, batches = time.monotonic(), time.process_time(), _cpu_seconds(way), 0, 0
    for batch in way.epoch():
        count, batches = count + count_of(batch), batches + 1
    seconds, own, of_all = time.monotonic() - begun, time.process_time() - own, _cpu_seconds(way) - of_all
    way.end()
    cpu = {"cpu_ms_a_batch": 1e3 * own / batches, "cpu_ms_a_sample": 1e3 * of_all / count}
    return {"samples_per_second": count / seconds, **cpu, "samples": count}


def table(record: Record, beside: str) -> list[str]:
    """The rows of a report: each way beside one of them."""
    lines = [
        f"| | samples/s | beside {beside} | CPU of all processes, ms a sample | of the training's, ms a batch |",
        "|---|---:|---:|---:|---:|",
    ]
    rates = {row["way"]: statistics.median(run["samples_per_second"] for run in row["runs"]) for row in record["rows"]}
    for row in record["rows"]:
        cpu = [statistics.median(run[name] for run in row["runs"]) for name in ("cpu_ms_a_sample", "cpu_ms_a_batch")]
        rate = rates[row["way"]]
        lines.append(f"| {row['way']} | {rate:,.0f} | {rate / rates[beside]:.2f} x | {cpu[0]:.2f} | {cpu[1]:.2f} |")
    return [*lines, ""]


def photograph(draw: np.random.Generator, size: tuple[int, int] = PHOTOGRAPH) -> Image.Image:
    """Much like a photograph: large soft shapes and a little grain."""
    soft = Image.fromarray(draw.integers(0, 256, (5, 7, 3), np.uint8)).resize(size, Image.Resampling.BICUBIC)
    grain = draw.integers(-12, 13, (size[1] // 2, size[0] // 2, 1)).repeat(2, 0).repeat(2, 1)
    picture = np.asarray(soft).astype(np.int16)
    picture[: grain.shape[0], : grain.shape[1]] += grain
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8))


def _cpu_seconds(way: Way) -> float:
    """CPU time of this process, of those that it has started, and of daemons, which may be among them."""
    here = os.getpid()
    return sum(map(cpu_seconds, {here, *way.daemons} - set(below(here))))
