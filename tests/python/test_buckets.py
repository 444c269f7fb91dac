"""A Loader on the address of a bucket, served by a real S3 server: packed, and not packed."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import packed
import pytest
from shade_load import ImageFolder, Loader, Plan, ShadeError, Writer

from studies.bucket import Server, served

# The kind of the store, as in tests/src/cloud.rs.
SCHEME = os.environ.get("SHADE_TEST_SCHEME", "s3")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("bucket")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture
def bucket(dataset: packed.Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that has the dataset, with the settings that find it in the environment."""
    shutil.copytree(dataset.path, tmp_path / "root/photos/train")
    with served(packed.helper("shade-test-bucket"), tmp_path / "root") as server:
        for name, value in server.environment(tmp_path / "cache", SCHEME).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def address(bucket: Server) -> str:
    """The dataset's address."""
    return f"{SCHEME}://photos/train"


@pytest.fixture(params=["folders", "tars"])
def unpacked(
    request: pytest.FixtureRequest, dataset: packed.Packed, bucket: Server, tmp_path: Path
) -> tuple[Path, str]:
    """Images that were not packed, on disk and in the bucket."""
    local = tmp_path / request.param
    if request.param == "folders":
        shutil.copytree(dataset.folder, local)
    else:
        local.mkdir()
        for number in range(3):
            with tarfile.open(local / f"{number}.tar", "w") as tar:
                for sample in range(number, len(dataset), 3):
                    image = (f"{sample:03}.png", dataset.files[sample].read_bytes())
                    for name, content in (image, (f"{sample:03}.cls", str(dataset.labels[sample]).encode())):
                        member = tarfile.TarInfo(name)
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))
    shutil.copytree(local, tmp_path / "root/photos" / request.param)
    # A product behind the server is given it now.
    bucket.be()
    return local, f"{SCHEME}://photos/{request.param}"


def epoch(where: str | Path, **more: object) -> list[tuple[list[int], list[int], bytes]]:
    with Loader(where, 8, image_size=32, seed=3, **more) as loader:
        return [(batch.ids.tolist(), batch.labels.tolist(), batch.images.numpy().tobytes()) for batch in loader]


def test_an_epoch_is_that_of_the_folder(dataset: packed.Packed, address: str) -> None:
    assert epoch(address) == epoch(dataset.path)


def test_datasets_in_a_bucket_are_mixed_as_folders_are(
    dataset: packed.Packed, bucket: Server, address: str, tmp_path: Path
) -> None:
    """Beside one another, one of them deeper than the other, and one twice."""
    packed.image_folder(tmp_path / "others", "jpeg", {"ant": 9, "wasp": 12})
    other = packed.pack(tmp_path / "others", tmp_path / "others.shade", "--shard-size", "8KiB")
    shutil.copytree(other.path, tmp_path / "root/photos/more/others")
    bucket.be()
    deeper = f"{SCHEME}://photos/more/others"
    fields = {"cache": "30%", "plan": Plan(sampler="uniform")}
    local = epoch([(dataset.path, 0.5), (other.path, 0.5)], **fields)
    assert epoch([(address, 0.5), (deeper, 0.5)], **fields) == local
    twice = epoch([(other.path, 2), (other.path, 1)])
    assert epoch([(deeper, 2), (deeper, 1)]) == twice
    with pytest.raises(ShadeError, match="are not all in folders, or all in one bucket"):
        Loader([(address, 0.5), (other.path, 0.5)], 8)
    kept = tmp_path / "kept"
    packed.run_pack("merge", kept, address, deeper, "--in-place", "--relabel")
    packed.run_pack("verify", kept)
    if "SHADE_TEST_PRODUCT" in os.environ:
        return  # It keeps what the folder has lost.
    # Each dataset's objects are compared with its index: a shard that is not there is a bad one.
    (tmp_path / "root/photos/more/others/shard-000000.tar").unlink()
    bucket.be()
    with Loader([(address, 1), (deeper, 1)], 8, plan=Plan(on_error="skip", bad_max=1.0)) as loader:
        skipped, given = zip(*((batch.skipped, len(batch)) for batch in loader), strict=True)
    assert 0 < sum(skipped) < sum(given)


def test_an_image_folder_reads_the_records(dataset: packed.Packed, address: str) -> None:
    remote, local = ImageFolder(address), ImageFolder(dataset.path)
    assert remote.classes == local.classes and len(remote) == len(local)
    for sample in (0, len(local) - 1):
        assert remote[sample][0].tobytes() == local[sample][0].tobytes()
        assert remote[sample][1] == local[sample][1]


@pytest.mark.skipif(SCHEME == "gs", reason="the emulator takes no object as shade writes it")
def test_a_writer_writes_there(dataset: packed.Packed, address: str, tmp_path: Path) -> None:
    samples = [ImageFolder(dataset.path)[number] for number in range(8)]
    outs = [str(tmp_path / "written.shade"), f"{SCHEME}://photos/written.shade"]
    for out in outs:
        with Writer(out, classes=["a", "b", "c", "d", "e", "f"]) as writer:
            for image, label in samples:
                writer.add(image, label % 6)
    assert epoch(outs[1]) == epoch(outs[0])
    with pytest.raises(ShadeError, match="exists: remove it"), Writer(outs[1]) as writer:
        writer.add(samples[0][0])


WRONG = {
    "s3": {"AWS_SECRET_ACCESS_KEY": "another", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
    "az": {"AZURE_STORAGE_ACCOUNT_KEY": "YW5vdGhlcg==", "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:9/shade"},
    "gs": {"GOOGLE_BASE_URL": "http://127.0.0.1:9"},
}[SCHEME]


@pytest.mark.parametrize(("name", "value"), WRONG.items())
def test_what_is_wrong_is_told_at_once(address: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    text = "the store cannot be reached" if ":9" in value else "the store refuses these keys"
    with pytest.raises(ShadeError, match=text):
        Loader(address, 8, image_size=32)


def test_what_is_no_address_and_no_dataset_is_named(address: str) -> None:
    for wrong, text in [
        ("ftp://photos/train", "cannot read from 'ftp'"),
        (f"{address}-2", f"(?s)cannot index {address}-2: .*no object lies below this address"),
    ]:
        with pytest.raises(ShadeError, match=text):
            Loader(wrong, 8, image_size=32)


def test_an_epoch_of_what_is_not_packed_is_that_of_the_folder(
    unpacked: tuple[Path, str], capfd: pytest.CaptureFixture[str]
) -> None:
    local, remote = unpacked
    for plan in (Plan(), Plan(sampler="pads"), Plan(sampler="replacement"), Plan(order="spaced")):
        assert epoch(remote, plan=plan) == epoch(local, plan=plan), plan
    assert epoch(remote, train=False) == epoch(local, train=False)
    # Made once; then it is compared with the bucket alone.
    assert capfd.readouterr().err.count(f"indexed 61 images of {remote}") == 1
    assert ImageFolder(remote)[7][0].tobytes() == ImageFolder(local)[7][0].tobytes()


@pytest.mark.skipif("SHADE_TEST_PRODUCT" in os.environ, reason="a product keeps what is removed from the folder")
def test_a_prefix_that_changed_is_indexed_again(
    unpacked: tuple[Path, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    local, remote = unpacked
    # Without a cache: what a daemon has in memory is what was indexed.
    assert len(sum((ids for ids, _, _ in epoch(remote, cache=0)), [])) == 61
    there = tmp_path / "root/photos" / local.name
    victim = next(path for path in sorted(there.rglob("*")) if path.is_file())
    victim.rename(victim.with_stem("zz"))
    capfd.readouterr()
    assert len(sum((ids for ids, _, _ in epoch(remote, cache=0)), [])) == 61
    assert f"made again, as something below {remote} was changed" in capfd.readouterr().err
