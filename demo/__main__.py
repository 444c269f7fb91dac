"""`python -m demo`: makes or takes an ImageFolder, packs it, trains twice, prints and writes what was measured.

`make demo` sets the machine up and then runs this."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from demo import image_folder, pack

BATCH_SIZE = 128


def main() -> int:
    """Runs the demo; returns the exit status: 0 done, 1 failed, 130 interrupted."""
    arguments = parse_arguments()
    try:
        run(arguments)
    except KeyboardInterrupt:
        print("\ninterrupted: nothing was written", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError as error:
        print(f"demo: {Path(error.cmd[0]).name} failed with exit status {error.returncode}", file=sys.stderr)
        return 1
    except (image_folder.DataError, FileNotFoundError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, help="an ImageFolder, with or without train/ and val/ (default: Fashion-MNIST)"
    )
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for data, result.json and plot.png")
    parser.add_argument("--epochs", type=_positive, default=6, help="epochs of each run (default 6)")
    parser.add_argument("--samples", type=_positive, help="train on the first so many samples of the built-in data set")
    parser.add_argument("--image-size", type=_positive, help="side in pixels (default 28 for Fashion-MNIST, else 64)")
    parser.add_argument(
        "--cache", default="20%", help="cache size: a share of the packed data, or bytes (default 20%%)"
    )
    parser.add_argument(
        "--store-delay",
        default="2ms",
        help="time that each read takes, to stand in for a remote store; 0 = none (default 2ms)",
    )
    parser.add_argument(
        "--depth",
        type=_positive,
        default=4,
        help="reads in flight (default 4: a DataLoader of 4 workers has that many)",
    )
    parser.add_argument(
        "--rep", type=float, default=1.0, help="how many times as often run 2 draws what is cached (default 1: off)"
    )
    # One core is left for the daemon, and for the simulated store.
    threads = max(1, min(4, len(os.sched_getaffinity(0)) - 1))
    parser.add_argument("--threads", type=_positive, default=threads, help=f"PyTorch's threads (here: {threads})")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    """The whole demo; raises what stops it."""
    out: Path = arguments.out
    splits = find_data(arguments)
    train_set, val_set = out / "packed" / f"{splits.name}-train", out / "packed" / f"{splits.name}-val"
    pack.pack(splits.train, train_set)
    pack.pack(splits.val, val_set)

    # Here and not above: importing PyTorch takes seconds, and a wrong argument should not.
    import torch

    from demo import plot, report, train

    torch.set_num_threads(arguments.threads)
    image_size = arguments.image_size or splits.image_size
    validation = train.read_validation(val_set, image_size)
    course = train.Course(
        epochs=arguments.epochs,
        batch_size=BATCH_SIZE,
        image_size=image_size,
        classes=sum(1 for entry in splits.train.iterdir() if entry.is_dir()),
        cache=arguments.cache,
        store_delay=None if arguments.store_delay.strip("0.") in ("", "ms", "s", "us") else arguments.store_delay,
        depth=arguments.depth,
        seed=arguments.seed,
    )
    settings = (
        train.Setting("uniform + lru", sampler="uniform", policy="lru", rep=1.0),
        train.Setting("pads + lookahead", sampler="pads", policy="lookahead", rep=arguments.rep),
    )
    print(
        f"\nvalidation: {len(validation[1]):,} images, read once. Training: batches of {BATCH_SIZE}, "
        f"{arguments.threads} PyTorch threads, cache {course.cache}, {course.depth} reads in flight "
        f"(as many as a DataLoader of {course.depth} workers reading file by file has)."
    )
    if course.store_delay:
        print(f"SIMULATED STORE: each read takes {course.store_delay}.")

    runs = []
    for number, setting in enumerate(settings, start=1):
        print(f"\nrun {number} of {len(settings)}: {setting.name} {_explain(setting.sampler, setting.rep)}")
        sys.stdout.flush()
        runs.append(train.train(train_set, validation, setting, course, report.print_epoch))

    data = describe(splits, runs[0].epochs[0].accesses, len(validation[1]))
    result = report.record(runs, course, data, arguments.threads)
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    plot.draw(result, out / "plot.png")
    print(f"\n{report.summary(runs)}\n\n{report.notes(course)}\n\nwritten: {out / 'result.json'}, {out / 'plot.png'}")


def find_data(arguments: argparse.Namespace) -> image_folder.Splits:
    """The user's ImageFolder, or the built-in one."""
    folder = arguments.out / "data"
    if arguments.data is None:
        return image_folder.built_in(folder, arguments.samples)
    if arguments.samples is not None:
        raise image_folder.DataError("--samples is for the built-in data set only, not for --data")
    return image_folder.given(arguments.data, folder, arguments.seed)


def describe(splits: image_folder.Splits, train_samples: int, val_samples: int) -> dict[str, Any]:
    """The data as the result records it."""
    return {"name": splits.name, "train_samples": train_samples, "val_samples": val_samples}


def _explain(sampler: str, rep: float) -> str:
    if sampler == "uniform":
        return "(as PyTorch users do today: a new permutation each epoch, over a page cache that keeps the latest)"
    drawn = f", what is cached {rep:g} times as often" if rep > 1 else ""
    return f"(an epoch is drawn by importance{drawn}; the cache keeps what matters)"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
