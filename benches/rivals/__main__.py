"""`python -m benches.rivals BENCH`: shade beside every installed rival, over the same images.

BENCH is `pack`, `read`, `decode`, `augment`, `recipes`, `hand-over` or `train`. Each run is a process of its
own, and all take turns. `make bench-rivals` sets everything up and runs this."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benches.rivals import augment, decode, hand_over, pack, read, recipes, report, train
from benches.rivals.kinds import KINDS
from benches.rivals.places import PLACES
from benches.rivals.rounds import NotMeasured

ROOT = Path(__file__).parents[2]
BENCHES = {
    "pack": pack,
    "read": read,
    "decode": decode,
    "augment": augment,
    "recipes": recipes,
    "hand-over": hand_over,
    "train": train,
}


def main() -> int:
    """Runs the comparison; returns the exit status: 0 done, 1 failed, 130 interrupted."""
    arguments = parse_arguments()
    try:
        run(arguments)
    except KeyboardInterrupt:
        return 130
    except (NotMeasured, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.rivals", description=__doc__.splitlines()[0])
    benches = parser.add_subparsers(dest="bench", required=True)
    packing = benches.add_parser("pack", help="making the dataset")
    reading = benches.add_parser("read", help="epochs of raw records: in memory, local disk, and a store 2 ms away")
    decoding = benches.add_parser(
        "decode", help="epochs of decoded batches, warm and cold: photos cropped at random, icons, raw pixels"
    )
    augmenting = benches.add_parser("augment", help="as decode, with a jitter of colours, and with a contrastive recipe")
    of_recipes = benches.add_parser("recipes", help="as decode, with the recipes of four publications, to floats")
    of_recipes.add_argument(
        "--quick", action="store_true", help=f"{recipes.QUICK_FILES} files and one round: shows that all of it runs"
    )
    handing = benches.add_parser("hand-over", help="the training loop's time to take a decoded batch")
    training = benches.add_parser("train", help="training on a GPU, beside the same with nothing to load")
    training.add_argument("--model", choices=train.MODELS, default="resnet50", help="of torchvision (default resnet50)")
    training.add_argument("--files", type=_positive, default=train.FILES, help=f"how many (default {train.FILES})")
    for with_workers in (packing, decoding, augmenting, of_recipes, handing, training):
        with_workers.add_argument(
            "--workers", type=_positive, default=2, help="processes or threads of each (default 2)"
        )
    reading.add_argument("--place", action="append", choices=PLACES, help="from there only; may be repeated")
    icons = KINDS["icons"].files
    decoding.add_argument("--icons", type=_positive, default=icons, help=f"how many to take (default {icons})")
    pixels = KINDS["pixels"].files
    decoding.add_argument("--pixels", type=_positive, default=pixels, help=f"how many to make (default {pixels})")
    for of_images, bench in {decoding: decode, augmenting: augment, of_recipes: recipes}.items():
        of_images.add_argument("--kind", action="append", choices=bench.KIND_NAMES, help="this one; may be repeated")
    with_data = {packing: pack, reading: read, decoding: decode, augmenting: augment, of_recipes: recipes}
    for with_files, files in ((of_bench, bench.FILES) for of_bench, bench in with_data.items()):
        with_files.add_argument("--data", type=Path, help="an ImageFolder of yours (default: made JPEGs, 110 KB each)")
        with_files.add_argument("--files", type=_positive, default=files, help=f"how many to make (default {files})")
    for name, parser_of_one in benches.choices.items():
        _add_common(parser_of_one, BENCHES[name].NAMES)
    return parser.parse_args()


def _add_common(parser: argparse.ArgumentParser, names: list[str]) -> None:
    parser.add_argument("--rounds", type=_positive, default=3, help="runs of each (default 3)")
    parser.add_argument("--only", action="append", choices=names, help="this one; may be repeated")
    parser.add_argument("--out", type=Path, help="the file of results (default: one in benches/record, by date)")
    parser.add_argument(
        "--programs",
        type=lambda text: Path(text).resolve(),
        default=ROOT / "target/release",
        help="where the release builds of our programs are",
    )
    parser.add_argument(
        "--scratch", type=Path, help="where data is written and removed (default: TMPDIR, else beside the programs)"
    )


def run(arguments: argparse.Namespace) -> None:
    started = report.Start()
    if started.is_busy():
        print(f"warning: {report.BUSY}", file=sys.stderr)
    bench = BENCHES[arguments.bench]
    parent = arguments.scratch or os.environ.get("TMPDIR") or arguments.programs
    with tempfile.TemporaryDirectory(prefix="shade-rivals-", dir=parent) as scratch:
        # What libraries leave in the folder for temporary files goes with the rest.
        os.environ["TMPDIR"] = scratch
        versions, rows = bench.compare(arguments, Path(scratch).resolve())
    result = started.finish(versions, rows)
    print(report.table(result, bench.details))
    out = arguments.out or ROOT / "benches/record" / f"{result['date'][:10]}-rivals-{arguments.bench}.json"
    report.write(result, out)
    print(f"written: {out}")
    if arguments.bench == "decode":
        # Here: of all the benches only this one needs matplotlib, which takes a second.
        from benches.rivals import plot

        plot.draw(result, out.with_suffix(".svg"))
        print(f"written: {out.with_suffix('.svg')}")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
