"""Runs as processes: what is missing, several at a time, within a time that is given."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from studies.accuracy import results
from studies.accuracy.cells import CELLS
from studies.accuracy.recipes import RECIPES
from studies.accuracy.results import TEST
from studies.accuracy.settings import CACHE

# A run is begun if this many times as long is left as the longest of its recipe took.
ROOM = 1.05


@dataclass(frozen=True)
class Run:
    """One training."""

    recipe: str
    cell: str
    seed: int
    split: str = TEST
    # Another peak learning rate than the recipe's, to choose one by held-out data.
    learning_rate: float | None = None

    @property
    def folder(self) -> str:
        """The folder of its record."""
        return self.cell if self.learning_rate is None else f"{self.cell}@{self.learning_rate:g}"

    def path(self, folder: Path) -> Path:
        """Where its record is, or will be."""
        return results.path_of(results.folder_of(folder, self.split), self.recipe, self.folder, self.seed)

    def has_record(self, folder: Path) -> bool:
        """Whether it has a record, of the options that it has today."""
        cell, recipe = CELLS[self.cell], RECIPES[self.recipe]
        options = {"cache": CACHE, **cell.options(), **recipe.schedule()}
        if self.learning_rate is not None:
            options["learning_rate"] = self.learning_rate
        path = self.path(folder)
        return path.is_file() and results.is_of(results.load(path), cell.plan, options)

    def words(self) -> list[str]:
        """The arguments of `one` that train it."""
        rate = [] if self.learning_rate is None else ["--learning-rate", f"{self.learning_rate:g}"]
        return [self.recipe, self.cell, str(self.seed), "--split", self.split, *rate]

    def __str__(self) -> str:
        return f"{self.recipe} {self.folder} seed {self.seed}"


class Pool:
    """Trains runs, `jobs` at a time, until the time is over: at `ends` of the monotonic clock."""

    def __init__(self, jobs: int, words: Sequence[object], ends: float | None) -> None:
        self.jobs, self.words, self.ends = jobs, [str(word) for word in words], ends
        self.longest: dict[str, float] = {}
        self.not_run: list[Run] = []
        self.failed: list[Run] = []

    def train(self, runs: Sequence[Run]) -> None:
        """Trains them in their order. What does not fit into the time that is left is passed over. Ctrl-C reaches the
        processes, too; what waits is not begun."""
        done, started = 0, time.monotonic()
        waiting = list(runs)
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                while True:
                    while len(running) < self.jobs and (run := self._next(waiting)) is not None:
                        running.add(pool.submit(self._train, run))
                    if not running:
                        return
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    done += len(finished)
                    left = (time.monotonic() - started) / done * (len(runs) - done)
                    print(f"{done} of {len(runs)} done, about {left / 60:.0f} minutes left", flush=True)
            except KeyboardInterrupt:
                wait(running)
                raise

    def _next(self, waiting: list[Run]) -> Run | None:
        """Takes the next run that fits."""
        while waiting:
            run = waiting.pop(0)
            left = self._left()
            if left is None or left > ROOM * self.longest.get(run.recipe, 0.0):
                return run
            self.not_run.append(run)
        return None

    def _left(self) -> float | None:
        return None if self.ends is None else self.ends - time.monotonic()

    def _train(self, run: Run) -> None:
        command = [sys.executable, "-m", "studies.accuracy", "one", *run.words(), *self.words]
        began = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=self._left())
        except subprocess.TimeoutExpired:
            self.not_run.append(run)
            print(f"cut off: {run}", flush=True)
            return
        if done.returncode != 0:
            self.failed.append(run)
            print(f"failed: {run}\n{done.stderr.strip()}", flush=True)
            return
        self.longest[run.recipe] = max(self.longest.get(run.recipe, 0.0), time.monotonic() - began)
        print(done.stdout.strip(), flush=True)


def slot() -> list[Run]:
    """What a GPU trains that is lent for a quarter of an hour: the most wanted first, seed by seed within a line. At five runs
    at a time one of CIFAR-10 took 17 s there, and one of Imagenette is as many samples as a third of that."""
    photographs, cifar = "imagenette/resnet18-strided", "cifar10/resnet18"
    four = ("uniform", "echo", "pads-explore-1", "pads")
    lines = (
        (cifar, ("echo",), range(2, 5)),
        (photographs, (*four, "pads-draw-ahead", "uniform-60", "uniform-50"), range(5)),
        (cifar, ("pads-explore-1", "uniform-60"), range(4)),
        (photographs, tuple(f"{name}-noise-0.1" for name in four), range(5)),
        (photographs, tuple(f"{name}-imbalance-20" for name in four), range(5)),
        (cifar, tuple(f"{name}-noise-0.1" for name in four), range(4)),
    )
    return [Run(recipe, cell, seed) for recipe, cells, seeds in lines for seed in seeds for cell in cells]
