"""Requests that an epoch costs, counted at the server: with permutations and with echoes, with a cache and without."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.buckets.readers import READERS
from benches.buckets.store import BUCKET, SLOWNESS, environment, far_away, write_records
from benches.rivals import report
from studies.bucket import Server

RECORDS = 8_000
# Small, as the dataset is: echoes of a record are 20 to 60 batches apart, and a cache of 20 % holds
# 100 batches.
BATCH = 16
# Counted after a first one, which fills the cache.
EPOCHS = 3


DETAILS = {"delivered": "records", "misses": "neither cached nor prefetched", "coalesced": "came with a neighbour's request"}


@dataclass(frozen=True)
class Way:
    """A training: its cache and its plan."""

    title: str
    cache: str
    plan: dict[str, Any]


WAYS = [
    Way("uniform, no cache", "0", {"sampler": "uniform"}),
    Way("uniform, cache of 20 %", "20%", {"sampler": "uniform"}),
    Way("echo, no cache", "0", {"sampler": "echo"}),
    Way("echo, cache of 20 %", "20%", {"sampler": "echo"}),
]


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """The version, and a row for each way."""
    write_records(scratch / "images", arguments.records)
    packed = scratch / "packed"
    packed.mkdir()
    READERS["shade"].pack(scratch / "images", packed / "shade", arguments.programs)
    rows: list[dict[str, Any]] = []
    with far_away(arguments.programs, packed, scratch / "store") as server:
        os.environ.update(environment(server, scratch, arguments.programs))
        for way in WAYS:
            rows.append(_row(way, *_counted(way, server)))
            rows[-1]["ratio"], rows[-1]["rival"] = rows[-1]["median"] / rows[0]["median"], rows[0]["name"]
    return {"shade_load": READERS["shade"].version()}, rows


def _counted(way: Way, server: Server) -> tuple[list[int], dict[str, int]]:
    """Requests of each epoch after the first, and what the daemon says of all of them."""
    from shade_load import Daemon, Loader, Plan

    requests, first = [], {}
    # A daemon of its own, which ends with the training.
    arguments = {"cache": way.cache, "plan": Plan(**way.plan), "daemon": Daemon(linger=0.0)}
    with Loader(f"s3://{BUCKET}/shade", BATCH, **arguments) as loader:
        before = 0
        for epoch in range(1 + EPOCHS):
            for batch in loader:
                del batch
            # Reads that are under way belong to the next epoch, as those of the last to this one.
            now, total = server.be(SLOWNESS), loader.stats()["total"]
            if epoch > 0:
                requests.append(now - before)
            before, first = now, first or total
        daemon = Path(f"/proc/{loader.daemon_pid}")
    while daemon.exists():
        time.sleep(0.01)
    return requests, {name: total[name] - first[name] for name in ("delivered", "misses", "coalesced")}


def _row(way: Way, requests: list[int], told: dict[str, int]) -> dict[str, Any]:
    row = report.row(way.title, [float(count) for count in requests], "requests an epoch", 0.0)
    return {**row, **{f"{name}_an_epoch": count / EPOCHS for name, count in told.items()}}


def details(row: dict[str, Any]) -> str:
    """What a row has besides requests."""
    counts = (f"{row[f'{name}_an_epoch']:,.0f} {words}" for name, words in DETAILS.items())
    return "an epoch: " + ", ".join(counts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(records=RECORDS)
