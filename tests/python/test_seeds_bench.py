"""The bench of SHADE's own experiment runs at its smallest, and its report follows from its record."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchvision")

from benches.seeds import redis
from benches.seeds.report import report
from benches.seeds.task import DATALOADER, REDIS
from hosts import hosts
from studies import slow_store

ROOT = Path(__file__).parents[2]
# Where `make test` builds shade-slow-store.
PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
NODES, EPOCHS = 3, 2


def test_three_nodes_train_from_files_and_with_redis(tmp_path: Path, png_folder: Path) -> None:
    if refusal := slow_store.find(PROGRAMS, 1, 1, tmp_path).simulated_because or redis.missing():
        pytest.skip(refusal)
    with hosts(NODES):
        pass
    images = tmp_path / "images"
    images.mkdir()
    for split in ("train", "val"):
        (images / split).symlink_to(png_folder)
    options = {"--programs": PROGRAMS, "--out": tmp_path / "out", "--data": images}
    options |= {"--nodes": NODES, "--ranks": 1, "--epochs": EPOCHS}
    words = [str(word) for option in options.items() for word in option]
    ways = [word for way in (DATALOADER, REDIS) for word in ("--way", way)]
    subprocess.run([sys.executable, "-m", "benches.seeds", *words, *ways], cwd=ROOT, check=True)
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    files, shade = record["rows"]
    samples = len(list(png_folder.rglob("*.png")))
    assert record["samples"] == samples
    # The DataLoader opens every file in every epoch.
    assert files["operations"]["open"] == samples * EPOCHS
    assert all(epoch["distinct_share"] == 1 and epoch["hits"] == 0 for epoch in files["epochs"])
    first, second = shade["epochs"]
    assert first["distinct_share"] == 1 and first["hits"] == 0
    assert second["distinct_share"] < 1 and second["hits"] > 0, "drawn by importance"
    for epoch in shade["epochs"]:
        assert epoch["accesses"] == samples
    assert first["tier_writes"] > 0 and first["bytes_read"] > second["bytes_read"]
    assert (tmp_path / "out" / "report.md").read_text() == report(record)
