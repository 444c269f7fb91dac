"""A Loader's arguments: checked, with messages that name the argument, and brought into the daemon's terms."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from . import _native

INDEX_FILE = "dataset.shade"
# Limits of the formats; see formats/src/limits.rs.
BATCH_SAMPLES_MAX = 32_768
IMAGE_SIDE_MAX = 16_384
RANKS_MAX = 4096
RING_BYTES_MAX = 1 << 40
# Limits of `shade-load serve`.
DEPTH_MAX = 1024
WORKERS_MAX = 512
# A year: no daemon should stay for longer than somebody remembers it.
LINGER_SECONDS_MAX = 365 * 86_400
UINT32_MAX = (1 << 32) - 1
UINT64_MAX = (1 << 64) - 1

# Samplers that draw by the losses that are reported.
BY_LOSS = ("pads", "iis", "cis")

_UNITS = {"": 1, "B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("iB", 1024), ("i", 1024), ("B", 1000), ("", 1000))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)", re.IGNORECASE)
_PERCENT = re.compile(r"\d+(?:\.\d+)?%")
# What each part may say is checked by the daemon.
_STORE = re.compile(r"[a-z]+=[^,=\s]+(?:,[a-z]+=[^,=\s]+)*")
_JOB = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class JobOptions:
    """What is trained on and how it is drawn. All ranks of a job must agree on it."""

    batch_size: int
    world_size: int
    images: _native.Images | None
    sampler: str
    order: str
    seed: int
    rep: float
    hit_cap: float
    cover: int
    explore: float
    pace: bool
    draw_ahead: bool
    tail: str
    on_error: str
    bad_max: float
    ring: int | str | None

    def to_native(self) -> _native.Job:
        """The checked arguments as the native module takes them."""
        return {
            "sampler": choice("sampler", self.sampler, _native.SAMPLERS),
            "order": choice("order", self.order, _native.ORDERS),
            "seed": integer("seed", self.seed, 0, UINT64_MAX),
            "rep": number("rep", self.rep, 1.0, math.inf),
            "hit_cap": number("hit_cap", self.hit_cap, 0.0, 1.0),
            "cover": integer("cover", self.cover, 0, UINT32_MAX),
            "explore": number("explore", self.explore, 0.0, 1.0),
            "pace": flag("pace", self.pace),
            "draw_ahead": flag("draw_ahead", self.draw_ahead),
            "batch_size": integer("batch_size", self.batch_size, 1, BATCH_SAMPLES_MAX),
            "world_size": integer("world_size", self.world_size, 1, RANKS_MAX),
            "tail": choice("tail", self.tail, ("even", "drop", "pad")),
            "images": self.images,
            "on_error": choice("on_error", self.on_error, ("raise", "skip", "substitute")),
            "bad_max": number("bad_max", self.bad_max, 0.0, 1.0),
            "ring_bytes": 0 if self.ring is None else size_bytes("ring", self.ring, 1, RING_BYTES_MAX),
        }


@dataclass(frozen=True)
class DaemonOptions:
    """How the daemon runs. Used by the rank that starts it; one that others use already stays as it is."""

    cache: int | str = "20%"
    policy: str = "lookahead"
    lookahead: float = 1.0
    store: str | None = None
    depth: int | None = None
    hedge: bool = False
    workers: int | None = None
    jpeg: str = "auto"
    engine: str = "auto"
    io: str = "auto"
    linger: float = 3.0

    def settings(self) -> dict[str, str]:
        """All of them, checked, as texts that the daemon understands: what is asked for, and what it is compared with."""
        store, depth, workers = "none", "auto", "auto"
        if self.store is not None:
            store = matching("store", self.store, _STORE, '"latency=2ms,bandwidth=1Gbit,depth=32"')
        if self.depth is not None:
            depth = str(integer("depth", self.depth, 1, DEPTH_MAX))
        if self.workers is not None:
            workers = str(integer("workers", self.workers, 1, WORKERS_MAX))
        return {
            "cache": capacity("cache", self.cache),
            "policy": choice("policy", self.policy, _native.POLICIES),
            "lookahead": f"{number('lookahead', self.lookahead, 0, 1e9):g}",
            "engine": choice("engine", self.engine, ("auto", "uring", "threads", "sim")),
            "io": choice("io", self.io, ("auto", "direct", "buffered")),
            # No exponent, which a time has not.
            "linger": f"{number('linger', self.linger, 0, LINGER_SECONDS_MAX):.3f}s",
            "store": store,
            "depth": depth,
            "hedge": "yes" if flag("hedge", self.hedge) else "no",
            "workers": workers,
            "jpeg": choice("jpeg", self.jpeg, ("auto", "turbo")),
        }

    def arguments(self, dataset: Path, job: str, socket: str | None) -> list[str]:
        """The checked arguments as `shade-load` takes them."""
        settings = self.settings()
        arguments = ["serve", str(dataset), "--private", "--job", job]
        for name in ("cache", "policy", "lookahead", "engine", "io", "linger"):
            arguments += [f"--{name}", settings[name]]
        for name, default in (("store", "none"), ("depth", "auto"), ("workers", "auto"), ("jpeg", "auto")):
            if settings[name] != default:
                arguments += [f"--{name}", settings[name]]
        if self.hedge:
            arguments.append("--hedge")
        if socket is not None:
            arguments += ["--socket", socket]
        return arguments

    def differences(self, running: dict[str, str]) -> list[str]:
        """What a daemon that runs so has otherwise than asked for: a text for each. What is as by default is not held against a
        daemon that somebody started by hand, with settings of his own."""
        defaults = DaemonOptions().settings()
        by_hand = running.get("linger") == _native.LINGERS_FOR_EVER
        return [
            f"{name} {running[name]} instead of {asked}"
            for name, asked in self.settings().items()
            if running.get(name, asked) != asked and not (by_hand and asked == defaults[name])
        ]


def dataset_path(dataset: str | os.PathLike[str]) -> Path:
    """The dataset's folder with links resolved, as all ranks and the daemon name it."""
    path = Path(dataset).resolve()
    if not (path / INDEX_FILE).is_file():
        raise FileNotFoundError(
            f"dataset: {path} holds no {INDEX_FILE}; make one from an ImageFolder: shade-pack create SRC OUT"
        )
    return path


def job_name(job: str) -> str:
    """A job's name: part of the socket's name, and of messages."""
    return matching("job", job, _JOB, "letters, digits, '.', '_' and '-', at most 64")


def image_size(value: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) in pixels."""
    sides = (value, value) if isinstance(value, int) else tuple(value)
    if len(sides) != 2:
        raise ValueError(f"image_size: got {value!r}, expected a side, (height, width) or None")
    height, width = (integer("image_size", side, 1, IMAGE_SIDE_MAX) for side in sides)
    return height, width


def integer(name: str, value: int, low: int, high: int) -> int:
    """`value`, if it is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: got {value!r}, expected an integer")
    if not low <= value <= high:
        raise ValueError(f"{name}: got {value}, expected {low} to {high}")
    return value


def number(name: str, value: float, low: float, high: float) -> float:
    """`value`, if it is a finite number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: got {value!r}, expected a number")
    if not (math.isfinite(value) and low <= value <= high):
        expected = f"at least {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"
        raise ValueError(f"{name}: got {value}, expected {expected}")
    return float(value)


def flag(name: str, value: bool) -> bool:
    """`value`, if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: got {value!r}, expected True or False")
    return value


def system(preset: str) -> tuple[str, str, str]:
    """Sampler, policy and order of a preset."""
    return _native.PRESETS[choice("preset", preset, _native.PRESETS)]


def choice(name: str, value: str, known: Collection[str]) -> str:
    """`value`, if it is one of `known`."""
    if value not in known:
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(map(repr, known))}")
    return value


def matching(name: str, value: str, pattern: re.Pattern[str], example: str) -> str:
    """`value`, if it is a text of the pattern."""
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError(f"{name}: got {value!r}, expected something like {example}")
    return value


def size_bytes(name: str, value: int | str, low: int, high: int) -> int:
    """Bytes from a number or a text such as "256MiB"."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise ValueError(f'{name}: got {value!r}, expected bytes or a size such as "256MiB"')
        unit = match[2][:1].upper() + match[2][1:].replace("b", "B").replace("I", "i")
        value = int(float(match[1]) * _UNITS[unit])
    return integer(name, value, low, high)


def capacity(name: str, value: int | str) -> str:
    """A cache capacity for the command line: bytes, or a percentage of the dataset."""
    if isinstance(value, str) and _PERCENT.fullmatch(value.strip()):
        number(name, float(value.strip()[:-1]), 0.0, 100.0)
        return value.strip()
    return str(size_bytes(name, value, 0, UINT64_MAX))
