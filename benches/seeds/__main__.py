"""SHADE's own experiment on one machine: CIFAR-10 on a shared slow store, four nodes of two GPUs, DDP.

    python -m benches.seeds --programs target/release

Nodes are network namespaces, GPUs are processes of PyTorch on the CPU. Five ways to feed the same
training: PyTorch's DataLoader with DistributedSampler, and shade by importance with a Redis cluster
and without, with permutations, and with its defaults."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shade_load import __version__

from benches import recorded
from benches.rivals.report import Start
from benches.seeds import redis
from benches.seeds.report import report, said
from benches.seeds.task import DATALOADER, DEFAULTS, PERMUTATIONS, REDIS, WAYS, Task
from demo import data
from studies import image_sets
from studies import slow_store as stores
from studies.hosts import NoHosts, hosts


def main() -> int:
    """Runs the ways, writes results.json and report.md; returns the exit status."""
    arguments = _arguments()
    failures = (image_sets.NotAvailable, NoHosts)
    return recorded.write("seeds", arguments.out, partial(_run, arguments), report, failures)


def _arguments() -> argparse.Namespace:
    parser = recorded.options("benches.seeds", __doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="an ImageFolder with train/ and val/ (default: CIFAR-10)")
    parser.add_argument("--samples", type=int, default=20_000, help="of CIFAR-10's 50,000 (default 20000)")
    parser.add_argument("--epochs", type=int, default=5, help="of each training (default 5)")
    parser.add_argument("--nodes", type=int, default=4, help="network namespaces (default 4)")
    parser.add_argument("--ranks", type=int, default=2, help="processes of each node (default 2)")
    parser.add_argument("--cache", type=float, default=0.2, help="all caches together, of the dataset (default 0.2)")
    parser.add_argument("--rep", type=float, default=3.0, help="factor of draws of cached samples (default 3)")
    parser.add_argument("--workers", type=int, default=1, help="of each rank's DataLoader (default 1)")
    parser.add_argument("--delay-us", type=int, default=2000, help="microseconds of an operation (default 2000)")
    parser.add_argument("--at-once", type=int, default=4, help="operations that the store serves at once (default 4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--way", choices=WAYS, action="append", help="these ways only; may be repeated")
    return parser.parse_args()


def _run(arguments: argparse.Namespace, scratch: Path, start: Start) -> dict[str, Any]:
    """These ways, and where they were measured.

    Raises:
        OSError: No file system can be mounted here: there would be no shared store.
        NoHosts: There are no network namespaces here.
    """
    store = recorded.mounted(arguments.programs, arguments.delay_us, arguments.at_once, scratch)
    with hosts(arguments.nodes):
        # Told before the data is made.
        pass
    ways = list(arguments.way or WAYS)
    why = redis.missing()
    if arguments.nodes < redis.SERVERS_MIN:
        why = f"a cluster has {redis.SERVERS_MIN} servers at least"
    if REDIS in ways and why:
        ways.remove(REDIS)
        print(f"left out: {REDIS}: {why}", file=sys.stderr)
    images = _images(arguments, scratch)
    packed = {split: scratch / f"{split}.shade" for split in ("train", "val")}
    for split, target in packed.items():
        recorded.pack(images.folder / split, target)
    info = recorded.info(packed["train"])
    rows = [_way(way, arguments, store, images, packed, info["stored_bytes"]) for way in ways]
    result = start.finish({"shade": __version__, "torch": version("torch")}, rows)
    told = ("epochs", "nodes", "ranks", "cache", "rep", "workers", "seed", "delay_us", "at_once")
    return {
        **result,
        "images": images.folder.name,
        "samples": info["samples"],
        "stored_bytes": info["stored_bytes"],
        **{name: getattr(arguments, name) for name in told},
    }


def _images(arguments: argparse.Namespace, scratch: Path) -> data.Images:
    if arguments.data is not None:
        return data.Images(arguments.data.resolve(), 32, has_side=False)
    target = scratch / "cifar10"
    image_sets.load("cifar10").first(arguments.samples).write(target)
    return data.Images(target, 32, has_side=True)


def _way(
    way: str,
    arguments: argparse.Namespace,
    store: stores.SlowStore,
    images: data.Images,
    packed: dict[str, Path],
    stored_bytes: int,
) -> dict[str, Any]:
    """One training over the store."""
    of_a_node = arguments.cache / arguments.nodes
    with tempfile.TemporaryDirectory(dir=store.mountpoint.parent) as folder:
        told = Path(folder, "task.json")
        task = Task(
            way=way,
            train=str(store.mountpoint),
            val=str(packed["val"]),
            side=images.side,
            has_side=images.has_side,
            nodes=arguments.nodes,
            ranks=arguments.ranks,
            epochs=arguments.epochs,
            cache={DATALOADER: 0.0, DEFAULTS: arguments.cache}.get(way, of_a_node),
            tier_bytes=round(of_a_node * stored_bytes) if way == REDIS else 0,
            rep=1.0 if way in (PERMUTATIONS, DEFAULTS) else arguments.rep,
            workers=arguments.workers,
            seed=arguments.seed,
            results=folder,
        )
        task.write(told)
        source = images.folder / "train" if way == DATALOADER else packed["train"]
        operations = store.run(source.resolve(), lambda mounted: [sys.executable, "-m", "benches.seeds.nodes", told])
        ranks = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(task.nodes * task.ranks)]
    memory = {"caches": task.nodes * task.cache, "tier": task.nodes * task.tier_bytes / stored_bytes}
    row = {"way": way, "memory": memory, "operations": operations, "epochs": _epochs(ranks)}
    print(said(row), flush=True)
    return row


def _epochs(ranks: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each epoch's figures of all ranks together: counts are sums, a stall is the ranks' mean."""
    epochs = []
    for number, of_ranks in enumerate(zip(*ranks, strict=True)):
        names = [name for name in of_ranks[0]["counts"] if name != "tier"]
        totals = {name: sum(rank["counts"][name] for rank in of_ranks) for name in names}
        before = {name: sum(rank[number - 1]["counts"][name] for rank in ranks) if number else 0 for name in totals}
        epochs.append(
            {
                "seconds": round(max(rank["seconds"] for rank in of_ranks), 3),
                "stall_seconds": round(sum(rank["stall_seconds"] for rank in of_ranks) / len(of_ranks), 3),
                "distinct_share": round(of_ranks[0]["distinct_share"], 4),
                "accuracy": round(of_ranks[0]["accuracy"], 4),
                **{name: totals[name] - before[name] for name in totals},
                "tier": [rank["counts"].get("tier") for rank in of_ranks],
            }
        )
    return epochs


if __name__ == "__main__":
    sys.exit(main())
