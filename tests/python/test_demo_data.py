"""The demo's data: IDX files, both built-in sets, and ImageFolders of the user's."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from demo import fashion_mnist, image_folder, procedural


def write_idx(path: Path, array: np.ndarray, kind: int = 0x08) -> None:
    header = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Files laid out as the Debian package lays them out: 24 training and 6 validation images."""
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    generator = np.random.default_rng(1)
    for split, count in (("train", 24), ("t10k", 6)):
        images, labels = fashion_mnist._files(folder, split)
        write_idx(images, generator.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        write_idx(labels, (np.arange(count) % 10).astype(np.uint8))
    return folder


@pytest.mark.parametrize("shape", [(7,), (3, 28, 28), (0, 28, 28)])
def test_idx_is_decoded_as_written(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    write_idx(tmp_path / "a.gz", array)
    np.testing.assert_array_equal(fashion_mnist.read_idx(tmp_path / "a.gz"), array)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\x89PNG....", "not an IDX file"),
        (b"", "not an IDX file"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "IDX type 0x0d"),
        (b"\0\0\x08\x03\0\0\0\x01", "header cut off"),
        (b"\0\0\x08\x01\0\0\0\x05abcd", "4 bytes of data, expected 5"),
        (b"\0\0\x08\x01\0\0\0\x05abcdef", "6 bytes of data, expected 5"),
    ],
)
def test_bad_idx_is_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "bad.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=complaint) as error:
        fashion_mnist.read_idx(path)
    assert str(path) in str(error.value)


def test_fashion_mnist_becomes_an_image_folder(tmp_path: Path, package: Path) -> None:
    target = tmp_path / "written"
    fashion_mnist.write_image_folder(target, source=package)
    for split, name, count in (("train", "train", 24), ("t10k", "val", 6)):
        images, labels = (fashion_mnist.read_idx(path) for path in fashion_mnist._files(package, split))
        assert sum(1 for _ in (target / name).rglob("*.png")) == count
        for number in range(count):
            path = target / name / fashion_mnist.CLASSES[labels[number]] / f"{number:05}.png"
            np.testing.assert_array_equal(np.asarray(Image.open(path)), images[number])


def test_fashion_mnist_can_be_cut_short(tmp_path: Path, package: Path) -> None:
    fashion_mnist.write_image_folder(tmp_path / "written", train_samples=12, source=package)
    assert sum(1 for _ in (tmp_path / "written" / "train").rglob("*.png")) == 12
    assert sum(1 for _ in (tmp_path / "written" / "val").rglob("*.png")) == 2


def test_a_package_with_a_file_missing_is_not_available(package: Path) -> None:
    assert fashion_mnist.available(package)
    fashion_mnist._files(package, "t10k")[1].unlink()
    assert not fashion_mnist.available(package)


def test_a_failed_writing_leaves_no_data_set(tmp_path: Path, package: Path) -> None:
    fashion_mnist._files(package, "t10k")[0].write_bytes(gzip.compress(b"broken"))
    with pytest.raises(ValueError, match="not an IDX file"):
        fashion_mnist.write_image_folder(tmp_path / "written", source=package)
    assert not (tmp_path / "written").exists()


def test_procedural_set_follows_its_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        procedural.write_image_folder(tmp_path / name, train_samples=20, seed=seed)
    contents = {
        name: {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.jpg")}
        for name in ("a", "b", "c")
    }
    assert len(contents["a"]) == 20 + 3
    assert contents["a"] == contents["b"]
    assert contents["a"].keys() == contents["c"].keys()
    assert all(contents["a"][path] != contents["c"][path] for path in contents["a"])


def test_procedural_pictures_are_jpegs_and_differ_between_the_splits(tmp_path: Path) -> None:
    procedural.write_image_folder(tmp_path / "set", train_samples=60)
    pictures = [path.read_bytes() for path in (tmp_path / "set").rglob("*.jpg")]
    assert len(set(pictures)) == len(pictures) == 70
    for path in (tmp_path / "set" / "val").rglob("*.jpg"):
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (64, 64))
    assert sorted(path.name for path in (tmp_path / "set" / "train").iterdir()) == sorted(procedural.CLASSES)


def test_train_and_val_folders_are_taken_as_they_are(tmp_path: Path, png_folder: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / "mine" / name).mkdir(parents=True)
    splits = image_folder.given(tmp_path / "mine", tmp_path / "out", seed=0)
    assert (splits.train, splits.val) == (tmp_path / "mine" / "train", tmp_path / "mine" / "test")
    assert not (tmp_path / "out").exists()


def held_out(folder: Path, source: Path) -> dict[str, set[Path]]:
    """Paths below each split, each link checked to lead to the source's file of that name."""
    found: dict[str, set[Path]] = {}
    for split in ("train", "val"):
        links = [path for path in (folder / split).rglob("*") if path.is_symlink()]
        found[split] = {path.relative_to(folder / split) for path in links}
        assert all(path.resolve() == (source / path.relative_to(folder / split)).resolve() for path in links)
    return found


def test_hold_out_takes_a_tenth_of_each_class(tmp_path: Path, png_folder: Path) -> None:
    image_folder.hold_out(png_folder, tmp_path / "split", seed=3)
    found = held_out(tmp_path / "split", png_folder)
    assert not found["train"] & found["val"]
    assert found["train"] | found["val"] == {path.relative_to(png_folder) for path in png_folder.rglob("*.png")}
    for name in ("ant", "bee", "cat"):
        assert sum(1 for path in found["val"] if path.parts[0] == name) == 3


def test_hold_out_follows_its_seed_and_can_be_made_anew(tmp_path: Path, png_folder: Path) -> None:
    image_folder.hold_out(png_folder, tmp_path / "a", seed=3)
    image_folder.hold_out(png_folder, tmp_path / "b", seed=4)
    first, other = held_out(tmp_path / "a", png_folder), held_out(tmp_path / "b", png_folder)
    assert first["val"] != other["val"]
    image_folder.hold_out(png_folder, tmp_path / "b", seed=3)
    assert held_out(tmp_path / "b", png_folder) == first


def test_what_cannot_be_split_is_refused(tmp_path: Path, png_folder: Path) -> None:
    with pytest.raises(image_folder.DataError, match="no such folder"):
        image_folder.given(tmp_path / "absent", tmp_path / "out", seed=0)
    with pytest.raises(image_folder.DataError, match="0 class folders"):
        image_folder.given(png_folder / "ant", tmp_path / "out", seed=0)
    for name in ("full", "empty"):
        (tmp_path / "mine" / name).mkdir(parents=True)
    (tmp_path / "mine" / "empty" / "notes.txt").write_text("no image")
    with pytest.raises(image_folder.DataError, match="empty: 0 images"):
        image_folder.hold_out(tmp_path / "mine", tmp_path / "out", seed=0)
