"""What several nodes that train together hit, read and wait, live: real daemons, trainers that sleep.

    python -m benches.nodes.live --programs target/release

All daemons are on this machine and read real PNGs from one store. One daemon with all of the cache
and `shade-load simulate` play the same trainings."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from PIL import Image
from shade_load import __version__

from benches import recorded
from benches.nodes import live_report
from benches.nodes.live_process import Task
from benches.nodes.live_report import CACHED, DEPTH, HITS, SCALING
from benches.rivals.report import Start
from studies.slow_store import SlowStore

CLASSES = 10
CACHE = 0.2
# Caches that hold the dataset together: strata differ a little in length.
ALL = 1.04
# Sampler, and how many times as often cached samples are drawn: 3 in SHADE's experiment.
PLANS = (("pads", 1.0), ("pads", 3.0), ("uniform", 1.0))
SEEDS = 3
# Sides of the images: hits need many, and elsewhere no two records should often be neighbours that
# one read brings, which one node would have more of than several.
SMALL, LARGE = 32, 80
BATCH = {HITS: 32, SCALING: 16, CACHED: 16, DEPTH: 128}
# Long enough for eight nodes to take far less than one of two cores.
COMPUTE_US = {HITS: 500, SCALING: 4000, CACHED: 1000, DEPTH: 0}
# The store's part of a node: two thirds of it are needed where half of the samples hit.
DELAY_US, SLOTS_EACH = 5000, 1
# A store with many slots that two cores can play. Its reads are not quick to the controllers.
DEEP_DELAY_US, DEEP_SLOTS = 20_000, 64
# What the reads of a local disk take, for the simulator.
LOCAL = "latency=200us,depth=64"


@dataclass(frozen=True)
class Scale:
    """How large the runs are."""

    # Samples of the hits, and of each node elsewhere.
    samples: int
    samples_each: int
    nodes: tuple[int, ...]
    epochs: int
    # Epochs in which controllers find their depth.
    deep_epochs: int


FULL = Scale(samples=60_000, samples_each=2560, nodes=(1, 2, 4, 8), epochs=5, deep_epochs=10)
QUICK = Scale(samples=1280, samples_each=320, nodes=(1, 2), epochs=3, deep_epochs=2)


def main() -> int:
    """Runs all, writes results.json and report.md; returns the exit status."""
    parser = recorded.options("benches.nodes.live", __doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few samples and nodes: shows that it runs")
    parser.add_argument("--part", choices=live_report.PARTS, action="append", help="these parts only; may be repeated")
    arguments = parser.parse_args()
    scale, parts = QUICK if arguments.quick else FULL, arguments.part or live_report.PARTS
    measure = partial(_measure, scale, parts, arguments.programs)
    return recorded.write("nodes-live", arguments.out, measure, live_report.report)


def _measure(scale: Scale, parts: tuple[str, ...], programs: Path, scratch: Path, start: Start) -> recorded.Record:
    store = recorded.mounted(programs, DELAY_US, 1, scratch)
    rows: list[dict[str, Any]] = []
    for part in live_report.PARTS:
        if part in parts:
            rows += RUNS[part](scale, store, scratch)
    return {
        **start.finish({"shade": __version__}, rows),
        "samples": scale.samples,
        "samples_each": scale.samples_each,
        "cache": CACHE,
        "batch": BATCH,
        "compute_us": COMPUTE_US,
        "store": {"delay_us": DELAY_US, "slots_each": SLOTS_EACH},
        "deep_store": {"delay_us": DEEP_DELAY_US, "slots": DEEP_SLOTS},
        "simulated_seeds": SEEDS,
    }


def _hits(scale: Scale, store: SlowStore, scratch: Path) -> list[dict[str, Any]]:
    """All nodes beside one daemon with as many ranks, from the local disk."""
    dataset = _dataset(scratch, scale.samples, SMALL)
    train = partial(_train, HITS, replace(store, program=None), dataset, epochs=scale.epochs)
    rows = []
    for sampler, rep in PLANS:
        rows.append(train(nodes=1, ranks=scale.nodes[-1], sampler=sampler, rep=rep))
        row = train(nodes=scale.nodes[-1], sampler=sampler, rep=rep)
        rows.append({**row, "simulated": _simulated(dataset, row, LOCAL)})
    return rows


def _scaling(scale: Scale, store: SlowStore, scratch: Path) -> list[dict[str, Any]]:
    """Ever more nodes, with as many samples and as much of the store for each."""
    rows = []
    for nodes in scale.nodes:
        dataset = _dataset(scratch, nodes * scale.samples_each, LARGE)
        slots = nodes * SLOTS_EACH
        row = _train(SCALING, replace(store, at_once=slots), dataset, nodes=nodes, epochs=scale.epochs)
        rows.append({**row, "simulated": _simulated(dataset, row, f"latency={DELAY_US}us,depth={slots}")})
    return rows


def _cached(scale: Scale, store: SlowStore, scratch: Path) -> list[dict[str, Any]]:
    """Nodes whose caches hold the dataset together."""
    nodes = scale.nodes[-1]
    dataset = _dataset(scratch, nodes * scale.samples_each, LARGE)
    wide = replace(store, at_once=DEEP_SLOTS)
    train = partial(_train, CACHED, wide, dataset, nodes=nodes, cache=ALL, epochs=scale.epochs)
    return [train(sampler=sampler) for sampler in ("pads", "uniform")]


def _depth(scale: Scale, store: SlowStore, scratch: Path) -> list[dict[str, Any]]:
    """Nodes that read as fast as the store answers, each looking for the depth of its reads."""
    most = scale.nodes[-1]
    dataset = _dataset(scratch, most * scale.samples_each, LARGE)
    deep = replace(store, delay_us=DEEP_DELAY_US, at_once=DEEP_SLOTS)
    train = partial(_train, DEPTH, deep, dataset, sampler="uniform", cache=0.0, epochs=scale.deep_epochs)
    return [train(nodes=nodes) for nodes in (1, most)]


RUNS = {HITS: _hits, SCALING: _scaling, CACHED: _cached, DEPTH: _depth}


def _dataset(scratch: Path, samples: int, side: int) -> Path:
    """PNGs of noise, packed. All have one size: nothing is compressed."""
    dataset, images = scratch / f"{samples}-of-{side}.shade", scratch / "images"
    if dataset.exists():
        return dataset
    draw = numpy.random.default_rng(0)
    for label in range(CLASSES):
        of_class = images / f"class-{label}"
        of_class.mkdir(parents=True)
        for number in range(label, samples, CLASSES):
            pixels = draw.integers(0, 256, (side, side, 3), numpy.uint8)
            Image.fromarray(pixels).save(of_class / f"{number:06}.png", compress_level=0)
    recorded.pack(images, dataset)
    shutil.rmtree(images)
    return dataset


def _train(
    part: str,
    store: SlowStore,
    dataset: Path,
    *,
    nodes: int,
    epochs: int,
    ranks: int = 1,
    sampler: str = "pads",
    rep: float = 1.0,
    cache: float = CACHE,
) -> dict[str, Any]:
    """One training over the store."""
    told, kept = (store.mountpoint.with_name(f"{kind}.json") for kind in ("task", "result"))

    def command(mounted: Path) -> list[Any]:
        Task(
            dataset=str(mounted),
            record_bytes=recorded.info(dataset)["record_bytes"]["max"],
            nodes=nodes,
            ranks=ranks,
            sampler=sampler,
            rep=rep,
            cache=cache,
            batch=BATCH[part],
            compute_us=COMPUTE_US[part],
            epochs=epochs,
            seed=0,
            result=str(kept),
        ).write(told)
        return [sys.executable, "-m", "benches.nodes.live_process", told]

    operations = store.run(dataset, command)
    told_of = {"part": part, "nodes": nodes, "ranks": ranks, "sampler": sampler, "rep": rep}
    row = {**told_of, "operations": operations, "epochs": json.loads(kept.read_text())}
    print(live_report.said(row), flush=True)
    return row


def _simulated(dataset: Path, row: dict[str, Any], store: str) -> dict[str, Any]:
    """The simulator's figures of the same training."""
    part, epochs = row["part"], len(row["epochs"])
    words: list[object] = [dataset, "--nodes", row["nodes"], "--ranks-per-node", row["ranks"]]
    words += ["--sampler", row["sampler"], "--rep", row["rep"], "--policy", "lookahead", "--cache", f"{100 * CACHE:g}%"]
    words += ["--batch-size", BATCH[part], "--epochs", epochs, "--skip-epochs", live_report.SKIPPED, "--seeds", SEEDS]
    (found,) = recorded.simulate(*words, "--store", store, "--compute", f"{COMPUTE_US[part]}us/sample")
    wanted = ("hit_ratio", "hit_ratio_ci95", "datasets_per_epoch", "efficiency", "loader_efficiency")
    return {name: found.get(name) for name in wanted}


if __name__ == "__main__":
    sys.exit(main())
