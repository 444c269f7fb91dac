"""One cell of the table: one loader, one number of accelerators, one store, one run of DLIO."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benches.dlio.data import Data, dlio_command, files_for
from benches.dlio.memory import Group, limited, touched
from benches.dlio.rows import BATCH, COMPUTE_SECONDS, RECORD_BYTES, ROWS, TOUCHED
from benches.rivals.places import DROP_CACHES
from benches.rivals.process_tree import below, cpu_seconds

DISK, STORE = "disk", "store"
STORES = {DISK: "local disk, cold", STORE: "2 ms an operation"}
DELAY_US = 2_000
# A run that is slower than this share of the accelerators' speed is stopped: it has failed.
SHARE_MIN = 0.5
# Start of ranks and daemon, listing of files; and what DLIO prints when its steps begin.
START_SECONDS_MAX = 600
STEPS_BEGIN = b"Starting block 1"
# Between two looks at CPU time.
LOOK_SECONDS = 2.0
# What other programs may take of the machine, in cores, before a run is void.
OTHERS_CORES_MAX = 0.2
DATA_TIMES_MEMORY = 5
# What a rank needs: 0.6 GB that DLIO takes, which imports TensorFlow and PyTorch in all of them;
# eight batches of 46 MB; and as much for what its loader holds besides.
RANK_BYTES_MIN = 1_400 << 20
WORST_LOADS = 10


@dataclass(frozen=True)
class Cell:
    """What is run."""

    store: str
    variant: str
    row: str
    accelerators: int
    round: int

    @property
    def name(self) -> str:
        """Its file's name."""
        variant = self.variant.replace(" ", "-")
        return f"{self.store}-{variant}-{self.row}-{self.accelerators:02}-{self.round}"


@dataclass(frozen=True)
class Setting:
    """What all cells have in common."""

    programs: Path
    data: Data
    steps: int
    memory_bytes_max: int


class Failed(Exception):
    """DLIO ended with an error; the text is its last lines."""


def run(cell: Cell, setting: Setting, scratch: Path) -> dict[str, Any]:
    """The cell's result.

    Raises:
        Failed: DLIO's ranks ended with an error.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    limit = memory_bytes(cell, setting)
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if cell.store == STORE:
        # A new mount has nothing in memory. What is behind it has all.
        _warm(setting.data.written(ROWS[cell.row].data))
    else:
        os.sync()
        DROP_CACHES.write_text("3")
    touch_seconds = touched(limit)
    with limited(limit) as group:
        command = group.around([sys.executable, "-m", "benches.dlio.whole", *_ranks(cell, setting, scratch)])
        watched = _watched(_stored(cell, setting, scratch, command), setting, cell, scratch)
        peak = group.peak_bytes()
    result = {**asdict(cell), "started": started, "load": os.getloadavg(), **watched}
    result |= {"memory_bytes": limit if group.folder else None, "memory_refused": group.refused, "memory_peak": peak}
    result["touch_seconds"] = touch_seconds
    result["data_times_memory"] = round(_data_bytes(cell, setting) / limit, 2)
    counted = scratch / "operations.json"
    if counted.exists():
        result["operations"] = json.loads(counted.read_text())["operations"]
    return result


def memory_bytes(cell: Cell, setting: Setting) -> int:
    """A fifth of the data, if that is enough for the ranks alone."""
    fifth = min(_data_bytes(cell, setting) // DATA_TIMES_MEMORY, setting.memory_bytes_max)
    return max(fifth, RANK_BYTES_MIN * (cell.accelerators + 1))


def _data_bytes(cell: Cell, setting: Setting) -> int:
    """On the store what all names stand for, on the disk what was written."""
    shown = setting.steps * BATCH * cell.accelerators * RECORD_BYTES
    return shown if cell.store == STORE else min(setting.data.samples * RECORD_BYTES, shown)


def _ranks(cell: Cell, setting: Setting, scratch: Path) -> list[str]:
    """DLIO's ranks."""
    row = ROWS[cell.row]
    folder = (scratch / "store" if cell.store == STORE else setting.data.shown) / row.data
    words = [
        *row.options,
        f"++workload.dataset.data_folder={folder}",
        f"++workload.dataset.num_files_train={files_for(row.per_file, cell.accelerators, setting.steps)}",
        f"++workload.train.total_training_steps={setting.steps}",
        "++workload.train.epochs=1",
        f"++workload.output.folder={scratch}/output",
        f"hydra.run.dir={scratch}/hydra",
    ]
    return dlio_command(cell.accelerators, words, *(["--touch"] if cell.variant == TOUCHED else []))


def _stored(cell: Cell, setting: Setting, scratch: Path, command: list[str]) -> list[str]:
    """The command, over the store."""
    if cell.store == DISK:
        return command
    mount = scratch / "store"
    mount.mkdir()
    words = ["unshare", "--mount", setting.programs / "shade-slow-store", "--delay-us", DELAY_US, "--links-apart"]
    words += ["--out", scratch / "operations.json", setting.data.shown, mount, "--", *command]
    return [str(word) for word in words]


def _watched(command: list[str], setting: Setting, cell: Cell, scratch: Path) -> dict[str, Any]:
    """Runs it, stops it if it is far too slow, and tells what it took."""
    with (scratch / "log.txt").open("wb") as log:
        # In a session of its own: Ctrl-C reaches this process alone, which ends all others.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        looks = Looks(process.pid, is_store=cell.store == STORE)
        try:
            if not _ends(process, scratch / "log.txt", setting.steps * COMPUTE_SECONDS / SHARE_MIN):
                return {"au": None, "is_stopped": True, **looks.told(None)}
        finally:
            looks.end()
            _end_all(process)
    if process.returncode != 0:
        raise Failed("\n".join((scratch / "log.txt").read_text(errors="replace").splitlines()[-15:]))
    return {**_of_dlio(scratch / "output"), "is_stopped": False, **looks.told(_window(scratch / "output"))}


def _ends(process: subprocess.Popen[bytes], log: Path, seconds_max: float) -> bool:
    """Whether it ends within these seconds from its first step on."""
    since, has_begun = time.monotonic(), False
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
            return True
        if not has_begun and STEPS_BEGIN in log.read_bytes():
            since, has_begun = time.monotonic(), True
        if time.monotonic() - since > (seconds_max if has_begun else START_SECONDS_MAX):
            return False


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Ends ranks and daemon, then waits for the store, which unmounts what they had open."""
    while process.poll() is None:
        for pid in below(process.pid) or [process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)


def _of_dlio(output: Path) -> dict[str, Any]:
    """What DLIO says, and the longest waits for a batch of any rank."""
    metric = json.loads((output / "summary.json").read_text())["metric"]
    loads = [json.loads(path.read_text())["1"]["load"]["block1"] for path in sorted(output.glob("*_output.json"))]
    by_step = sorted(((max(of_step), step) for step, of_step in enumerate(zip(*loads, strict=True))), reverse=True)
    return {
        "au": metric["train_au_mean_percentage"],
        "dlio_samples_per_second": metric["train_throughput_mean_samples_per_second"],
        "longest_loads": [{"step": step, "seconds": round(load, 4)} for load, step in by_step[:WORST_LOADS]],
        "load_seconds_by_rank": [round(sum(of_rank[1:]), 3) for of_rank in loads],
    }


def _window(output: Path) -> tuple[float, float]:
    """When DLIO's first block of steps began and ended, in seconds since 1970."""
    told = json.loads((output / "0_per_epoch_stats.json").read_text())["1"]["block1"]
    return _seconds(told["start"]), _seconds(told["end"])


def _seconds(text: str) -> float:
    """DLIO writes local time."""
    whole, _, part = text.partition(".")
    return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{part}")


class Looks:
    """CPU time of loaders, store and all others, looked at now and then."""

    def __init__(self, root: int, is_store: bool) -> None:
        self._root, self._is_store = root, is_store
        self._seen: list[tuple[float, dict[str, float]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._seen.append((time.time(), self._now()))

    def _now(self) -> dict[str, float]:
        tree, machine = cpu_seconds(self._root), _machine_seconds()
        store = _own_seconds(self._root) if self._is_store else 0.0
        return {"loaders": tree - store, "store": store, "machine": machine}

    def end(self) -> None:
        """No more looks."""
        self._ended.set()
        self._thread.join()

    def told(self, window: tuple[float, float] | None) -> dict[str, Any]:
        """Cores that each took between the window's ends, or all the time."""
        begin, end = window or (0.0, float("inf"))
        seen = [look for look in self._seen if begin <= look[0] <= end]
        if len(seen) < 2:
            return {}
        (first_at, first), (last_at, last) = seen[0], seen[-1]
        took = {name: (last[name] - first[name]) / (last_at - first_at) for name in first}
        others = took["machine"] - took["loaders"] - took["store"]
        return {
            "seconds": last_at - first_at,
            "loader_cores": round(took["loaders"], 3),
            "store_cores": round(took["store"], 3),
            "other_cores": round(others, 3),
            "busy": others > OTHERS_CORES_MAX,
        }


def _own_seconds(pid: int) -> float:
    """CPU time of the slow store itself: `unshare` becomes the store, as it executes it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def _machine_seconds() -> float:
    """CPU time of all processes, without idle time and what the host took."""
    user, nice, system, _idle, _io, irq, soft = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    return sum(map(int, (user, nice, system, irq, soft))) / os.sysconf("SC_CLK_TCK")


def _warm(folder: Path) -> None:
    """Reads the store's files into the store's own memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 24):
                    pass
