"""CPU time and memory that a process and all its descendants have used so far, from /proc."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MB = 1e6
# Fields of /proc/PID/stat behind the name: the parent; CPU time (user, kernel) of the process and
# of ended children.
PARENT, OWN_AND_WAITED_FOR = 1, slice(11, 15)


def cpu_seconds(root: int) -> float:
    """CPU time of `root`, of its living descendants and of those that have ended."""
    stats = _stats()
    return sum(sum(int(ticks) for ticks in stats[pid][OWN_AND_WAITED_FOR]) for pid in _below(root, stats)) / TICKS


def memory_mb(root: int) -> float:
    """Private and shared memory of `root` and its descendants, shared memory counted once, without
    the pages of files."""
    total = 0
    for pid in _below(root, _stats()):
        total += _kib(Path(f"/proc/{pid}/smaps_rollup"), ("Pss_Anon", "Pss_Shmem"))
    return total * 1024 / MB


def own_mb() -> tuple[float, float]:
    """Private memory of this process, and shared memory that it has touched."""
    status = Path("/proc/self/status")
    return tuple(_kib(status, (name,)) * 1024 / MB for name in ("RssAnon", "RssShmem"))  # type: ignore[return-value]


def below(root: int) -> list[int]:
    """The living descendants of `root`."""
    return _below(root, _stats())[1:]


def _stats() -> dict[int, list[str]]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            # The name, in brackets, may have anything in it.
            found[int(entry)] = text.rpartition(")")[2].split()
    return found


def _below(root: int, stats: dict[int, list[str]]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[PARENT]), []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return [pid for pid in found if pid in stats]


def _kib(file: Path, names: tuple[str, ...]) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        # It has ended, or is a zombie.
        return 0
    return sum(int(line.split()[1]) for line in lines if line.partition(":")[0] in names)
