"""Results as the Rust benches give them: the same JSON, the same table, the same rule for a busy
machine."""

import datetime
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

median = statistics.median
CORES = len(os.sched_getaffinity(0))
# The result of a comparison: the versions of what it measured, and rows.
Compared = tuple[dict[str, str], list[dict[str, Any]]]
BUSY = "the machine was busy before this run: its figures are void, except for rough comparisons within it"


class Start:
    """When and where a run began."""

    def __init__(self) -> None:
        self.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.load = os.getloadavg()[0]

    def is_busy(self) -> bool:
        """Whether more processes wanted to run than there are cores."""
        return self.load > CORES

    def finish(self, versions: dict[str, str], rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole result."""
        return {
            "date": self.date,
            "machine": _machine(),
            "versions": {"python": platform.python_version(), "git": _git(), **versions},
            "load_before": self.load,
            "load_after": os.getloadavg()[0],
            "busy": self.is_busy(),
            "rows": rows,
        }


def row(name: str, rates: list[float], unit: str, mean_bytes: float) -> dict[str, Any]:
    """A row of rates, in `unit`, of things of `mean_bytes` each."""
    return {
        "name": name,
        "median": median(rates),
        "min": min(rates),
        "max": max(rates),
        "unit": unit,
        "runs": len(rates),
        "mb_per_s": median(rates) * mean_bytes / 1e6,
    }


def median_epoch(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    """The epoch with the median time after a process's first, or the only epoch."""
    counted = epochs[1:] or epochs
    return sorted(counted, key=lambda epoch: epoch["seconds"])[len(counted) // 2]


def beside(row: dict[str, Any], other: dict[str, Any]) -> None:
    """Adds to a row its ratio to another."""
    row["rival"], row["ratio"] = other["name"], row["median"] / other["median"]


def table(result: dict[str, Any], details: Callable[[dict[str, Any]], str]) -> str:
    """The result for people. `details` gives what a row has besides rates."""
    machine = result["machine"]
    lines = [f"{result['date']}  {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}"]
    if result["busy"]:
        lines.append(f"WARNING: {BUSY}")
    width = max(len(row["name"]) for row in result["rows"])
    for each in result["rows"]:
        ratio = f"{each['ratio']:.2f} x {each['rival']}" if "ratio" in each else ""
        lines.append(
            f"{each['name']:{width}}  {each['median']:9,.0f}  ({each['min']:,.0f} .. {each['max']:,.0f}) {each['unit']}"
            f"  {each['mb_per_s']:7,.0f} MB/s  {details(each)}  {ratio}".rstrip()
        )
    return "\n".join(lines)


def head(title: str, result: dict[str, Any], void: str) -> list[str]:
    """The first lines of a report in Markdown. `void` is what a busy machine spoils."""
    machine, versions = result["machine"], result["versions"]
    torch = [f"torch {versions['torch']}"] if "torch" in versions else []
    about = [f"{machine['cores']} cores of {machine['cpu']}", f"Linux {machine['kernel']}", versions["git"], *torch]
    lines = [f"# {title}", "", f"{', '.join([result['date'], *about])}.", f"Command: `{result['command']}`."]
    return [*lines, "", f"**The machine was busy before this run: {void} void.**"] if result["busy"] else lines


def write(result: dict[str, Any], out: Path) -> None:
    out.write_text(json.dumps(result, indent=2) + "\n")


def _machine() -> dict[str, Any]:
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0].split(":")[1].strip() if models else platform.machine(),
        "cores": CORES,
        "memory_gib": round(int(memory.split()[1]) / 2**20, 1),
        "kernel": platform.release(),
    }


def _git() -> str | None:
    here = Path(__file__).parent
    done = subprocess.run(
        ["git", "-C", here, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None
