"""torchrun starts a training again of which one rank was killed: it finds daemon, cache and state, and goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import packed
import pytest
from hosts import HANG_SECONDS

pytest.importorskip("torch")

import elastic_train
from shade_load import Daemon, Loader

SCRIPT = Path(elastic_train.__file__)


def undisturbed(dataset: packed.Packed) -> dict[tuple[int, int, int], list[int]]:
    """The ids of a training without a death, by epoch, batch and rank."""
    given = {}
    arguments = {"cache": "100%", "plan": elastic_train.PLAN, "seed": 3, "daemon": Daemon(job="undisturbed")}
    with (
        Loader(dataset.path, elastic_train.BATCH, rank=0, world_size=2, **arguments) as first,
        Loader(dataset.path, elastic_train.BATCH, rank=1, world_size=2, **arguments) as second,
    ):
        for epoch in range(elastic_train.EPOCHS):
            for batches in zip(first, second, strict=True):
                for rank, (loader, batch) in enumerate(zip((first, second), batches, strict=True)):
                    ids = batch.ids.tolist()
                    given[epoch, batch.index, rank] = ids
                    loader.report(batch, elastic_train.losses(ids))
    return given


def stop(dataset: packed.Packed) -> None:
    """Ends a daemon that lingers for a training that comes again."""
    subprocess.run([packed.program("shade-load"), "stop", dataset.path], capture_output=True, check=False)


def noted(out: Path, attempt: int) -> dict[tuple[int, int, int], list[int]]:
    given = {}
    for rank in range(2):
        for line in (out / f"note-{rank}-{attempt}").read_text().splitlines():
            epoch, batch, ids = json.loads(line)
            given[epoch, batch, rank] = ids
    return given


def test_a_killed_rank_costs_what_came_since_the_last_state(tmp_path: Path) -> None:
    packed.image_folder(tmp_path / "folder", "png")
    dataset = packed.pack(tmp_path / "folder", tmp_path / "data.shade")
    expected = undisturbed(dataset)
    stop(dataset)
    out = tmp_path / "out"
    out.mkdir()
    options = ["--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, SCRIPT, dataset.path, out]
    # torch 2.15 shares one store among all attempts, in which gloo finds addresses of ranks that
    # are gone: without this a restart may fail, also of a script without a Loader.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    try:
        done = subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
        )
    finally:
        stop(dataset)
    assert done.returncode == 0, done.stdout + done.stderr
    # The other rank has heard of the death by itself, and was not ended in a wait.
    assert sorted(path.name for path in out.glob("error-*")) == ["error-0-0"], done.stderr
    first, second = noted(out, 0), noted(out, 1)
    assert not list(out.glob("note-*-2"))
    epoch, batch = elastic_train.DEATH
    saved = batch // elastic_train.SAVED_EVERY * elastic_train.SAVED_EVERY
    assert min(second) == (epoch, saved, 0)
    assert (epoch, batch, 1) not in first
    assert first == {place: ids for place, ids in expected.items() if place in first}
    assert second == {place: ids for place, ids in expected.items() if place >= (epoch, saved, 0)}
    assert first | second == expected
    found = [
        [json.loads((out / f"found-{rank}-{attempt}").read_text()) for rank in range(2)] for attempt in range(2)
    ]
    assert len({rank["daemon"] for attempt in found for rank in attempt}) == 1, "one daemon has served all"
    assert len({rank["job"] for attempt in found for rank in attempt}) == 1
    assert found[0][0]["resident"] == 0
    assert all(rank["resident"] == len(dataset) for rank in found[1])
