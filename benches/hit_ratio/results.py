"""Runs `shade-load simulate` and keeps the results in a file, so an interrupted run goes on."""

import dataclasses
import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

Row = dict[str, Any]
# Far more than any call takes.
SECONDS_MAX = 3600
# Digits after the point: seeds differ from the fourth on.
DIGITS = 6


class NotSimulated(Exception):
    """The program refused or failed. Has its message."""


@dataclasses.dataclass(frozen=True)
class Command:
    """One call of the program. Reports find its rows by `label`."""

    label: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(("shade-load", "simulate", *self.arguments))


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large the evaluation is."""

    samples: int
    samples_of_the_papers: int
    seeds: int

    def words(self, *more: str, samples: int | None = None, skip_epochs: int = 4) -> tuple[str, ...]:
        """What all calls have in common, and `more`."""
        return (
            *("--samples", str(samples or self.samples), "--batch-size", "64", "--epochs", "12"),
            *("--skip-epochs", str(skip_epochs), "--seeds", str(self.seeds), "--json", *more),
        )


FULL = Scale(samples=50_000, samples_of_the_papers=10_000, seeds=5)
QUICK = Scale(samples=4_000, samples_of_the_papers=2_000, seeds=2)


class Results:
    """All rows, by label; in the file with the commands that made them."""

    def __init__(self, file: Path, program: Path, about: dict[str, Any]) -> None:
        self.file, self.program = file, program
        # Results belong to one build of the program. Another build begins anew.
        digest = hashlib.sha256(program.read_bytes()).hexdigest()
        self.about = {**about, "program_sha256": digest}
        self.runs: dict[str, dict[str, Any]] = {}
        if file.exists():
            kept = json.loads(file.read_text())
            if (kept["program_sha256"], kept["quick"]) == (digest, about["quick"]):
                self.about = {key: value for key, value in kept.items() if key != "runs"}
                self.runs = {run["command"]: run for run in kept["runs"]}
        self.by_label: dict[str, list[Row]] = {}

    def simulate(self, commands: Iterable[Command], jobs: int) -> None:
        """Runs calls that are not in the file yet, `jobs` at a time, and keeps each result at once."""
        commands = list(commands)
        missing = {str(command): command for command in commands if str(command) not in self.runs}
        pool = ThreadPoolExecutor(jobs)
        try:
            running = [pool.submit(self._tell, command) for command in missing.values()]
            for number, done in enumerate(as_completed(running), 1):
                told = done.result()
                self.runs[told["command"]] = told
                self._write()
                print(f"{number} of {len(running)}: {told['command']}", file=sys.stderr)
        finally:
            # After a failure or Ctrl-C it waits only for calls that have begun.
            pool.shutdown(cancel_futures=True)
        # In the commands' order and without older results, so that files of two runs can be
        # compared.
        self.runs = {str(command): self.runs[str(command)] for command in commands}
        self._write()
        for command in commands:
            self.by_label.setdefault(command.label, []).extend(self.runs[str(command)]["rows"])

    def rows(self, label: str) -> list[Row]:
        return self.by_label[label]

    def row(self, label: str, policy: str, cache: str) -> Row:
        """The one row of this label."""
        found = [row for row in self.by_label[label] if (row["policy"], row["cache"]) == (policy, cache)]
        if len(found) != 1:
            raise KeyError((label, policy, cache))
        return found[0]

    def _tell(self, command: Command) -> dict[str, Any]:
        words = [str(self.program), "simulate", *command.arguments]
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        if done.returncode != 0:
            raise NotSimulated(f"{command}: {done.stderr.strip() or done.returncode}")
        told = json.loads(done.stdout)
        rows = [{name: _rounded(value) for name, value in row.items()} for row in told.pop("rows")]
        return {"label": command.label, "command": str(command), **told, "rows": rows}

    def _write(self) -> None:
        """Writes one row per line. The file is whole at every moment."""
        head = json.dumps(self.about, indent=2)[:-2]
        runs = []
        for run in self.runs.values():
            rows = ",\n".join(f"      {json.dumps(row)}" for row in run["rows"])
            about = json.dumps({name: value for name, value in run.items() if name != "rows"})[:-1]
            runs.append(f'    {about}, "rows": [\n{rows}\n    ]}}')
        text = head + ',\n  "runs": [\n' + ",\n".join(runs) + "\n  ]\n}\n"
        partial = self.file.with_suffix(".partial")
        partial.write_text(text)
        os.replace(partial, self.file)


def _rounded(value: Any) -> Any:
    return round(value, DIGITS) if isinstance(value, float) else value
