"""Training on a GPU with each loader in turn, beside the same training with nothing to load.

Each run is a fresh process. Files are in the page cache, or in a store with nothing in memory."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benches.rivals import made_images, report
from benches.rivals.kinds import BATCH
from benches.rivals.places import PageCache, Store
from benches.rivals.rounds import (
    LeftOut, NotMeasured, interleave, module_command, print_left_out, run_json, with_cpu_time,
)  # fmt: skip
from benches.rivals.table import TRAIN

BOUND, OURS = "nothing", "shade"
TITLES = {BOUND: "nothing to load"} | {name: row.title for name, row in TRAIN.items()}
NAMES = list(TITLES)
MODELS = ("resnet18", "resnet50")
FILES = 12_000
SECONDS_MAX = 600


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here."""
    root = scratch / "root"
    root.mkdir()
    made_images.make_jpegs(arguments.programs, arguments.files, scratch).rename(root / "files")
    sizes = [path.stat().st_size for path in (root / "files").rglob("*") if path.is_file()]
    folders, versions = {}, {}
    for name, title in TITLES.items():
        if name in (arguments.only or TITLES):
            print(f"preparing: {title} ...", file=sys.stderr)
            try:
                result = run_json(_process(name, arguments, root, "prepare"), SECONDS_MAX)
            except LeftOut as why:
                print_left_out(title, why)
            else:
                folders[name], versions["gpu"] = result["folder"], result["device"]
    rows = []
    # The last epoch is timed: in memory the second one, from the store the first.
    for place, epochs in ((PageCache("in memory"), 2), (Store("2 ms an operation", arguments.programs), 1)):
        print(f"{place.name}:", file=sys.stderr)

        def one(name: str, place: PageCache | Store = place, epochs: int = epochs) -> dict[str, float]:
            command = partial(
                _process, name, arguments, what=str(epochs), rest=(arguments.model, str(len(sizes)))
            )
            return place.run(root, root / folders[name], command, SECONDS_MAX)["epochs"][-1]

        try:
            place.try_out(root)
            runs = interleave({name: TITLES[name] for name in folders}, arguments.rounds, one)
        except (LeftOut, NotMeasured) as why:
            print_left_out(place.name, why)
        else:
            rows += _rows(f"{arguments.model}, {place.name}", sizes, runs)
    if not rows:
        raise NotMeasured("nothing of it runs here")
    return versions, rows


def _process(name: str, arguments: argparse.Namespace, root: Path, what: str, rest: tuple[str, ...] = ()) -> list[Any]:
    words = [name, root, arguments.programs, str(arguments.workers), what, *rest]
    return with_cpu_time(module_command("train_process", *words))


def _rows(what: str, sizes: list[int], runs: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """A row for each with its share of the bound. The others' rows say how many times as fast shade
    is."""
    trained = len(sizes) // BATCH * BATCH
    made = {}
    for name, each in runs.items():
        rates = [trained / run["seconds"] for run in each]
        row = report.row(f"{TITLES[name]}, {what}", rates, "samples/s", sum(sizes) / len(sizes))
        row["first_batch_s"] = report.median([run["first_seconds"] for run in each])
        made[name] = row
    for name, row in made.items():
        if BOUND in made:
            row["of_the_bound"] = row["median"] / made[BOUND]["median"]
        if OURS in made and name not in (OURS, BOUND):
            row["shade_over_this"] = made[OURS]["median"] / row["median"]
    return list(made.values())


def details(row: dict[str, Any]) -> str:
    """What the table says besides rates."""
    words = [f"first batch {row['first_batch_s']:5.2f} s"]
    if "of_the_bound" in row:
        words.append(f"{100 * row['of_the_bound']:3.0f} % of the bound")
    if "shade_over_this" in row:
        words.append(f"shade {row['shade_over_this']:.2f} x")
    return "  ".join(words)
