"""What the demo prints, and its plot."""

from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from demo.task import DATALOADER, ECHO, PERMUTATIONS
from studies.slow_store import FILE_OPERATIONS, SlowStore

# The figures of an epoch as they are printed. `stall s` is the time that the training loop waited
# for batches, `distinct` the share of distinct samples among those delivered.
COLUMNS = {
    "epoch": "{}", "time s": "{:.1f}", "stall s": "{:.1f}", "read MB": "{:.1f}", "hit ratio": "{:.1%}",
    "distinct": "{:.1%}", "loss": "{:.4f}", "accuracy": "{:.2%}",
}  # fmt: skip
# These are added up over the epochs. The summary has the last epoch's value of the others.
SUMS = ("time s", "stall s", "read MB")
# One for each run's line, in their order.
STYLES = ("^:", "o--", "s-")

# A run's figures: `epochs`, `sampler` and, where the store is mounted, `operations`.
Run = dict[str, Any]


def print_epoch(epoch: dict[str, Any]) -> None:
    """One row of a run's table; the first has the headings above it."""
    if epoch["epoch"] == 0:
        print("  ".join(f"{name:>9}" for name in COLUMNS))
    print("  ".join(f"{show.format(epoch[name]):>9}" for name, show in COLUMNS.items()), flush=True)


def total(run: Run, name: str) -> float:
    """The sum over a run's epochs."""
    return sum(epoch[name] for epoch in run["epochs"])


def summary(runs: dict[str, Run]) -> str:
    """The runs side by side."""
    lines = [" " * 20 + "".join(f"  {name:>20}" for name in runs)]
    for name, show in list(COLUMNS.items())[1:]:
        values = [total(run, name) if name in SUMS else run["epochs"][-1][name] for run in runs.values()]
        title = f"{name}, {'all epochs' if name in SUMS else 'last'}"
        lines.append(f"{title:20}" + "".join(f"  {show.format(value):>20}" for value in values))
    if all(run["operations"] for run in runs.values()):
        counts = [f"{operations_per_image(run):.2f}" for run in runs.values()]
        lines.append(f"{'operations an image':20}" + "".join(f"  {count:>20}" for count in counts))
    return "\n".join(lines)


def operations_per_image(run: Run) -> float:
    """Operations that the store was sent, divided by the images that were trained on."""
    return sum(run["operations"].values()) / total(run, "samples")


def why(runs: dict[str, Run], store: SlowStore, workers: int) -> str:
    """What makes the runs differ, with this run's figures."""
    base, permutations, echo = runs[DATALOADER], runs[PERMUTATIONS], runs[ECHO]
    per_file = operations_per_image(base) if base["operations"] else FILE_OPERATIONS
    per_record = f"{operations_per_image(permutations):.1f} reads" if permutations["operations"] else "one read at most"
    in_flight = min(workers, store.at_once)
    computed = total(permutations, "samples") / (total(permutations, "time s") - total(permutations, "stall s"))
    last = echo["epochs"][-1]
    lines = [
        "Why",
        f"- The training computes {computed:,.0f} images a second here. All else is waiting.",
        f"- {DATALOADER}: an image is a file, and costs {per_file:.1f} operations in turn: name, open, read. {workers} workers",
        f"  have at most {workers} in flight, and the store serves {store.at_once} at once. At {store.delay_us / 1000:g} ms each these are",
        f"  {in_flight / (per_file * store.delay_us) * 1e6:,.0f} images a second at best.",
        f"- {PERMUTATIONS}: an image is a record of a large file. With its neighbours it costs {per_record}.",
        "  The epoch's order is known beforehand, so as many reads are in flight as the store serves, before",
        "  the training needs them. The cache keeps a fixed part, which the next epoch needs again.",
        "  This is shade's default.",
        f"- {ECHO}: an epoch has half of the samples, each twice and augmented anew; the next epoch has the",
        f"  other half. {last['distinct']:.0%} of the last epoch were distinct. The cache keeps a record from its",
        f"  first use to its second: {last['hit ratio']:.0%} of the last epoch needed no read. In the accuracy study this",
        "  costs less than half a point on CIFAR-10 and Fashion-MNIST (docs/which-sampler.md).",
        "- Nothing stays in the page cache, since this data is small and yours may not be. A page cache of a",
        "  fifth of the data would serve about 2 % of an epoch in random order: LRU drops a file before it",
        "  comes again.",
        "- Each run is one seed. It cannot tell accuracies apart that differ by less than a point.",
    ]
    return "\n".join(lines)


def plot(runs: dict[str, Run], path: Path) -> None:
    """Writes a picture: the accuracy over time, and what the time was spent on."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    reached, spent = figure.subplots(1, 2)
    for at, ((title, run), style) in enumerate(zip(runs.items(), STYLES, strict=True)):
        ended = accumulate(epoch["time s"] for epoch in run["epochs"])
        (line,) = reached.plot(list(ended), [100 * epoch["accuracy"] for epoch in run["epochs"]], style, label=title)
        waited, all_of_it = total(run, "stall s"), total(run, "time s")
        spent.barh(at, all_of_it - waited, color=line.get_color())
        spent.barh(at, waited, left=all_of_it - waited, color=line.get_color(), alpha=0.35)
        spent.text(all_of_it, at, f" {all_of_it:.1f} s, {total(run, 'read MB'):.0f} MB read", va="center")
    reached.set(xlabel="seconds of training", ylabel="accuracy, %", title="accuracy after each epoch")
    reached.set_xlim(left=0)
    reached.legend(loc="lower right")
    spent.set(xlabel="seconds, all epochs", title="dark: computes, pale: waits for batches")
    spent.set_yticks(range(len(runs)), list(runs))
    spent.invert_yaxis()
    # Room for the text beside the longest bar.
    spent.set_xlim(right=1.8 * max(total(run, "time s") for run in runs.values()))
    figure.savefig(path, dpi=120)
