"""Which ranks of a training are on this node, and whether all nodes agree on what they train on."""

from __future__ import annotations

import json
import os
import socket as sockets
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import _native
from ._native import ShadeError
from .exchange import Exchange
from .ranks import ranks_here

# Fields of a job that each node has for itself; a plan is compared field by field.
_OF_A_NODE = ("ranks_here", "ring_bytes", "plan")
# This node's number of ranks by the last exchange, by world size and node: for a validation, which
# has no exchange of its own.
_known: dict[tuple[int, str], int] = {}


@dataclass(frozen=True)
class Member:
    """A rank, and all that the ranks of a training must agree on."""

    rank: int
    # Name of its machine, for messages.
    host: str
    # Equal where ranks share a daemon.
    node: str
    version: str
    protocol: int
    dataset: str
    samples: int
    content_id: str
    # Strata of the last training of the node's daemon, if its cache still has any; else 0.
    held_strata: int
    # The arguments of the job.
    job: dict[str, Any]
    # Why this rank cannot train; the fields above may be empty then.
    error: str | None = None

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Member:
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise ShadeError(
                f"exchange: a rank's message cannot be read ({error}): all ranks need the same version of shade_load, this "
                f"one has {_native.__version__}, and `exchange` must return the bytes of each rank"
            ) from None


@dataclass(frozen=True)
class Placement:
    """Where a training's ranks are: this daemon's part, and the strata of the plan."""

    # 0: all ranks are here.
    ranks_here: int
    strata: int
    # The stratum of each seat, for the daemon; empty if seat q has stratum q.
    seats: bytes = b""
    # The lowest rank of each node, as the exchange has told; of one node nobody asks.
    leaders: tuple[int, ...] = ()


def place(
    dataset: Path, socket: str | None, rank: int, job: Mapping[str, Any], strata: int | None, exchange: Exchange | None
) -> Placement:
    """Finds out which ranks are here, by the launcher or by `exchange`, and chooses strata and seats.

    Every rank of the training must call it. With an exchange, ranks that differ are refused, on all
    ranks alike. `strata` are those that the user has asked for.
    """
    world_size = job["world_size"]
    here = ranks_here(world_size)
    if strata is None and _native.drawn_whole(json.dumps(job)) is not None:
        # Over several nodes the daemon refuses those that follow from losses, and says so.
        strata = 1
    node = node_of(socket)
    if here == world_size or world_size == 1:
        return Placement(0, strata or 1)
    if not job["admit"]:
        # It takes each sample once, in order, so the nodes need no strata to agree.
        here = _known.get((world_size, node), here)
        return Placement(here or 0, 1)
    if exchange is None:
        if here is None:
            return Placement(0, strata or 1)
        # Made from what every rank knows alike.
        samples, _ = _native.dataset_content(str(dataset))
        return Placement(here, strata or _native.strata_for(1, world_size, samples))
    members = _meet(dataset, socket, node, rank, job, exchange)
    on_nodes = Counter(member.node for member in members)
    _known[world_size, node] = on_nodes[node]
    if len(on_nodes) == 1:
        return Placement(0, strata or 1)
    counts = set(on_nodes.values())
    per_node, nodes = (counts.pop(), len(on_nodes)) if len(counts) == 1 else (1, world_size)
    # The strata of the training before, if they suit: then strata are where they were, whole.
    kept = (member.held_strata for member in members if member.held_strata > 1)
    strata = strata or next((count for count in kept if count % world_size == 0), None)
    strata = strata or _native.strata_for(per_node, nodes, members[0].samples)
    seats = b""
    if strata > 1 and strata % world_size == 0 and any(member.held_strata for member in members):
        seats = _seats(members, rank, dataset, socket, strata, exchange)
    return Placement(on_nodes[node], strata, seats, tuple(sorted(_leaders(members).values())))


def node_of(socket: str | None) -> str:
    """A text that is equal in the processes that reach the same daemon.

    An abstract socket belongs to a network namespace, and one in a file to its folder, which
    several containers may have mounted.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    where = os.stat("/proc/self/ns/net" if socket is None else os.path.dirname(socket))
    file = "" if socket is None else os.path.basename(socket)
    return f"{boot}/{where.st_dev}/{where.st_ino}/{file}"


def _leaders(members: Sequence[Member]) -> dict[str, int]:
    """The lowest rank of each node."""
    first: dict[str, int] = {}
    for member in members:
        first.setdefault(member.node, member.rank)
    return first


def _seats(
    members: Sequence[Member], rank: int, dataset: Path, socket: str | None, strata: int, exchange: Exchange
) -> bytes:
    """The stratum of each seat by which the nodes keep what their daemons have cached."""
    first = _leaders(members)
    # One rank of each node asks its daemon.
    asks = rank in first.values()
    held = _held(dataset, socket, strata)[1] if asks else b""
    answers = {}
    for answer in exchange(struct.pack("<I", rank) + held):
        answers[int.from_bytes(answer[:4], "little")] = answer[4:]
    if sorted(answers) != list(range(len(members))):
        raise ShadeError(
            f"exchange: got the ranks {sorted(answers)} of what daemons have cached, expected each of 0 to "
            f"{len(members) - 1} once: it must return the bytes of every rank"
        )
    numbers = {node: number for number, node in enumerate(first)}
    return _native.seats_for(
        members[0].samples,
        strata,
        [numbers[member.node] for member in members],
        [answers[rank] for rank in first.values()],
    )


def _held(dataset: Path, socket: str | None, strata: int) -> tuple[int, bytes]:
    """What the node's daemon has cached: strata, and how much of each. (0, b"") without a daemon.

    A daemon that does not answer as it should has nothing: this rank's Loader will say why.
    """
    try:
        return _native.held(str(dataset), socket, strata)
    except (ShadeError, OSError, ValueError):
        return 0, b""


def _meet(
    dataset: Path, socket: str | None, node: str, rank: int, job: Mapping[str, Any], exchange: Exchange
) -> list[Member]:
    """All ranks, by rank."""
    # An error must not keep this rank away: the others would wait for it.
    failure: Exception | None = None
    samples, content_id = 0, ""
    try:
        samples, content_id = _native.dataset_content(str(dataset))
    except (ShadeError, OSError) as error:
        failure = error
    held_strata, held = _held(dataset, socket, 0) if failure is None else (0, b"")
    mine = Member(
        rank=rank,
        host=sockets.gethostname(),
        node=node,
        version=_native.__version__,
        protocol=_native.PROTOCOL,
        dataset=str(dataset),
        samples=samples,
        content_id=content_id,
        held_strata=held_strata if held else 0,
        job={name: value for name, value in {**job, **job["plan"]}.items() if name not in _OF_A_NODE},
        error=None if failure is None else str(failure),
    )
    answers = exchange(mine.to_bytes())
    if failure is not None:
        raise failure
    members = sorted(map(Member.from_bytes, answers), key=lambda member: member.rank)
    if [member.rank for member in members] != list(range(job["world_size"])):
        raise ShadeError(
            f"exchange: got the ranks {[member.rank for member in members]}, expected each of 0 to {job['world_size'] - 1} "
            f"once: it must return the bytes of every rank"
        )
    _refuse(members)
    return members


def _refuse(members: Sequence[Member]) -> None:
    """Raises the same error on all ranks if one of them cannot train, or trains on something else."""
    for member in members:
        if member.error is not None:
            raise ShadeError(f"rank {member.rank} on {member.host} cannot train: {member.error}")
    protocol = "the version of shade_load", lambda member: f"{member.version} (protocol {member.protocol})"
    content = "the dataset", lambda member: f"{member.samples} samples, content id {member.content_id}"
    _refuse_difference(members, *protocol, "Install the same on all nodes.")
    paths = ", ".join(sorted({member.dataset for member in members}))
    _refuse_difference(members, *content, f"Give all nodes the same packed dataset ({paths}).")
    for name in members[0].job:
        advice = f"All ranks need the same {name}."
        _refuse_difference(members, name, lambda member, name=name: repr(member.job.get(name)), advice)


def _refuse_difference(members: Sequence[Member], what: str, of: Callable[[Member], str], advice: str) -> None:
    by_value: dict[str, list[Member]] = {}
    for member in members:
        by_value.setdefault(of(member), []).append(member)
    if len(by_value) > 1:
        differing = "; ".join(f"{value} on {_named(ranks)}" for value, ranks in by_value.items())
        raise ShadeError(f"{what} is not the same on all ranks: {differing}. {advice}")


def _named(members: Sequence[Member]) -> str:
    """A few ranks with their machines."""
    shown = ", ".join(f"rank {member.rank} ({member.host})" for member in members[:4])
    return shown + (f" and {len(members) - 4} more" if len(members) > 4 else "")
