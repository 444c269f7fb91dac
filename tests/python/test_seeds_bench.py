"""The bench of SHADE's own experiment runs at its smallest, and its report follows from its record."""

from pathlib import Path

import live_bench
import pytest

pytest.importorskip("torchvision")

from benches.seeds import redis
from benches.seeds.report import report
from benches.seeds.task import DATALOADER, REDIS
from hosts import hosts

NODES, EPOCHS = 3, 2


def test_three_nodes_train_from_files_and_with_redis(tmp_path: Path, png_folder: Path) -> None:
    if refusal := redis.missing():
        pytest.skip(refusal)
    with hosts(NODES):
        pass
    images = tmp_path / "images"
    images.mkdir()
    for split in ("train", "val"):
        (images / split).symlink_to(png_folder)
    options = ["--data", images, "--nodes", NODES, "--ranks", 1, "--epochs", EPOCHS]
    ways = [word for way in (DATALOADER, REDIS) for word in ("--way", way)]
    record, written = live_bench.run("benches.seeds", tmp_path, *options, *ways)
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
    assert written == report(record)
