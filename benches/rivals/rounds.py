"""Runs everything in turn, each run in processes of its own. What fails once is named and left out
from then on."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeVar

Run = TypeVar("Run")


class NotMeasured(Exception):
    """There is nothing to report."""


class LeftOut(Exception):
    """Something cannot be measured here; the text says why."""


def interleave(titles: dict[str, str], rounds: int, run: Callable[[str], Run]) -> dict[str, list[Run]]:
    """`rounds` runs of each key of `titles`: the first of all, the second of all, and so on."""
    runs: dict[str, list[Run]] = {key: [] for key in titles}
    for number in range(rounds):
        for key in list(runs):
            print(f"round {number + 1} of {rounds}: {titles[key]} ...", file=sys.stderr)
            try:
                runs[key].append(run(key))
            except LeftOut as why:
                print_left_out(titles[key], why)
                del runs[key]
    if not runs:
        raise NotMeasured("nothing of it runs here")
    return runs


def print_left_out(title: str, why: object) -> None:
    print(f"skipped: {title}: {why}", file=sys.stderr)


def run_json(words: list[Any], seconds_max: float) -> dict[str, Any]:
    """Runs a program to its end; returns the JSON in the last line that it prints."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds_max, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LeftOut(f"not done after {seconds_max} s") from error
    except OSError as error:
        raise LeftOut(error) from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise LeftOut(lines[-1] if lines else f"exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def module_command(module: str, *words: Any) -> list[Any]:
    """The command line of `python -m benches.rivals.MODULE`."""
    return [sys.executable, "-m", f"benches.rivals.{module}", *words]


def with_cpu_time(command: list[Any]) -> list[Any]:
    """The command below `with_cpu_time`. All that it starts, daemons too, ends before it."""
    return module_command("with_cpu_time", *command)
