"""A training for test_compare.py, without torch: its score follows from the samples that it is given.

    compared_train.py TRAIN VAL EPOCHS [SEED] [--starts FILE] [--losses] [--report] [--fails] [--hangs EPOCH]
                      [--val-first] [--tier SERVERS]
"""

import argparse
import os
import sys
import time
import zlib
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

# Its import takes seconds.
sys.modules["torch"] = None  # type: ignore[assignment]

from shade_load import Daemon, Loader, Plan  # noqa: E402

BATCH = 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("train")
    parser.add_argument("val")
    parser.add_argument("epochs", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--starts", type=Path)
    parser.add_argument("--sampler")
    parser.add_argument("--losses", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--fails", action="store_true")
    parser.add_argument("--hangs", type=int)
    parser.add_argument("--val-first", action="store_true")
    parser.add_argument("--tier")
    args = parser.parse_args()
    if args.starts is not None:
        with args.starts.open("a", encoding="utf-8") as starts:
            starts.write(f"{os.getpid()}\n")
    train(args)


def train(args: argparse.Namespace) -> None:
    seen = b""
    daemon = Daemon(tier=args.tier)
    # On the training's dataset: it starts the daemon of both.
    first: AbstractContextManager[object] = nullcontext()
    if args.val_first:
        first = Loader(args.train, BATCH, train=False, daemon=daemon)
    with (
        first,
        Loader(args.train, BATCH, plan=Plan(sampler=args.sampler), daemon=daemon) as loader,
        Loader(args.val, BATCH, train=False, daemon=daemon) as val,
    ):
        for epoch in range(args.epochs):
            loader.set_epoch(epoch)
            for batch in loader:
                ids = batch.ids.tolist()
                seen += bytes(ids)
                if args.losses:
                    loader.report(batch, [1.0 + id for id in ids])
            samples = sum(len(batch.ids) for batch in val)
            score = 50 + zlib.crc32(seen) % 1000 / 1000
            print(f"epoch {epoch}: {samples} samples, accuracy {score}")
            if args.report:
                loader.report_validation(score)
            if epoch == args.hangs:
                time.sleep(3600)
    if args.fails:
        raise SystemExit("the loss is not finite")


if __name__ == "__main__":
    main()
