"""Prints the runs and writes them down. Every ratio is printed with what it is a ratio of."""

import os
import platform
import shlex
import sys
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import shade_load

from demo.train import Course, Epoch, Run

_EPOCH_HEADINGS = (
    f"{'epoch':>5}  {'loss':>7}  {'val accuracy':>12}  {'hit ratio':>9}  {'distinct D/N':>12}"
    f"  {'read':>9}  {'stall':>7}  {'epoch time':>10}"
)


def print_epoch(epoch: Epoch) -> None:
    """One row of a run's table; the first brings the headings along."""
    if epoch.epoch == 0:
        print(_EPOCH_HEADINGS)
    print(
        f"{epoch.epoch:>5}  {epoch.train_loss:>7.4f}  {epoch.val_accuracy:>12.2%}  {epoch.hit_ratio:>9.1%}"
        f"  {epoch.distinct_share:>12.1%}  {epoch.bytes_read / 1e6:>6.1f} MB  {epoch.stall_seconds:>5.1f} s"
        f"  {epoch.epoch_seconds:>8.1f} s",
        flush=True,
    )


def summary(runs: list[Run]) -> str:
    """The runs side by side, in columns headed by their names."""

    def hit_ratio(epochs: list[Epoch]) -> str:
        accesses = sum(epoch.accesses for epoch in epochs)
        return f"{sum(epoch.hits for epoch in epochs) / max(accesses, 1):.1%}"

    def mean(values: list[float]) -> float:
        return sum(values) / max(len(values), 1)

    rows = [
        ("validation accuracy, last epoch", lambda run: f"{run.epochs[-1].val_accuracy:.2%}"),
        ("hit ratio, all epochs", lambda run: hit_ratio(run.epochs)),
        ("hit ratio, epoch 1 on", lambda run: hit_ratio(run.epochs[1:])),
        ("distinct D/N, mean of epoch 1 on", lambda run: f"{mean([e.distinct_share for e in run.epochs[1:]]):.1%}"),
        ("ever seen, of the training set", lambda run: f"{run.loader['total']['ever_seen_share']:.1%}"),
        ("most repeats of a sample in an epoch", lambda run: str(max(e.repeat_max for e in run.epochs))),
        ("skipped / substituted", lambda run: "{} / {}".format(*_sums(run, "skipped", "substituted"))),
        ("read from the store", lambda run: f"{_sums(run, 'bytes_read')[0] / 1e6:.1f} MB"),
        ("stall, waiting for batches", lambda run: f"{_sums(run, 'stall_seconds')[0]:.1f} s"),
        ("training time without validation", lambda run: f"{_sums(run, 'epoch_seconds')[0]:.1f} s"),
    ]
    width = max(len(title) for title, _ in rows)
    lines = [" " * width + "".join(f"  {run.setting.name:>16}" for run in runs)]
    lines += [f"{title:<{width}}" + "".join(f"  {show(run):>16}" for run in runs) for title, show in rows]
    return "\n".join(lines)


def notes(course: Course) -> str:
    """How to read the summary, and how not to."""
    store = (
        f"The store is simulated: each read takes {course.store_delay}, "
        f"{course.depth} reads in flight.\n  Times say how the two runs compare over such a store, not what another "
        "machine or a real store will give."
        if course.store_delay
        else "The store is the local disk as it is; nothing is simulated."
    )
    cache = f"{course.cache} here" if course.cache.endswith("%") else "cache size / data size"
    return f"""How to read this
- {store}
- Hit ratio = hits / all samples delivered, first-epoch misses included. Run 1 is LRU over a permutation: each sample
  comes once an epoch, mostly after LRU has let it go, so its ratio is near 0 whatever is trained. Do not divide the two
  ratios. A fairer baseline, LRU over uniform draws with replacement, hits as often as its share of the data ({cache}).
- PADS draws with replacement: an epoch delivers as many samples but fewer distinct ones (D/N). Bytes are saved by such
  repeats as well as by the cache. What that does to accuracy is in its row; losses are not weighted by batch.weights.
- Loss is the mean over what the epoch drew. PADS draws hard samples more often: compare accuracies, not losses.
- One run each, one seed: accuracies half a per cent apart are not told apart. With --rep above 1, run 2 differs from
  time to time: what is cached at an epoch's start, and so drawn more often, depends on when reads end and losses
  arrive."""


def record(runs: list[Run], course: Course, data: dict[str, Any], threads: int) -> dict[str, Any]:
    """All that was measured, with where, when and how, ready for JSON."""
    return {
        "schema": 1,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        "machine": machine() | {"torch_threads": threads},
        "versions": {"shade_load": shade_load.__version__, "python": platform.python_version()}
        | {name: version(name) for name in ("torch", "numpy", "pillow")},
        "data": data,
        "store_simulated": course.store_delay is not None,
        "course": asdict(course),
        "runs": [asdict(run) for run in runs],
    }


def machine() -> dict[str, Any]:
    """What the figures depend on; no names."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _sums(run: Run, *names: str) -> list[float]:
    return [sum(getattr(epoch, name) for epoch in run.epochs) for name in names]
