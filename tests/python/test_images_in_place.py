"""A Loader on a folder of images or tars: nothing is packed, and the index is never trusted blindly."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from packed import program
from shade_load import ImageFolder, Loader, ShadeError

SIDE = 16


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((SIDE, SIDE), 20 + number).convert("RGB").save(file, "PNG")
    return file.getvalue()


def age(folder: Path) -> None:
    """Makes folders older than the tick of any clock."""
    old = 1_700_000_000
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        os.utime(path, (old, old))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/shade"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    for number in range(23):
        path = folder / ("cat" if number % 2 else "ant") / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    age(folder)
    return folder


def epoch(dataset: Path, **more) -> dict[int, tuple[int, torch.Tensor]]:
    with Loader(dataset, 4, decode=[], train=False, **more) as loader:
        return {
            sample: (label, image.clone())
            for batch in loader
            for sample, label, image in zip(batch.ids.tolist(), batch.labels.tolist(), batch.images)
        }


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(
        one[id][0] == other[id][0] and torch.equal(one[id][1], other[id][1]) for id in one
    )


def test_a_folder_gives_what_it_would_give_packed(images, cache, tmp_path, capfd):
    subprocess.run([program("shade-pack"), "create", "-q", images, tmp_path / "packed"], check=True)
    packed = epoch(tmp_path / "packed")
    assert len(packed) == 23
    assert same(epoch(images), packed)
    told = capfd.readouterr().err
    assert "indexed 23 images" in told and "nothing was packed" in told and "records/s packed" in told
    assert cache.stat().st_mode & 0o777 == 0o700
    [kept] = [path for path in cache.iterdir() if path.is_dir()]
    before = (kept / "dataset.shade").stat()
    # Again: compared, and not made.
    assert same(epoch(images), packed)
    assert "indexed" not in capfd.readouterr().err
    assert (kept / "dataset.shade").stat().st_ino == before.st_ino
    folder = ImageFolder(images)
    assert folder.classes == ["ant", "cat"] and len(folder) == 23
    assert [label for _, label in folder.samples] == [packed[id][0] for id in range(23)]
    pixels = torch.frombuffer(bytearray(folder[5][0].tobytes()), dtype=torch.uint8).reshape(SIDE, SIDE, 3)
    assert torch.equal(pixels.permute(2, 0, 1), packed[5][1].to(torch.uint8))


def test_a_folder_that_changed_is_indexed_again(images, cache, capfd):
    assert len(epoch(images)) == 23
    capfd.readouterr()
    (images / "cat/99.png").write_bytes(picture(99))
    assert len(epoch(images)) == 24
    told = capfd.readouterr().err
    assert "made again, as the folder" in told and "cat was changed" in told
    (images / "ant/00.png").unlink()
    assert len(epoch(images)) == 23


def test_a_file_that_changed_is_an_error_that_says_to_start_again(images, cache):
    # Without a cache: what a daemon has in memory is what was indexed.
    assert len(epoch(images, cache=0)) == 23
    # In place, so that its folder does not tell.
    (images / "cat/01.png").write_bytes(picture(77) + b"more")
    age(images)
    with pytest.raises(ShadeError, match="cat/01.png is not the file that was indexed.*start again"):
        epoch(images, cache=0)


def test_tars_are_a_dataset(cache, tmp_path, capfd):
    folder = tmp_path / "tars"
    folder.mkdir()
    for number in range(3):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for sample in range(5):
                for name, content in ((f"{sample}.png", picture(number * 5 + sample)), (f"{sample}.cls", b"1" if sample % 2 else b"0")):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    age(folder)
    found = epoch(folder)
    assert len(found) == 15 and [found[id][0] for id in range(5)] == [0, 1, 0, 1, 0]
    assert "indexed 15 images" in capfd.readouterr().err
    assert same(epoch(folder), found)


def test_what_is_no_folder_of_images_is_told_as_before(cache, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Loader(tmp_path / "nothing", 4)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="has no dataset.shade"):
        Loader(tmp_path / "empty", 4)
    (tmp_path / "splits/train").mkdir(parents=True)
    (tmp_path / "splits/train/dataset.shade").write_bytes(b"x")
    with pytest.raises(FileNotFoundError, match="has no dataset.shade"):
        Loader(tmp_path / "splits", 4)
    assert not cache.exists()


def test_what_cannot_be_indexed_is_told_with_the_command(cache, images):
    (images / "cat/98.png").write_bytes(b"")
    with pytest.raises(ShadeError, match="an empty file[^$]*--on-bad skip"):
        Loader(images, 4)


def test_processes_that_start_together_make_one_index(images, cache):
    script = (
        "import sys\nfrom shade_load import Loader\n"
        "with Loader(sys.argv[1], 4, decode=[], train=False) as loader:\n    print(sum(len(b.ids) for b in loader))"
    )
    command = [sys.executable, "-c", script, str(images)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [process.communicate() for process in running]
    assert [out.strip() for out, _ in ended] == ["23"] * 3, ended
    assert sum("indexed 23 images" in words for _, words in ended) == 1, ended
