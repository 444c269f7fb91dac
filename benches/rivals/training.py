"""Training on a GPU, fed by each loader in turn, beside the same training with nothing to load.

Each run is a fresh process. Files are in the page cache, or in a store of which nothing is in memory."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benches.rivals import images, report
from benches.rivals.decoded import BATCH
from benches.rivals.places import PageCache, Store
from benches.rivals.turns import Left, NotMeasured, skip, take_turns, tell

# What `trained` takes, in the order of the table.
TRAINERS = {
    "nothing": "nothing to load",
    "shade": "shade Loader",
    "shade_marked": "shade Loader, restart markers",
    "imagefolder": "ImageFolder, PIL",
    "imagefolder_fast": "ImageFolder, fast decoder",
}
BOUND, OURS = "nothing", "shade"
NAMES = list(TRAINERS)
MODELS = ("resnet18", "resnet50")
FILES = 12_000
SECONDS_MAX = 600


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """Versions and rows of all that can be measured here."""
    root = scratch / "root"
    root.mkdir()
    images.make(arguments.programs, arguments.files, scratch).rename(root / "files")
    sizes = [path.stat().st_size for path in (root / "files").rglob("*") if path.is_file()]
    folders, versions = {}, {}
    for name, title in TRAINERS.items():
        if name in (arguments.only or TRAINERS):
            print(f"preparing: {title} ...", file=sys.stderr)
            try:
                told = tell(_trained(name, arguments, root, "prepare"), SECONDS_MAX)
            except Left as why:
                skip(title, why)
            else:
                folders[name], versions["gpu"] = told["folder"], told["device"]
    rows = []
    # The last epoch is timed: the second, or one of which nothing is in memory.
    for place, epochs in ((PageCache("in memory"), 2), (Store("2 ms an operation", arguments.programs), 1)):
        print(f"{place.name}:", file=sys.stderr)

        def one(name: str, place: PageCache | Store = place, epochs: int = epochs) -> dict[str, float]:
            command = partial(
                _trained, name, arguments, what=str(epochs), rest=(arguments.model, str(len(sizes)))
            )
            return place.tell(root, root / folders[name], command, SECONDS_MAX)["epochs"][-1]

        try:
            place.try_out(root)
            runs = take_turns({name: TRAINERS[name] for name in folders}, arguments.rounds, one)
        except (Left, NotMeasured) as why:
            skip(place.name, why)
        else:
            rows += _rows(f"{arguments.model}, {place.name}", sizes, runs)
    if not rows:
        raise NotMeasured("nothing of it runs here")
    return versions, rows


def _trained(name: str, arguments: argparse.Namespace, root: Path, what: str, rest: tuple[str, ...] = ()) -> list[Any]:
    words = [name, root, arguments.programs, str(arguments.workers), what, *rest]
    # Everything that it starts, daemons too, is below whole_tree and has ended when it ends.
    return [sys.executable, "-m", "benches.rivals.whole_tree", sys.executable, "-m", "benches.rivals.trained", *words]


def _rows(what: str, sizes: list[int], runs: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """A row for each, which says how much of the bound it is; the others' say how shade stands to them."""
    trained = len(sizes) // BATCH * BATCH
    made = {}
    for name, each in runs.items():
        rates = [trained / run["seconds"] for run in each]
        row = report.row(f"{TRAINERS[name]}, {what}", rates, "samples/s", sum(sizes) / len(sizes))
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
