"""A Loader on the address of a bucket, served by a real S3 server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import packed
import pytest
from shade_load import ImageFolder, Loader, ShadeError

from studies.bucket import served


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("bucket")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture
def address(dataset: packed.Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The dataset's address, with the settings that find its server in the environment."""
    shutil.copytree(dataset.path, tmp_path / "root/photos/train")
    with served(packed.helper("shade-test-bucket"), tmp_path / "root") as server:
        for name, value in server.environment(tmp_path / "cache").items():
            monkeypatch.setenv(name, value)
        yield "s3://photos/train"


def epoch(where: str | Path) -> list[tuple[list[int], list[int], bytes]]:
    with Loader(where, 8, image_size=32, seed=3) as loader:
        return [(batch.ids.tolist(), batch.labels.tolist(), batch.images.numpy().tobytes()) for batch in loader]


def test_an_epoch_is_that_of_the_folder(dataset: packed.Packed, address: str) -> None:
    assert epoch(address) == epoch(dataset.path)


def test_an_image_folder_reads_the_records(dataset: packed.Packed, address: str) -> None:
    remote, local = ImageFolder(address), ImageFolder(dataset.path)
    assert remote.classes == local.classes and len(remote) == len(local)
    for sample in (0, len(local) - 1):
        assert remote[sample][0].tobytes() == local[sample][0].tobytes()
        assert remote[sample][1] == local[sample][1]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another"}, "the store refuses these keys"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "the store cannot be reached"),
    ],
)
def test_what_is_wrong_is_told_at_once(
    address: str, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], text: str
) -> None:
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ShadeError, match=text):
        Loader(address, 8, image_size=32)


def test_what_is_no_address_and_no_dataset_is_named(address: str) -> None:
    for wrong, text in [("ftp://photos/train", "cannot read from 'ftp'"), (f"{address}-2", "is no dataset")]:
        with pytest.raises(ShadeError, match=text):
            Loader(wrong, 8, image_size=32)
