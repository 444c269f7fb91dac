"""JAX reads the same samples and pixels as torch, by DLPack, and resumes as torch does."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import packed
import pytest
from shade_load import Daemon, Loader, Plan

pytest.importorskip("jax")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("jax")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def test_batches_are_torchs_and_go_on_after_a_break(dataset: packed.Packed, tmp_path: Path) -> None:
    words = [dataset.path, tmp_path / "read.npz", ",".join(map(str, MEAN)), ",".join(map(str, STD))]
    # JAX has threads, and other tests fork: it has a process of its own.
    subprocess.run([sys.executable, Path(__file__).with_name("jax_reads.py"), *map(str, words)], check=True)
    read = np.load(tmp_path / "read.npz")
    for epoch in range(3):
        for column in ("ids", "labels", "images", "weights"):
            whole, resumed = (read[f"{name} {epoch} {column}"] for name in ("whole", "resumed"))
            assert np.array_equal(whole, resumed), f"{column} of epoch {epoch}"
    options = {"image_size": (12, 9), "dtype": "bfloat16", "normalize": (MEAN, STD), "seed": 3}
    with Loader(dataset.path, 8, daemon=Daemon(job="torch"), plan=Plan(sampler="pads"), **options) as loader:
        batches = [(batch.ids.clone(), batch.labels.clone(), batch.images.float()) for batch in loader]
    for number, column in enumerate(("ids", "labels", "images")):
        ours = np.concatenate([batch[number].numpy() for batch in batches])
        assert np.array_equal(ours, read[f"whole 0 {column}"]), column
    assert sorted(read["whole 0 ids"]) == list(range(len(dataset)))
    drawn = read["whole 1 ids"]
    assert len(set(drawn)) < len(drawn), "losses came from JAX, so samples are drawn by importance"
