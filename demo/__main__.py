"""Trains a small CNN twice over a simulated slow store, without and with shade's plan and cache.

    make demo                              # builds what it needs, then runs `python -m demo`
    make demo DATA=path/to/imagefolder EPOCHS=10 OUT=my-demo
    make demo DEMO_ARGS="--rep 2 --depth 16 --store-delay 500us"

Data      Fashion-MNIST, 60,000 + 10,000 PNGs; 6 epochs; cache 20 %
Machine   2 cores of an AMD EPYC, 2026-11-21; simulated store: 2 ms a read, 4 reads at a time
Time      6 minutes; training 153 s with uniform + LRU, 101 s with PADS + lookahead
Accuracy  91.36 % with uniform + LRU, 91.26 % with PADS + lookahead
n         1 run each, seed 0: too few to tell accuracies half a per cent apart

It prints a table for each run and one for both, and writes OUT/result.json and OUT/plot.png."""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from shade_load import Daemon, Loader, Plan, find_daemon
from torch import nn

from demo import data

CORES = len(os.sched_getaffinity(0))
BATCH = 128
LEARNING_RATE = 0.1
# What differs between the runs: who draws an epoch's samples, and what the cache keeps.
RUNS = {"uniform + lru": ("uniform", "lru"), "pads + lookahead": ("pads", "lookahead")}
# The figures of an epoch as they are printed. `distinct` is the share of distinct samples among
# those delivered, `stall s` the time that the training loop waited for batches.
COLUMNS = {
    "epoch": "{}", "loss": "{:.4f}", "accuracy": "{:.2%}", "hit ratio": "{:.1%}", "distinct": "{:.1%}",
    "read MB": "{:.1f}", "stall s": "{:.1f}", "time s": "{:.1f}",
}  # fmt: skip
SUMS = ("read MB", "stall s", "time s")
PLOTTED = ("accuracy", "hit ratio", "read MB", "stall s")
NOTES = """How to read this
- Times compare the two runs over this store. Another machine or a real store gives others.
- Hit ratio = hits / samples delivered. Do not divide the two ratios: LRU over permutations hits next to nothing, as a
  sample is mostly evicted before it comes again. LRU over draws with replacement would hit the cache's share.
- PADS draws with replacement: fewer distinct samples an epoch, and hard ones more often. Compare accuracies, not
  losses. Each is one run with one seed."""

# The figures of one epoch.
Epoch = dict[str, Any]


def main() -> int:
    """Runs the demo; returns the exit status: 0 done, 1 failed, 130 interrupted."""
    arguments = parse_arguments()
    try:
        run(arguments)
    except KeyboardInterrupt:
        print("\ninterrupted: nothing was written", file=sys.stderr)
        return 130
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="an ImageFolder, with or without train/ and val/ (default: built in)")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for data and results")
    parser.add_argument("--epochs", type=int, default=6, help="epochs of each run (default 6)")
    parser.add_argument("--image-size", type=int, help="side in pixels (default 28 for Fashion-MNIST, else 64)")
    parser.add_argument("--cache", default="20%", help="a share of the packed data, or bytes (default 20%%)")
    parser.add_argument("--store-delay", default="2ms", help="time of each read; 0: the disk as it is (default 2ms)")
    parser.add_argument("--depth", type=int, default=4, help="reads in flight: 4 as 4 workers have (default 4)")
    parser.add_argument("--rep", type=float, default=1.0, help="run 2 draws cached samples so much oftener (default 1)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    """The whole demo; raises what stops it."""
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    folder = data.given(arguments.data, out) if arguments.data else data.built_in(out)
    arguments.image_size = arguments.image_size or (28 if folder.name == "fashion-mnist" else 64)
    train_set, val_set = (pack(folder / split, out / f"{folder.name}-{split}.shade") for split in ("train", "val"))
    # One core is left for the daemon and the simulated store.
    torch.set_num_threads(max(1, min(4, CORES - 1)))
    if arguments.store_delay != "0":
        print(f"SIMULATED STORE: each read takes {arguments.store_delay}, {arguments.depth} reads at a time.")
    validation = read_all(val_set, arguments.image_size)
    runs = {}
    for name, (sampler, policy) in RUNS.items():
        print(f"\n{name}", flush=True)
        runs[name] = train(train_set, validation, arguments, sampler, policy)
    print(f"\n{summary(runs)}\n\n{NOTES}")
    result = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(sys.orig_argv),
        "machine": f"{CORES} cores, {platform.platform()}",
        "versions": f"Python {platform.python_version()}, PyTorch {torch.__version__}",
        "store_simulated": arguments.store_delay != "0",
        "runs": runs,
    }
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    plot(runs, out / "plot.png")
    print(f"\nwritten: {out / 'result.json'}, {out / 'plot.png'}")


def pack(source: Path, target: Path) -> Path:
    """Packs an ImageFolder anew: its files may have changed since the last run."""
    shutil.rmtree(target, ignore_errors=True)
    program = find_daemon().with_name("shade-pack")
    subprocess.run([program, "create", "--no-sync", source, target], check=True)
    return target


def read_all(dataset: Path, image_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All images and labels in memory, apart from the runs' cache and store."""
    daemon = Daemon(job=f"demo-{os.getpid()}")
    with Loader(dataset, 500, image_size=image_size, train=False, daemon=daemon) as loader:
        batches = [(batch.images.clone(), batch.labels.clone()) for batch in loader]
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def train(
    dataset: Path,
    validation: tuple[torch.Tensor, torch.Tensor],
    arguments: argparse.Namespace,
    sampler: str,
    policy: str,
) -> list[Epoch]:
    """Trains a model from the seed; prints and returns the figures of each epoch."""
    epochs: list[Epoch] = []
    with Loader(
        dataset,
        BATCH,
        image_size=arguments.image_size,
        cache=arguments.cache,
        seed=arguments.seed,
        plan=Plan(sampler=sampler, rep=arguments.rep if sampler == "pads" else 1.0),
        daemon=Daemon(
            policy=policy,
            store=None if arguments.store_delay == "0" else f"latency={arguments.store_delay}",
            depth=arguments.depth,
            # A daemon stays for a moment. The next run, with other settings, must not meet it.
            job=f"demo-{os.getpid()}-{sampler}",
        ),
    ) as loader:
        model = make_model(len(loader.classes), arguments.seed)
        optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
        steps = arguments.epochs * len(loader)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
        for number in range(arguments.epochs):
            epochs.append({"epoch": number, **train_epoch(loader, model, optimizer, schedule)})
            counts = loader.stats()["epoch"]
            epochs[-1] |= {
                "accuracy": accuracy(model, *validation),
                "hit ratio": counts["hit_ratio"],
                "distinct": counts["distinct_share"],
                "read MB": counts["bytes_read"] / 1e6,
            }
            print_epoch(epochs[-1])
    return epochs


def make_model(classes: int, seed: int) -> nn.Module:
    """Three convolutions: two CPU cores outrun the store. The same weights for the same seed."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for channels, width in ((3, 16), (16, 32), (32, 64)):
        convolution = nn.Conv2d(channels, width, kernel_size=3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * 64, classes))


def normalise(images: torch.Tensor) -> torch.Tensor:
    """Floats about zero. They are a copy: the loader's memory is free again when the batch goes."""
    return images.float().sub_(127.5).div_(64.0)


def train_epoch(
    loader: Loader,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> Epoch:
    """Returns the mean loss, the time, and how much of it the loop waited for batches."""
    loss, samples, stall, started = 0.0, 0, 0.0, time.perf_counter()
    batches = iter(loader)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        stall += time.perf_counter() - asked
        if batch is None:
            return {"loss": loss / samples, "stall s": stall, "time s": time.perf_counter() - started}
        losses = nn.functional.cross_entropy(model(normalise(batch.images)), batch.labels, reduction="none")
        loader.report(batch, losses)
        optimizer.zero_grad(set_to_none=True)
        losses.mean().backward()
        optimizer.step()
        schedule.step()
        loss += float(losses.detach().sum())
        samples += len(losses)


@torch.inference_mode()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of the images that the model classifies rightly."""
    model.eval()
    found = torch.cat([model(normalise(part)).argmax(1) for part in images.split(1000)])
    model.train()
    return float((found == labels).float().mean())


def print_epoch(epoch: Epoch) -> None:
    """One row of a run's table; the first has the headings above it."""
    if epoch["epoch"] == 0:
        print("  ".join(f"{name:>9}" for name in COLUMNS))
    print("  ".join(f"{show.format(epoch[name]):>9}" for name, show in COLUMNS.items()), flush=True)


def summary(runs: dict[str, list[Epoch]]) -> str:
    """The runs side by side."""
    lines = [" " * 20 + "".join(f"  {run:>16}" for run in runs)]
    for name, show in list(COLUMNS.items())[1:]:
        is_sum = name in SUMS
        values = [sum(epoch[name] for epoch in run) if is_sum else run[-1][name] for run in runs.values()]
        title = f"{name}, {'all' if is_sum else 'last'}"
        lines.append(f"{title:20}" + "".join(f"  {show.format(value):>16}" for value in values))
    return "\n".join(lines)


def plot(runs: dict[str, list[Epoch]], path: Path) -> None:
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axis, figure_name in zip(figure.subplots(2, 2).flat, PLOTTED, strict=True):
        for (run, epochs), style in zip(runs.items(), ("o--", "s-"), strict=True):
            axis.plot([epoch[figure_name] for epoch in epochs], style, label=run)
        axis.set_title(f"{figure_name} by epoch")
    figure.axes[0].legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
