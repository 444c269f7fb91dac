"""The comparison: both sides read the same records, by turns, cold and warm.

Two random sets for each pair of cold rounds, which the sides swap. The second of the last pair is
the set of the warm rounds: by then the DataLoader's is in the page cache, and shade's in its own.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from .. import ShadeError, _native
from ..in_place import indexed
from ..options import dataset_path
from ..socket_folder import socket_folder
from .page_cache import cached_share, drop
from .sides import DataLoaderSide, Files, PoolSide, ShadeSide, Side, cpu_s, data_loaders, read_file

# Parts of the time: files one at a time 1, three trials of 1, four cold rounds of both sides, of
# 2 each, the warm set into shade's cache 2, two warm rounds of both of 1 each.
_PARTS = 1 + 3 + 4 * 2 * 2 + 2 + 2 * 2
# A round that takes longer by this factor than it has is cut off.
_PATIENCE = 3.0
# One of this many images at most is read alone, or in a trial.
_ALONE_SHARE, _TRIAL_SHARE = 20, 16
_ALONE_MAX = 64
_IMAGES_MIN = 32
# More workers are no use to most machines.
_WORKERS_MAX = 64
# A set with fewer batches, as a multiple of two for each worker, is worth a word.
_ENOUGH = 4
# Cached share of a cold set that is worth a word.
_CACHED_MIN = 0.02
# Records whose sizes are compared with those of their files.
_SIZES = 32


@dataclass(frozen=True)
class Asked:
    """What the user wants compared."""

    folder: Path
    dataset: str | None
    seconds: float
    batch_size: int
    image_size: int | None
    workers: int | None


@dataclass
class Rounds:
    """What a side did: a dict of figures for each round."""

    cold: list[dict[str, float]] = field(default_factory=list)
    warm: list[dict[str, float]] = field(default_factory=list)


class Comparison:
    """One comparison."""

    def __init__(self, asked: Asked, said: Callable[[str], None]) -> None:
        self._asked, self._said, self._part = asked, said, asked.seconds / _PARTS
        self._random = random.Random()
        said("listing the images")
        self._source = str(dataset_path(indexed(os.fspath(asked.folder) if asked.dataset is None else asked.dataset)))
        self._reader = _native.RecordReader.open(self._source, None, True)
        self._paths = self._common()
        self._unused = list(self._paths)
        self._random.shuffle(self._unused)
        # A trial then has two batches for each worker, and a set more: with less, workers would
        # idle.
        self._least = 2 * max(self._workers())
        self._batch_size = max(1, min(asked.batch_size, len(self._paths) // (_TRIAL_SHARE * self._least)))
        self._cached: list[float] = []
        self._notes: list[str] = []

    def run(self) -> dict[str, Any]:
        """Compares, and returns the report."""
        started = perf_counter()
        alone = self._alone()
        files = Files(self._paths, self._asked.image_size)
        tried = data_loaders(files, self._batch_size, self._workers())
        try:
            with socket_folder("shade-doctor-") as scratch:
                cold = self._shade("0", Path(scratch) / "cold.sock")
                try:
                    trials = [(side, self._trial(side)) for side in tried]
                    rate = self._trial(cold)
                    loader = max(trials, key=lambda trial: trial[1])[0]
                    sets = self._sets(max(rate_of for _, rate_of in trials), rate)
                    ours, theirs = Rounds(), Rounds()
                    self._cold(sets, (loader, theirs), (cold, ours))
                finally:
                    cold.close()
                warm = self._shade(None, Path(scratch) / "warm.sock")
                try:
                    self._warm(sets[-1], (loader, theirs), (warm, ours))
                finally:
                    warm.close()
        finally:
            for side in tried:
                side.close()
        report = {**self._about(len(sets[0]), loader, trials), **alone, "seconds": perf_counter() - started}
        return {**report, "cold": _compared(theirs.cold, ours.cold), "warm": _compared(theirs.warm, ours.warm)}

    def _common(self) -> dict[int, str]:
        """The path of each sample that is in the folder, too."""
        paths = {}
        for sample in range(len(self._reader)):
            path = os.path.join(self._asked.folder, self._reader.sample(sample)[0])
            if self._asked.dataset is None or os.path.exists(path):
                paths[sample] = path
        if len(paths) < _IMAGES_MIN:
            where = f"{self._asked.folder} and {self._asked.dataset} have" if self._asked.dataset else f"{self._asked.folder} has"
            which = " in common" if self._asked.dataset else ""
            raise ShadeError(f"{where} {len(paths)} images{which}: a comparison needs {_IMAGES_MIN}")
        return paths

    def _workers(self) -> list[int]:
        if self._asked.workers is not None:
            return [self._asked.workers]
        cpus = len(os.sched_getaffinity(0))
        # Where a store is far away a DataLoader gains by more workers than cores.
        return sorted({cpus, max(cpus, min(4 * cpus, _WORKERS_MAX))})

    def _shade(self, cache: str | None, socket: Path) -> ShadeSide:
        return ShadeSide(self._source, self._batch_size, self._asked.image_size, cache, socket)

    def _take(self, count: int) -> list[int]:
        taken, self._unused = self._unused[:count], self._unused[count:]
        return taken

    def _chill(self, ids: Sequence[int]) -> float:
        """Takes the set out of the page cache; returns the mean size of its files."""
        paths = [self._paths[sample] for sample in ids]
        total = drop(paths)
        drop([os.fspath(shard) for shard in Path(self._source).glob("*.tar")])
        share = cached_share(paths)
        self._cached += [] if share is None else [share]
        return total / len(ids)

    def _alone(self) -> dict[str, Any]:
        """The latency of a file, one at a time."""
        self._said("reading files one at a time")
        ids = self._take(max(2, min(_ALONE_MAX, len(self._paths) // _ALONE_SHARE)))
        self._chill(ids)
        taken: list[float] = []
        until = perf_counter() + self._part
        for sample in ids:
            started = perf_counter()
            read_file(self._paths[sample])
            taken.append(1e3 * (perf_counter() - started))
            if perf_counter() > until:
                break
        return {"read_alone_p50_ms": statistics.median(taken), "read_alone_max_ms": max(taken), "read_alone": len(taken)}

    def _trial(self, side: Side) -> float:
        """Records a second of a side, roughly."""
        self._said(f"trying {side.name}")
        ids = self._take(max(self._batch_size, len(self._paths) // _TRIAL_SHARE))
        mean_bytes = self._chill(ids)
        return self._round(side, ids, mean_bytes, self._part)["records_per_s"]

    def _sets(self, *rates: float) -> list[list[int]]:
        """Sets that both sides together read in the time of two rounds."""
        count = int(4 * self._part / sum(1 / rate for rate in rates))
        least = self._least * self._batch_size
        sets = 4 if len(self._unused) >= 4 * least else 2
        count = min(max(count, least), len(self._unused) // sets)
        if count < _ENOUGH * least:
            self._notes.append(
                f"a round had {count} records only: more --seconds, a larger folder or a smaller --batch-size tell more"
            )
        return [self._take(count) for _ in range(sets)]

    def _cold(self, sets: list[list[int]], *sides: tuple[Side, Rounds]) -> None:
        """Each side reads each set once; who reads first changes."""
        for pair in range(0, len(sets), 2):
            for swapped in (False, True):
                order = sides[::-1] if swapped else sides
                for (side, rounds), ids in zip(order, sets[pair : pair + 2], strict=True):
                    self._said(f"cold, {side.name}: {len(ids)} records")
                    mean_bytes = self._chill(ids)
                    rounds.cold.append(self._round(side, ids, mean_bytes, 2 * _PATIENCE * self._part))

    def _warm(self, ids: list[int], theirs: tuple[Side, Rounds], ours: tuple[Side, Rounds]) -> None:
        """Both sides read again what they have in memory."""
        mean_bytes = sum(os.path.getsize(self._paths[sample]) for sample in ids) / len(ids)
        for side, _ in (ours, theirs):
            self._said(f"warming, {side.name}")
            self._round(side, ids, mean_bytes, 2 * _PATIENCE * self._part)
        for number in range(2):
            for side, rounds in (theirs, ours) if number == 0 else (ours, theirs):
                self._said(f"warm, {side.name}")
                rounds.warm.append(self._round(side, ids, mean_bytes, self._part, again=True))

    def _round(self, side: Side, ids: Sequence[int], mean_bytes: float, most_s: float, again: bool = False) -> dict[str, float]:
        """The figures of passes over a set: one, or as many as begin in the time."""
        records = operations = 0
        with side.opened(ids, self._random.getrandbits(32)) as epoch:
            cpu, started = cpu_s(side), perf_counter()
            first_s = None
            while True:
                of_pass = 0
                for count in epoch():
                    of_pass += count
                    first_s = first_s or perf_counter() - started
                    if perf_counter() - started > most_s and not again:
                        break
                records += of_pass
                operations += side.operations(of_pass)
                if not again or perf_counter() - started > most_s:
                    break
            seconds, cpu = perf_counter() - started, cpu_s(side) - cpu
        return {
            "records_per_s": records / seconds,
            "mb_per_s": records * mean_bytes / seconds / 1e6,
            "cpu_us_per_record": 1e6 * cpu / max(records, 1),
            "operations_per_s": operations / seconds,
            "first_batch_ms": 1e3 * (first_s or seconds),
        }

    def _about(self, count: int, loader: DataLoaderSide | PoolSide, trials: Any) -> dict[str, Any]:
        some = self._random.sample(list(self._paths), min(_SIZES, len(self._paths)))
        stored = sum(len(record) for record in self._reader.read(some))
        share = stored / max(1, sum(os.path.getsize(self._paths[sample]) for sample in some))
        cached = max(self._cached, default=None)
        if abs(share - 1) > 0.01:
            self._notes.append(
                f"records of the dataset have {100 * share:.0f} % of their files' bytes: it was packed with other images"
            )
        if cached is None or cached > _CACHED_MIN:
            what = "nobody tells how much of" if cached is None else f"up to {100 * cached:.0f} % of"
            self._notes.append(
                f"{what} a cold set was in the page cache: others use these files, or the file system keeps them; choose a "
                "folder that nobody has read, or drop the page cache as root"
            )
        return {
            "folder": os.fspath(self._asked.folder),
            "dataset": self._asked.dataset,
            "images": len(self._paths),
            "set_records": count,
            "batch_size": self._batch_size,
            "image_size": self._asked.image_size,
            "loader": loader.name,
            "has_torch": isinstance(loader, DataLoaderSide),
            "trials": [{"workers": side.workers, "records_per_s": rate} for side, rate in trials],
            "record_share": share,
            "cached_share": cached,
            "notes": self._notes,
        }


def _compared(theirs: list[dict[str, float]], ours: list[dict[str, float]]) -> dict[str, Any]:
    """The medians of both sides, and the rounds that they are of."""
    return {"loader": _side(theirs), "shade": _side(ours)}


def _side(rounds: list[dict[str, float]]) -> dict[str, Any]:
    medians: dict[str, Any] = {name: statistics.median(told[name] for told in rounds) for name in rounds[0]}
    return {**medians, "rounds": [told["records_per_s"] for told in rounds]}
