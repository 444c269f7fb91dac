"""Daemon: how a training's daemon is found, what it runs with, and how it compares with one that runs already."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import _native
from .options import RING_BYTES_MAX, Options, capacity, choice, flag, integer, job_name, matching, number, size_bytes

Policy = Literal["lookahead", "app", "topc", "lfu", "lru", "fifo", "arc", "static", "icache", "quiver"]

CACHE_DEFAULT = "20%"
# Limits of `shade-load serve`.
DEPTH_MAX = 1024
WORKERS_MAX = 512
# A year: no daemon should stay for longer than somebody remembers it.
LINGER_SECONDS_MAX = 365 * 86_400
# What each part may say is checked by the daemon.
_STORE = re.compile(r"[a-z]+=[^,=\s]+(?:,[a-z]+=[^,=\s]+)*")
# Settings that are left out of the command line when they have this value.
_UNSET = {"store": "none", "depth": "auto", "workers": "auto", "jpeg": "auto", "hedge": "no"}


@dataclass(frozen=True, kw_only=True, repr=False)
class Daemon(Options):
    """How the training's daemon is found and runs.

    Nothing here changes what is trained on, except for a policy that substitutes samples.

        Loader("photos.shade", 256, image_size=224, daemon=Daemon(job="ablation", workers=8))

    `policy`, `lookahead`, `store`, `depth`, `hedge`, `workers`, `jpeg`, `engine`, `io` and `linger` are the
    daemon's own, as is the Loader's `cache`: the first Loader of a job decides them. A Loader that
    asks for other ones gets a new daemon if nobody uses the old one; otherwise the daemon keeps its
    settings and a warning names the differences.

    Args:
        job: Name that sets trainings on one dataset apart; equal in all ranks of a training.
            Default for several ranks: the name of torchrun's run or of Slurm's job, else "default".
            Default for one rank: "default"; while another training has that, the next free name,
            and a warning names it. `loader.job` is the name. Give one if several trainings run at
            once.
        socket: Path of the daemon's socket. Default: a name made from user, dataset and job. Give
            one for ranks in several containers: mount its folder into each of them, and the dataset
            at the same path.
        policy: What the cache keeps. Default: the preset's, which is "lookahead": what the epoch's
            plan uses soonest and, behind that, by importance. The others are for comparison:
            "app" by importance alone, "topc" by importance regardless of use, "lfu" the most used,
            "lru" the latest used, "fifo" the latest read, "arc" a balance of used lately and used
            again, "static" what came first, "icache" two regions for high and low importance,
            "quiver" what the epoch has not used. "icache" and "quiver" also substitute samples.
        lookahead: How far the policy "lookahead" sees, in epochs. Default: 1.0, the rest of the
            epoch. Lower it to measure what the plan's knowledge is worth.
        depth: Reads in flight, 1 to 1024. Default: the daemon finds out. Give it if the store has a
            limit of its own.
        hedge: Ask once more for records that are far later than the others, for 1 in 100 at most.
            Default: False. Set it for a store with rare slow answers.
        workers: Threads that decode and fill batches, 1 to 512. Default: the daemon chooses. Lower
            it if the training needs the cores.
        jpeg: What decodes JPEGs. Default: "auto", shade's own decoder where it can. "turbo" is
            libjpeg-turbo alone: the same pixels in about 1.6 times the time. It rules out shade's
            decoder as the cause of a problem.
        engine: How records are read. Default: "auto", which is "uring" where the kernel has it,
            else "threads". "sim" simulates a store. Change it to compare, or to avoid a kernel's
            defect.
        io: "direct" reads past the page cache, "buffered" through it. Default: "auto", which is
            direct where the file system can. Choose "buffered" if other programs read the same files.
        store: Delay each read as a distant store would: "latency=2ms,bandwidth=1Gbit,depth=32"; see
            `shade-load serve --help`. Default: none. For experiments.
        ring: Shared memory for finished batches: bytes or "256MiB". Default: eight batches, 16 MiB
            at least. Half of it may be kept in hand; what comes while more is kept is copied. Raise
            it if you keep batches.
        linger: Seconds that a daemon started by a Loader stays after its last rank has left.
            Default: 3.0. Raise it if a training that is restarted shall find its cache.
        timeout: Seconds after which a wait for the daemon is given up with `LoaderTimeout`.
            Default: 300.0. Raise it for a store that may be away for longer.
    """

    job: str | None = None
    socket: str | os.PathLike[str] | None = None
    policy: Policy | None = None
    lookahead: float = 1.0
    depth: int | None = None
    hedge: bool = False
    workers: int | None = None
    jpeg: Literal["auto", "turbo"] = "auto"
    engine: Literal["auto", "uring", "threads", "sim"] = "auto"
    io: Literal["auto", "direct", "buffered"] = "auto"
    store: str | None = None
    ring: int | str | None = None
    linger: float = 3.0
    timeout: float = 300.0

    def __post_init__(self) -> None:
        if self.job is not None:
            job_name(self.job)
        number("timeout", self.timeout, 0.001, 1e9)
        self.ring_bytes()
        self.settings(CACHE_DEFAULT, "lookahead")

    def ring_bytes(self) -> int:
        """Length of the ring; 0 lets the daemon choose."""
        return 0 if self.ring is None else size_bytes("ring", self.ring, 1, RING_BYTES_MAX)

    def settings(self, cache: int | str, policy: str) -> dict[str, str]:
        """All settings as texts of `shade-load serve`: what a daemon is started with and compared with."""
        if self.policy is not None:
            policy = self.policy
        store, depth, workers = _UNSET["store"], _UNSET["depth"], _UNSET["workers"]
        if self.store is not None:
            store = matching("store", self.store, _STORE, '"latency=2ms,bandwidth=1Gbit,depth=32"')
        if self.depth is not None:
            depth = str(integer("depth", self.depth, 1, DEPTH_MAX))
        if self.workers is not None:
            workers = str(integer("workers", self.workers, 1, WORKERS_MAX))
        return {
            "cache": capacity("cache", cache),
            "policy": choice("policy", policy, _native.POLICIES),
            "lookahead": f"{number('lookahead', self.lookahead, 0, 1e9):g}",
            "engine": choice("engine", self.engine, ("auto", "uring", "threads", "sim")),
            "io": choice("io", self.io, ("auto", "direct", "buffered")),
            # No exponent, which a time has not.
            "linger": f"{number('linger', self.linger, 0, LINGER_SECONDS_MAX):.3f}s",
            "store": store,
            "depth": depth,
            "workers": workers,
            "jpeg": choice("jpeg", self.jpeg, ("auto", "turbo")),
            "hedge": "yes" if flag("hedge", self.hedge) else _UNSET["hedge"],
        }


def serve_arguments(settings: dict[str, str], dataset: Path, job: str, socket: str | None) -> list[str]:
    """The command line of a daemon with these settings, as `shade-load` takes it."""
    arguments = ["serve", str(dataset), "--private", "--job", job]
    for name, value in settings.items():
        if _UNSET.get(name) != value:
            arguments += [f"--{name}"] if name == "hedge" else [f"--{name}", value]
    if socket is not None:
        arguments += ["--socket", socket]
    return arguments


def differences(asked: dict[str, str], running: dict[str, str]) -> list[str]:
    """A text for each setting that a running daemon has otherwise than asked for.

    A daemon that somebody started by hand may have its own values where the default is asked for.
    """
    defaults = Daemon().settings(CACHE_DEFAULT, "lookahead")
    by_hand = running.get("linger") == _native.LINGERS_FOR_EVER
    return [
        f"{name} {running[name]} instead of {value}"
        for name, value in asked.items()
        if running.get(name, value) != value and not (by_hand and value == defaults[name])
    ]
