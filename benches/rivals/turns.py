"""Runs in turn, each in processes of its own: what fails once is named, left out, and the rest goes on."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeVar

Run = TypeVar("Run")


class NotMeasured(Exception):
    """There is nothing to report."""


class Left(Exception):
    """What cannot be measured here, and why."""


def take_turns(names: dict[str, str], rounds: int, run: Callable[[str], Run]) -> dict[str, list[Run]]:
    """`rounds` runs of each key of `names`; its value is what people call it."""
    runs: dict[str, list[Run]] = {key: [] for key in names}
    for number in range(rounds):
        for key in list(runs):
            print(f"round {number + 1} of {rounds}: {names[key]} ...", file=sys.stderr)
            try:
                runs[key].append(run(key))
            except Left as why:
                skip(names[key], why)
                del runs[key]
    if not runs:
        raise NotMeasured("nothing of it runs here")
    return runs


def skip(name: str, why: object) -> None:
    """Says what is left out."""
    print(f"skipped: {name}: {why}", file=sys.stderr)


def tell(words: list[Any], seconds_max: float) -> dict[str, Any]:
    """Runs a program to its end: the JSON in the last line that it prints."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds_max, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Left(f"not done after {seconds_max} s") from error
    except OSError as error:
        raise Left(error) from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise Left(lines[-1] if lines else f"exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])
