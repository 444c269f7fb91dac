"""Daemon: how a training's daemon is found and runs, and its comparison with a running one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from . import _native
from .exchange import Exchange
from .options import (
    RING_BYTES_MAX,
    UINT32_MAX,
    UINT64_MAX,
    Options,
    flag,
    integer,
    job_name,
    number,
    plain,
    shown,
    size_bytes,
)

Policy = Literal["lookahead", "app", "topc", "lfu", "lru", "fifo", "arc", "static", "icache", "quiver"]

DECODE_ONCE_DEFAULT = "256MiB"
# Fields that say how a daemon is found. All others are its settings.
_HERE = ("job", "socket", "ring", "timeout", "exchange", "survive", "deaths_max")
_DEFAULT_PRESET = "permutations"


@dataclass(frozen=True, kw_only=True, repr=False)
class Daemon(Options):
    """How the training's daemon is found and runs.

    Nothing here changes the training's samples, except a policy that substitutes some.

        Loader("photos.shade", 256, image_size=224, daemon=Daemon(job="ablation", workers=8))

    All trainings of a user on a dataset share one daemon and its cache. The first Loader decides
    the daemon's settings: `policy`, `lookahead`, `fields`, `package_bytes`, `tier`, `tier_cache`, `store`,
    `depth`, `workers`, `decode_once`, `jpeg`, `engine`, `io`, `linger` and the Loader's `cache`. A
    Loader with other settings gets a new daemon if the old one is unused. Otherwise the daemon keeps
    its settings, and a warning names the differences.

    Args:
        job: Name of the training among those on the dataset; equal in all its ranks. Default: the
            name of torchrun's run or of Slurm's job, else "default". A training of one rank takes
            the next free name ("default-2") where another has that. `loader.job` is the name. Give
            one to tell trainings apart, or if several of several ranks run at once.
        socket: Path of the daemon's socket. Default: $SHADE_SOCKET, else a name made from user and
            dataset. Give one for ranks in several containers: mount its folder into each container,
            and the dataset at the same path. Or give one for a daemon, and a cache, beside the
            shared one.
        policy: Records that the cache keeps. Default: the preset's, which is "lookahead": those
            that the epoch's plan uses soonest, then by importance. The others are for comparison:
            "app" by importance alone, "topc" by importance regardless of use, "lfu" most often
            used, "lru" last used, "fifo" last read, "arc" a balance of recent and repeated use,
            "static" first read, "icache" two regions for high and low importance, "quiver" not yet
            used in the epoch. "icache" and "quiver" also substitute samples.
        lookahead: Range of the policy "lookahead" in epochs. Default: 1.0, the rest of the epoch.
            Lower it to measure the value of the plan's knowledge.
        fields: Extra fields that are read with their records and kept in the cache: True for all,
            or names. Those that the Loader names are added. Default: no others. Name what a later
            Loader on the same daemon will want.
        package_bytes: Bytes that a miss brings along from around its record, as far as the cache
            would keep them: bytes or "64KiB", at most 256 KiB; 0 brings none. Default: 64 KiB with
            the policy "icache", else 0. Raise it for records of a few KB on a store whose
            operations are the limit.
        tier: Servers of a Valkey or Redis Cluster as a second level behind the cache:
            "valkey://HOST:PORT,HOST:PORT", or "rediss://..." for TLS. Default: none. For a store
            that is slower than the memory of other machines. The password comes from the
            environment, SHADE_TIER_PASSWORD.
        tier_cache: Memory of all those servers that this daemon may fill: bytes or "64GiB".
            Default: nine tenths of what they have. Give each node its part where several share them.
        depth: Reads in flight, 1 to 4096. Default: the daemon adapts it. Give it if the store has a
            limit of its own.
        workers: Threads that decode and fill batches, 1 to 512. Default: the daemon chooses. Lower
            it if the training needs the cores.
        decode_once: Memory for decoded images that trainings of a group share: bytes or "256MiB".
            Default: "256MiB", used only while trainings have the same `Plan(group=...)` and equal
            images. The first one decodes an image, the others copy it. 0 decodes it for each.
        jpeg: Decoder of JPEGs. Default: "auto", shade's own decoder where it can. "turbo" is always
            libjpeg-turbo: the same pixels in about 1.6 times the time. It rules out shade's decoder
            as the cause of a problem.
        engine: How records are read. Default: "auto", which is "uring" where the kernel has it,
            else "threads". "sim" simulates a store. Change it to compare, or to avoid a kernel's
            defect.
        io: "direct" reads past the page cache, "buffered" through it. Default: "auto", which is
            "direct" where a trial read works. Choose "buffered" if other programs read the same
            files.
        store: Delay each read like a distant store: "latency=2ms,bandwidth=1Gbit,depth=32"; see
            `shade-load serve --help`. Default: none. For experiments.
        ring: Shared memory for finished batches: bytes or "256MiB". Default: eight batches, at
            least 16 MiB. You may keep batches in half of it; while you keep more, new batches are
            copies. Raise it if you keep batches.
        linger: Seconds that a daemon started by a Loader stays after its last rank has left.
            Default: 3.0. Raise it if a restarted training should find its cache.
        timeout: Seconds after which a wait for the daemon ends with `LoaderTimeout`. Default:
            300.0. A wait for ranks that are attached and do not ask for the epoch yet, as they
            validate or save, only warns then, and goes on. The wait for the Loaders of all other
            ranks, where a training has several nodes, ends after a fifth of it. Raise it for a
            store that may be unavailable for longer.
        exchange: How the ranks of several nodes find each other when the Loader is made. Default:
            "torch", which is torch.distributed if it is initialised. Else a function that gives
            the bytes of every rank for those of this one, such as mpi4py's COMM_WORLD.allgather.
            All ranks must make the Loader then. None: each rank believes its launcher's variables,
            and nothing tells if nodes have different datasets. A Loader that validates has none.
        survive: Replace a daemon that dies: the training goes on at its next batch, with the same
            samples and pixels, and a `RuntimeWarning` says how the daemon ended. Default: True. A
            daemon that a Loader has started is started again, and any other is waited for, up to
            60 s. What goes by what is cached may come otherwise then, and the warning says so.
            False: the training ends with its daemon, with `DaemonGone`.
        deaths_max: How many daemons of a rank may die within an hour. Default: 20. One more is not
            replaced, and `DaemonGone` says how it ended. Raise it only to see what kills them.
    """

    job: str | None = None
    socket: str | os.PathLike[str] | None = None
    policy: Policy | None = None
    lookahead: float = 1.0
    fields: bool | Iterable[str] = False
    package_bytes: int | str | None = None
    tier: str | None = None
    tier_cache: int | str | None = None
    depth: int | None = None
    workers: int | None = None
    decode_once: int | str = DECODE_ONCE_DEFAULT
    jpeg: Literal["auto", "turbo"] = "auto"
    engine: Literal["auto", "uring", "threads", "sim"] = "auto"
    io: Literal["auto", "direct", "buffered"] = "auto"
    store: str | None = None
    ring: int | str | None = None
    linger: float = 3.0
    timeout: float = 300.0
    exchange: Exchange | Literal["torch"] | None = "torch"
    survive: bool = True
    deaths_max: int = 20

    def __post_init__(self) -> None:
        if self.job is not None:
            job_name(self.job)
        flag("survive", self.survive)
        object.__setattr__(self, "deaths_max", integer("deaths_max", self.deaths_max, 0, UINT32_MAX))
        object.__setattr__(self, "timeout", number("timeout", self.timeout, 0.001, 1e9))
        is_named = self.exchange is None or (isinstance(self.exchange, str) and self.exchange == "torch")
        if not is_named and not callable(self.exchange):
            raise TypeError(f'exchange: got {shown(self.exchange)}, expected "torch", None or a function of bytes')
        if self.socket is not None and not isinstance(self.socket, str | os.PathLike):
            raise TypeError(f"socket: got {shown(self.socket)}, expected the path of a socket")
        object.__setattr__(self, "fields", _named(self.fields))
        self.ring_bytes()
        self.settings(None, _DEFAULT_PRESET)

    def socket_path(self) -> str | None:
        """The daemon's socket file; None for the name made from user and dataset."""
        socket = self.socket or os.environ.get("SHADE_SOCKET")
        return os.path.abspath(socket) if socket else None

    def ring_bytes(self) -> int:
        """Length of the ring; 0 for the daemon's choice."""
        return 0 if self.ring is None else size_bytes("ring", self.ring, 1, RING_BYTES_MAX)

    def settings(self, cache: int | str | None, preset: str, names: Iterable[str] = ()) -> dict[str, Any]:
        """All settings as the daemon has them, to start a daemon and to compare one.

        `names` are fields that the Loader wants.
        """
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _HERE}
        policy, of_preset = _native.PRESETS[preset]
        given["policy"] = policy if self.policy is None else self.policy
        given["fields"] = self._fields_read(names)
        return settings({**given, "cache": of_preset if cache is None else cache})

    def _fields_read(self, names: Iterable[str]) -> str:
        """The fields that the daemon reads, as it has them."""
        if self.fields is True or self.fields == "all":
            return "all"
        own = () if self.fields is False or self.fields == "none" else self.fields
        named = [*(own.split(",") if isinstance(own, str) else own), *names]
        # One field may be called "all" or "none": a comma makes it a name.
        return ",".join([*named, ""]) if named else "none"


def _named(given: Any) -> bool | str | tuple[str, ...]:
    """The fields to read as they are given; an iterator is read once."""
    given = plain(given)
    if isinstance(given, bool | str):
        return given
    names = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"fields: got {shown(given)}, expected True for all fields, or names of some")
    return names


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """These settings as the daemon has them, with its default for None."""
    scalars = {name: plain(value) for name, value in given.items()}
    for name, value in scalars.items():
        is_number = isinstance(value, int | float) and abs(value) <= UINT64_MAX
        if not (is_number or value is None or isinstance(value, str)):
            raise TypeError(f"{name}: got {shown(value)}, expected a number up to 2**64, True, False or a text")
    found: dict[str, Any] = json.loads(_native.daemon_settings(json.dumps(scalars)))
    return found


def differences(asked: Mapping[str, Any], running: Mapping[str, Any], trains: bool) -> list[str]:
    """A text for each setting in which a running daemon differs.

    The daemon may have its own values where the defaults are requested, if it was started by hand,
    or if the Loader validates: then it is the daemon of a training.
    """
    defaults = Daemon().settings(None, _DEFAULT_PRESET)
    may_differ = not trains or running.get("linger") == _native.LINGERS_FOR_EVER
    # One that reads fields serves who wants none.
    return [
        f"{name} {running[name]} instead of {value}"
        for name, value in asked.items()
        if running.get(name, value) != value
        and not (may_differ and value == defaults[name])
        and not (name == "fields" and value == "none")
    ]
