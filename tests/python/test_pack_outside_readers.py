"""Readers that do not know shade read its shards: webdataset and Python's tarfile."""

import tarfile
from pathlib import Path

import packed
import pytest
import webdataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("outside")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade", "--cls", "--shard-size", "16KiB")


def shards(dataset: packed.Packed) -> list[str]:
    found = sorted(str(path) for path in dataset.path.glob("*.tar"))
    assert len(found) > 3
    return found


def test_webdataset_delivers_every_sample_with_its_label(dataset: packed.Packed) -> None:
    reader = webdataset.WebDataset(shards(dataset), shardshuffle=False, empty_check=True)
    seen = {}
    for sample in reader:
        assert set(sample) >= {"__key__", "png", "cls"}
        number = int(sample["__key__"])
        assert sample["png"] == dataset.files[number].read_bytes()
        seen[number] = int(sample["cls"])
    assert seen == dict(enumerate(dataset.labels))


def test_webdataset_decodes_them(dataset: packed.Packed) -> None:
    reader = webdataset.WebDataset(shards(dataset), shardshuffle=False).decode("rgb8").to_tuple("png", "cls")
    labels = []
    for image, label in reader:
        assert image.shape == (packed.SIDE, packed.SIDE, 3)
        labels.append(label)
    assert sorted(labels) == sorted(dataset.labels)


def test_tarfile_lists_a_label_behind_each_record(dataset: packed.Packed) -> None:
    names = []
    for shard in shards(dataset):
        with tarfile.open(shard) as archive:
            names += archive.getnames()
    assert len(names) == 2 * len(dataset)
    for record, label in zip(names[::2], names[1::2], strict=True):
        assert record.endswith(".png") and label == record.replace(".png", ".cls")


def test_webdataset_tars_are_a_source(dataset: packed.Packed, tmp_path: Path) -> None:
    """Shards that webdataset writes are packed with their labels and other members."""
    (tmp_path / "tars").mkdir()
    for number in range(3):
        with webdataset.TarWriter(str(tmp_path / "tars" / f"part-{number}.tar")) as writer:
            for sample in range(number, len(dataset), 3):
                content = dataset.files[sample].read_bytes()
                caption = {"caption": f"sample {sample}"}
                writer.write(
                    {"__key__": f"{sample:06}", "png": content, "cls": dataset.labels[sample], "json": caption}
                )
    packed.run_pack("create", tmp_path / "tars", tmp_path / "data.shade")
    packed.run_pack("verify", tmp_path / "data.shade")
    packed.run_pack("extract", tmp_path / "data.shade", tmp_path / "back")
    for sample, file in enumerate(dataset.files):
        back = tmp_path / "back" / f"part-{sample % 3}" / f"{sample:06}.png"
        assert back.read_bytes() == file.read_bytes()
    lines = packed.run_pack("ls", tmp_path / "data.shade").splitlines()
    labels = {line.split("\t")[2]: int(line.split("\t")[1]) for line in lines}
    assert labels == {f"part-{s % 3}/{s:06}.png": label for s, label in enumerate(dataset.labels)}
