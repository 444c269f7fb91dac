"""Trains a small CNN on a slow store three times: with PyTorch's DataLoader, and twice with shade.

    make demo                              # builds what it needs, then runs `python -m demo`
    make demo DATA=path/to/imagefolder EPOCHS=10 OUT=my-demo
    make demo DEMO_ARGS="--delay-us 500 --at-once 32"

Data      CIFAR-10, the first 25,000 + 10,000 images as PNGs; 5 epochs; cache 20 %
Machine   2 cores of an AMD EPYC, 2026-11-23, busy with two other trainings; the store is
          shade-slow-store: 2 ms an operation, 4 at once
Time      8 minutes; training 317 s with the DataLoader, 57 s with shade and permutations; waiting
          for batches 282 and 23 s. The third run was another one then (pads: 36 s, waiting 11 s)
Accuracy  71.95 %, 72.46 %
n         1 run each, seed 0: too few to tell accuracies a per cent apart

It prints a table for each run and one for all, says why they differ, and writes OUT/result.json and
OUT/plot.png."""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shade_load import ShadeError, find_daemon

from demo import data, output
from demo.task import DATALOADER, RUNS, Task
from studies import slow_store as stores

CORES = len(os.sched_getaffinity(0))


def main() -> int:
    """Runs the demo; returns the exit status: 0 done, 1 failed, 130 interrupted."""
    arguments = parse_arguments()
    try:
        run(arguments)
    except KeyboardInterrupt:
        print("\ninterrupted: nothing was written", file=sys.stderr)
        return stores.INTERRUPTED
    except (OSError, subprocess.CalledProcessError, ShadeError, stores.Failed) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="an ImageFolder, with or without train/ and val/ (default: built in)")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for data and results")
    parser.add_argument("--programs", type=Path, default=Path("target/release"), help="folder with shade-slow-store")
    parser.add_argument("--epochs", type=_count, default=5, help="epochs of each run (default 5)")
    parser.add_argument("--image-size", type=_count, help="side in pixels of images of yours (default 64)")
    parser.add_argument("--cache", default="20%", help="shade's: a share of the packed data, or bytes (default 20%%)")
    parser.add_argument("--workers", type=_count, default=4, help="of the DataLoader (default 4)")
    parser.add_argument("--delay-us", type=_count, default=2000, help="microseconds of an operation (default 2000)")
    parser.add_argument("--at-once", type=_count, default=4, help="operations that the store serves at once (default 4)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected 1 or more")
    return number


def run(arguments: argparse.Namespace) -> None:
    """The whole demo; raises what stops it."""
    # The slow store and the trainings get whole paths.
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    images = data.given(arguments.data, out, arguments.image_size) if arguments.data else data.built_in(out)
    packed, val = (
        pack(images.folder / split, data.anew(out, f"{images.folder.name}-{split}.shade")) for split in ("train", "val")
    )
    files = (images.folder / "train").resolve()
    slow_store = stores.find(arguments.programs, arguments.delay_us, arguments.at_once, out)
    print(f"\n{slow_store}")
    runs: dict[str, output.Run] = {}
    for name in RUNS:
        print(f"\n{name}", flush=True)
        runs[name] = train(name, files, files if name == DATALOADER else packed, val, images, slow_store, arguments)
    print(f"\n{output.summary(runs)}\n\n{output.why(runs, slow_store, arguments.workers)}")
    write(runs, slow_store, arguments)


def pack(source: Path, target: Path) -> Path:
    """Packs an ImageFolder anew: its files may have changed since the last run."""
    program = find_daemon().with_name("shade-pack")
    subprocess.run([program, "create", "--no-sync", source, target], check=True)
    return target


def train(
    name: str,
    files: Path,
    source: Path,
    val: Path,
    images: data.Images,
    slow_store: stores.SlowStore,
    arguments: argparse.Namespace,
) -> output.Run:
    """One run over the store, in a process of its own; returns its figures."""
    told, result = (slow_store.mountpoint.with_name(f"{kind}.json") for kind in ("task", "epochs"))

    def command(train_set: Path) -> list[Any]:
        Task(
            run=name,
            train=str(train_set),
            val=str(val),
            file_bytes=sum(path.stat().st_size for path in files.rglob("*") if path.is_file()),
            side=images.side,
            has_side=images.has_side,
            epochs=arguments.epochs,
            cache=arguments.cache,
            workers=arguments.workers,
            seed=arguments.seed,
            simulated=slow_store.program is None,
            delay_us=arguments.delay_us,
            at_once=arguments.at_once,
            result=str(result),
        ).write(told)
        return [sys.executable, "-u", "-m", "demo.train_process", told]

    operations = slow_store.run(source, command)
    return {**json.loads(result.read_text()), "operations": operations}


def write(runs: dict[str, output.Run], slow_store: stores.SlowStore, arguments: argparse.Namespace) -> None:
    """The result as JSON and as a picture."""
    result = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(sys.orig_argv),
        "machine": f"{CORES} cores, {platform.platform()}",
        "versions": f"Python {platform.python_version()}, PyTorch {version('torch')}",
        "store": str(slow_store),
        "store_simulated": slow_store.program is None,
        "runs": runs,
    }
    json_path, plot_path = arguments.out / "result.json", arguments.out / "plot.png"
    json_path.write_text(json.dumps(result, indent=2) + "\n")
    output.plot(runs, plot_path)
    print(f"\nwritten: {json_path}, {plot_path}")


if __name__ == "__main__":
    sys.exit(main())
