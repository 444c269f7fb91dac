"""The code of docs/from-*.md that is another library's: what converts its data keeps image bytes and labels, and what
reads them today runs.
"""

import re
import subprocess
import sys
from pathlib import Path

import litdata
import packed
import pytest
import streaming
from shade_load import Daemon, Loader

ROOT = Path(__file__).parents[2]
BATCH = 4
# Streaming's shards and LitData's chunks that the pages read.
REMOTE = {'remote="s3://bucket/train", ': "", '"s3://bucket/train"': '"chunks"'}


def code_with(word: str, page: str) -> str:
    """The page's block of Python with this word."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (script,) = [block for block in re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M) if word in block]
    return script


def assert_the_page_holds(page: str, folder: Path, samples: list[tuple[bytes, int]]) -> None:
    """Its scripts run, one after the other in one process, as imports take the longest. What they convert is equal."""
    parts = [code_with("tarfile", page), code_with("convert(", page), before(page, len(samples))]
    (folder / "script.py").write_text("\n".join(parts), encoding="utf-8")
    subprocess.run([sys.executable, "script.py"], cwd=folder, check=True)
    packed.run_pack("create", folder / "tars", folder / "photos.shade")
    assert records(folder / "photos.shade") == samples
    assert records(folder / "photos-train.shade") == samples


def records(dataset: Path) -> list[tuple[bytes, int]]:
    """Record and label of each sample."""
    found = []
    with Loader(dataset, BATCH, train=False, daemon=Daemon(linger=0)) as loader:
        for batch in loader:
            found += zip(map(bytes, batch.records.memoryviews()), batch.labels.tolist(), strict=True)
    return found


def before(page: str, samples: int) -> str:
    """What the page's reader has today, over local data; and that it delivers all samples."""
    script = code_with("s3://", page)
    for remote, local in REMOTE.items():
        script = script.replace(remote, local)
    script = script.replace("drop_last=True", "drop_last=False").replace("num_workers=8", "num_workers=0")
    return f"{script}\nassert sum(len(batch['label']) for batch in loader) == {samples}\n"


@pytest.fixture
def samples(tmp_path: Path) -> list[tuple[bytes, int]]:
    packed.image_folder(tmp_path / "jpeg", "jpeg")
    packed.image_folder(tmp_path / "png", "png")
    files = sorted(tmp_path.glob("*/*/*"))
    return [(file.read_bytes(), number % 3) for number, file in enumerate(files)]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_mds(compression: str | None, samples: list[tuple[bytes, int]], tmp_path: Path) -> None:
    columns = {"label": "int", "image": "bytes"}
    with streaming.MDSWriter(
        out=str(tmp_path / "mds"), columns=columns, compression=compression, size_limit=20_000
    ) as writer:
        for image, label in samples:
            writer.write({"image": image, "label": label})
    assert_the_page_holds("from-mosaicml.md", tmp_path, samples)


def test_litdata(samples: list[tuple[bytes, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_OPTIMIZER_CACHE_FOLDER", str(tmp_path / "cache"))
    monkeypatch.setenv("DATA_OPTIMIZER_DATA_CACHE_FOLDER", str(tmp_path / "data"))
    litdata.optimize(
        fn=as_sample, inputs=samples, output_dir=str(tmp_path / "chunks"), chunk_bytes="20KB", num_workers=1,
        start_method="fork", verbose=False,
    )  # fmt: skip
    assert_the_page_holds("from-litdata.md", tmp_path, samples)


def as_sample(sample: tuple[bytes, int]) -> dict[str, object]:
    return {"image": sample[0], "label": sample[1]}
