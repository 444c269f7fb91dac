"""The scripts of docs/from-*.md that convert another library's data: image bytes and labels stay the same.

Each runs where that library is installed: make does not install it.
"""

import re
import subprocess
import sys
from pathlib import Path

import packed
import pytest
from shade_load import Daemon, Loader

ROOT = Path(__file__).parents[2]
BATCH = 4


def conversion(page: str) -> str:
    """The page's block with the script."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (script,) = [block for block in re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M) if "tarfile" in block]
    return script


def converted(page: str, folder: Path) -> list[tuple[bytes, int]]:
    """Record and label of each sample, after the page's script and `shade-pack create`."""
    (folder / "script.py").write_text(conversion(page), encoding="utf-8")
    subprocess.run([sys.executable, "script.py"], cwd=folder, check=True)
    packed.run_pack("create", folder / "tars", folder / "photos.shade")
    found = []
    with Loader(folder / "photos.shade", BATCH, train=False, daemon=Daemon(linger=0)) as loader:
        for batch in loader:
            found += zip(map(bytes, batch.records.memoryviews()), batch.labels.tolist(), strict=True)
    return found


@pytest.fixture
def samples(tmp_path: Path) -> list[tuple[bytes, int]]:
    packed.image_folder(tmp_path / "jpeg", "jpeg")
    packed.image_folder(tmp_path / "png", "png")
    files = sorted(tmp_path.glob("*/*/*"))
    return [(file.read_bytes(), number % 3) for number, file in enumerate(files)]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_mds(compression: str | None, samples: list[tuple[bytes, int]], tmp_path: Path) -> None:
    streaming = pytest.importorskip("streaming")
    columns = {"label": "int", "image": "bytes"}
    with streaming.MDSWriter(
        out=str(tmp_path / "mds"), columns=columns, compression=compression, size_limit=20_000
    ) as writer:
        for image, label in samples:
            writer.write({"image": image, "label": label})
    assert converted("from-mosaicml.md", tmp_path) == samples


def test_litdata(samples: list[tuple[bytes, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    litdata = pytest.importorskip("litdata")
    monkeypatch.setenv("DATA_OPTIMIZER_CACHE_FOLDER", str(tmp_path / "cache"))
    monkeypatch.setenv("DATA_OPTIMIZER_DATA_CACHE_FOLDER", str(tmp_path / "data"))
    litdata.optimize(
        fn=as_sample, inputs=samples, output_dir=str(tmp_path / "chunks"), chunk_bytes="20KB", num_workers=1,
        start_method="fork", verbose=False,
    )  # fmt: skip
    assert converted("from-litdata.md", tmp_path) == samples


def as_sample(sample: tuple[bytes, int]) -> dict[str, object]:
    return {"image": sample[0], "label": sample[1]}
