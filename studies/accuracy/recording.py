"""Records a run, and says what other caches and stores would have done for it."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shade_load import find_daemon

from studies.accuracy.settings import CACHE, CACHES, POLICIES, RATES, SAMPLES_PER_SECOND

KEPT = ("policy", "cache", "hits", "misses", "prefetched", "exchanged", "accesses", "hit_ratio", "bytes_read", "stall_s")


@contextmanager
def recorded(dataset: Path, socket: Path, out: Path) -> Iterator[None]:
    """Records the daemon at `socket`, which has one job, until it ends. Ends the recording with the block
    if the daemon is still there."""
    out.unlink(missing_ok=True)
    command = [find_daemon(), "trace", dataset, "--socket", socket, "--out", out]
    # It says so when it records, unless the user's log is quieter.
    log = {**os.environ, "SHADE_LOG": "info"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=log)
    assert process.stderr is not None
    first = process.stderr.readline()
    if "recording" not in first:
        process.kill()
        raise RuntimeError(f"shade-load trace: {first}{process.stderr.read()}")
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def keep(recording: Path, kept: Path) -> None:
    """Keeps what simulations need of a recording: ids, sizes, and losses to three digits, which is half of its bytes."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(f".{os.getpid()}")
    with recording.open() as lines, lzma.open(unfinished, "wt", preset=9) as file:
        for line in lines:
            known = json.loads(line)
            if "dataset" in known:
                known["dataset"] = Path(known["dataset"]).name
            if "report" in known:
                losses = known["report"]["losses"]
                known["report"]["losses"] = [loss if loss is None else float(f"{loss:.3g}") for loss in losses]
            if "snapshot" not in known:
                file.write(json.dumps(known, separators=(",", ":")) + "\n")
    unfinished.replace(kept)


def played_again(kept: Path, record_bytes: float) -> list[dict[str, Any]]:
    """The rows of a recording that was kept. The figures of a record are these from the beginning."""
    with tempfile.NamedTemporaryFile() as whole:
        with lzma.open(kept) as file:
            shutil.copyfileobj(file, whole)
        whole.flush()
        return played(Path(whole.name), record_bytes)


def played(recording: Path, record_bytes: float) -> list[dict[str, Any]]:
    """The rows of `shade-load simulate` for each rate, cache and policy. `stall_share` is the wait
    over the training's compute, `bytes_read` that of the whole training."""
    rows = []
    for rate in RATES:
        bandwidth = round(rate * SAMPLES_PER_SECOND * record_bytes)
        for row in _simulated(recording, f"latency=1ms,bandwidth={bandwidth}B,depth=64", SAMPLES_PER_SECOND, CACHES, POLICIES):
            compute = row["accesses"] / SAMPLES_PER_SECOND
            rows.append({"store_rate": rate, "stall_share": row["stall_s"] / compute, **{k: row[k] for k in KEPT}})
    return rows


def waits(recording: Path, store: str, samples_per_second: float, policy: str, *, together: bool) -> dict[str, Any]:
    """The row of `shade-load simulate` for this store, and a trainer that computes this fast. `together`: neighbours are
    one read, as they are to the daemon."""
    (row,) = _simulated(recording, store, samples_per_second, (CACHE,), (policy,), ["--coalesce"] * together)
    return {"store": store, **{name: row[name] for name in KEPT}}


def daemon_of(socket: Path) -> dict[str, Any]:
    """The daemon at `socket`: its version, its program's digest, and all its settings."""
    program = find_daemon()
    command = [program, "status", "--socket", socket, "--json"]
    (daemon,) = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    return {"version": daemon["version"], "program_sha256": digest, "settings": daemon["settings"]}


def record_bytes(dataset: Path) -> float:
    """Mean bytes of a record."""
    command = [find_daemon().with_name("shade-pack"), "info", dataset, "--json"]
    about = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return about["record_bytes"]["mean"]


def _simulated(
    recording: Path,
    store: str,
    samples_per_second: float,
    caches: Sequence[str],
    policies: Sequence[str],
    more: Sequence[str] = (),
) -> list[dict[str, Any]]:
    words = ["--trace", recording, "--cache", ",".join(caches), "--policy", ",".join(policies), "--store", store]
    command = [find_daemon(), "simulate", *words, *more, "--compute", f"{1e6 / samples_per_second:g}us/sample", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["rows"]
