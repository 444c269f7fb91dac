"""Writer: a dataset of what a program gives sample by sample, whole or not at all."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
import torch
from PIL import Image
from shade_load import Daemon, Loader, ShadeError, Writer

SIDE = 12


def pixels(seed: int, channels: int = 3) -> np.ndarray:
    shape = (SIDE, SIDE, channels) if channels > 1 else (SIDE, SIDE)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def file_of(picture: Image.Image, form: str) -> bytes:
    file = io.BytesIO()
    picture.save(file, form)
    return file.getvalue()


def delivered(dataset: Path, decoded: bool = False) -> list[tuple[Any, int, dict[str, Any]]]:
    """Record or pixels, label and fields of each sample, by id."""
    size = {"image_size": SIDE} if decoded else {}
    found = []
    with Loader(dataset, 4, train=False, daemon=Daemon(linger=0), **size) as loader:
        for batch in loader:
            images = batch.images.clone() if decoded else map(bytes, batch.records.memoryviews())
            found += zip(images, batch.labels.tolist(), batch.fields(), strict=True)
    return found


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_all_kinds_of_images_labels_and_fields_come_back(tmp_path: Path) -> None:
    rgb = [pixels(seed) for seed in range(8)]
    jpeg = file_of(Image.fromarray(rgb[0]), "JPEG")
    (tmp_path / "file.png").write_bytes(file_of(Image.fromarray(rgb[1]), "PNG"))
    out = tmp_path / "out.shade"
    mask = Image.fromarray(pixels(20, 1))
    with Writer(out, classes=["ant", "bee", "cat"]) as writer:
        writer.add(jpeg, "bee", caption="größer", box=[1, 2.5, None], raw=b"\0\1", none=None)
        writer.add(tmp_path / "file.png", 2, mask=mask, embedding=np.arange(3, dtype=np.float32))
        writer.add(image=Image.fromarray(rgb[2]), label=np.int64(0), meta={"a": np.float32(0.5), "b": np.arange(2)})
        writer.add(rgb[3], torch.tensor(1), score=3, json={"x": True})
        writer.add(torch.from_numpy(rgb[4]).permute(2, 0, 1), "cat", key="folder/name")
        writer.add(rgb[5][:, :, 0], 0)
        writer.add(bytearray(file_of(Image.fromarray(rgb[6]), "WEBP")), 0)
        assert len(writer) == 7 and not out.exists()
    assert writer.report and writer.report["parts"][0]["samples"] == 7
    assert left_in(tmp_path) == ["file.png", "out.shade"]
    records = delivered(out)
    assert records[0][0] == jpeg
    assert records[1][0] == (tmp_path / "file.png").read_bytes()
    assert [label for _, label, _ in records] == [1, 2, 0, 1, 2, 0, 0]
    for number in (2, 3, 4):
        assert (np.asarray(Image.open(io.BytesIO(records[number][0]))) == rgb[number]).all(), number
    assert (np.asarray(Image.open(io.BytesIO(records[5][0]))) == rgb[5][:, :, 0]).all()
    fields = [fields for *_, fields in records]
    assert fields[0] == {"caption": "größer".encode(), "box.json": [1, 2.5, None], "raw": b"\0\1"}
    assert (np.asarray(Image.open(io.BytesIO(fields[1]["mask.png"]))) == np.asarray(mask)).all()
    assert np.load(io.BytesIO(fields[1]["embedding.npy"])).tolist() == [0, 1, 2]
    assert fields[2] == {"meta.json": {"a": 0.5, "b": [0, 1]}}
    assert fields[3] == {"score.json": 3, "json": {"x": True}}
    paths = packed.run_pack("ls", out).splitlines()
    assert "folder/name.png" in paths[4] and "000000000.jpg" in paths[0]
    with Loader(out, 2, image_size=SIDE, daemon=Daemon(linger=0)) as loader:
        assert loader.classes == ["ant", "bee", "cat"]


def test_jpeg_is_smaller_and_bytes_stay(tmp_path: Path) -> None:
    flat = np.full((64, 64, 4), 7, dtype=np.uint8)
    given = file_of(Image.fromarray(flat), "PNG")
    with Writer(tmp_path / "out.shade", format="jpeg", quality=50) as writer:
        writer.add(flat, 0)
        writer.add(given, 0)
    (first, *_), (second, *_) = delivered(tmp_path / "out.shade")
    assert first.startswith(b"\xff\xd8") and second == given


def test_equal_samples_give_equal_bytes(tmp_path: Path) -> None:
    def make(out: Path) -> dict[str, bytes]:
        with Writer(out, options=["--shard-size", "16KiB", "--jobs", str(1 + len(out.name) % 3)]) as writer:
            for seed in range(60):
                writer.add(pixels(seed), ["dog", "cat", "ant"][seed % 3], note=str(seed))
        return {path.name: path.read_bytes() for path in out.iterdir()}

    first, second = make(tmp_path / "a"), make(tmp_path / "other")
    assert first == second and len(first) > 3
    assert [label for _, label, _ in delivered(tmp_path / "a")][:3] == [2, 1, 0], "texts in their sorted order"


def test_without_labels(tmp_path: Path) -> None:
    with Writer(tmp_path / "out.shade") as writer:
        writer.add(pixels(0), caption="x", json={"label": 7})
        writer.add(pixels(1))
    assert [label for _, label, _ in delivered(tmp_path / "out.shade")] == [0, 0]
    with pytest.raises(ShadeError, match="sample 1: its label is 3, but samples before have labels of another kind"):
        with Writer(tmp_path / "other.shade") as writer:
            writer.add(pixels(0))
            writer.add(pixels(1), 3)
    assert left_in(tmp_path) == ["out.shade"]


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ({"image": b"no image", "label": 0}, "of no known kind of image .they begin with 6e 6f"),
        ({"image": b"", "label": 0}, "its 0 bytes are of no known kind"),
        ({"image": np.zeros((4, 4, 3), np.float32), "label": 0}, "float32, not uint8: multiply values"),
        ({"image": torch.rand(3, 4, 4), "label": 0}, "float32, not uint8: multiply values"),
        ({"image": np.zeros((4, 4, 3), np.uint16), "label": 0}, "uint16, not uint8: convert"),
        ({"image": np.zeros((3, 4, 9), np.uint8), "label": 0}, r"shape is \(3, 4, 9\): .*height x width x channels"),
        ({"image": torch.zeros(9, 4, 3, dtype=torch.uint8), "label": 0}, r"\(9, 4, 3\): .*channels x height x width"),
        ({"image": None, "label": 0}, "a NoneType is no image"),
        ({"image": Path("nowhere.png"), "label": 0}, "No such file.*nowhere.png"),
        ({"image": pixels(1), "label": 2}, "its label 2 is none of the 2 classes"),
        ({"image": pixels(1), "label": -1}, "its label -1 is none"),
        ({"image": pixels(1), "label": "dog"}, "its label 'dog' is none of the 2 classes"),
        ({"image": pixels(1), "label": 0.5}, "0.5 is neither a whole number nor a text"),
        ({"image": pixels(1), "label": True}, "True is neither"),
        ({"image": pixels(1)}, "no label, but classes are named"),
        ({"image": pixels(1), "label": 0, "png": b"x"}, "'png' cannot name a field"),
        ({"image": pixels(1), "label": 0, "a b": b"x"}, "'a b' cannot name a field"),
        ({"image": pixels(1), "label": 0, "cls": b"x"}, "'cls' cannot name a field"),
        ({"image": pixels(1), "label": 0, "note": float("nan")}, "not JSON compliant"),
        ({"image": pixels(1), "label": 0, "note": {1, 2}}, "a set has no form in JSON"),
        ({"image": pixels(1), "label": 0, "Note": b"x", "note": b"y"}, "two fields are called 'note'"),
        ({"image": pixels(1), "label": 0, "key": "../x"}, "its key '../x' cannot be a path"),
        ({"image": pixels(1), "label": 0, "key": "a.b"}, "its key 'a.b'"),
        ({"image": pixels(1), "label": 0, "key": ""}, "its key ''"),
    ],
)
def test_what_is_wrong_with_a_sample_is_told(sample: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ShadeError, match=f"^sample 1: .*{words}"):
        with Writer(tmp_path / "out.shade", ["ant", "bee"]) as writer:
            writer.add(pixels(0), 0)
            writer.add(**sample)
    assert left_in(tmp_path) == []
    with pytest.raises(ShadeError, match="closed"):
        writer.add(pixels(0), 0)


def test_a_block_that_raises_makes_nothing(tmp_path: Path) -> None:
    for error in (ValueError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            with Writer(tmp_path / "out.shade", options=["--shard-size", "4KiB"]) as writer:
                for seed in range(50):
                    writer.add(pixels(seed), 0)
                raise error
        assert left_in(tmp_path) == []
    with pytest.raises(ShadeError, match="no sample was added"), Writer(tmp_path / "out.shade"):
        pass


def test_what_shade_pack_says_is_the_error(tmp_path: Path) -> None:
    out = tmp_path / "out.shade"
    out.mkdir()
    with pytest.raises(ShadeError, match=r"shade-pack: .*out\.shade"):
        with Writer(out) as writer:
            for seed in range(2000):
                writer.add(pixels(seed), 0)
    with pytest.raises(ShadeError, match="--nothing"):
        with Writer(tmp_path / "other", options=["--nothing"]) as writer:
            for seed in range(2000):
                writer.add(pixels(seed), 0)
    with pytest.raises(ShadeError, match=r"standard input \(000000001.jpg at byte \d+\)"):
        with Writer(tmp_path / "other", options=["--format", "raw"]) as writer:
            writer.add(pixels(0), 0)
            writer.add(b"\xff\xd8\xff no jpeg", 0)
    assert left_in(tmp_path) == ["out.shade"]
    with Writer(tmp_path / "other", options=["--format", "raw", "--on-bad", "skip"]) as writer:
        writer.add(pixels(0), 0)
        writer.add(b"\xff\xd8\xff no jpeg", 0)
    assert writer.report and len(writer.report["bad"]) == 1


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    """A file system of its own, which is full after some MB."""
    script = f"""
import sys
import numpy as np
from shade_load import ShadeError, Writer
image = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
try:
    with Writer("{tmp_path}/out.shade", options=["--shard-size", "1MiB"]) as writer:
        for _ in range(60):
            writer.add(image, 0)
except ShadeError as error:
    print(error)
"""
    command = f'mount -t tmpfs -o size=4m none "{tmp_path}" && "$0" -W ignore -c "$1" && ls "{tmp_path}"'
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    if subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", "/proc"], check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        [*unshare, "bash", "-ec", command, sys.executable, script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout, done.stdout
    assert "out.shade" not in done.stdout.splitlines()[1:], done.stdout


STOPPED = """
import sys, time
import numpy as np
from shade_load import Writer
image = np.zeros((50, 50, 3), np.uint8)
with Writer(sys.argv[1], options=["--shard-size", "4KiB"]) as writer:
    for number in range(10**9):
        writer.add(image, 0)
        if number == 20:
            print("begun", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_is_stopped_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", STOPPED, tmp_path / "out.shade"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout and child.stdout.readline() == b"begun\n"
    child.send_signal(number)
    assert child.wait() != 0
    # After a kill shade-pack sees the pipe's end by itself.
    while left_in(tmp_path):
        time.sleep(0.01)
    child.stdout.close()


def test_children_of_a_fork_do_not_hold_the_pipe(tmp_path: Path) -> None:
    """Workers that live longer than the Writer, as those of a DataLoader may."""
    ready, done = os.pipe()
    with Writer(tmp_path / "out.shade") as writer:
        writer.add(pixels(0), 0)
        child = os.fork()
        if child == 0:
            os.close(done)
            os.read(ready, 1)
            os._exit(0)
        os.close(ready)
        writer.add(pixels(1), 0)
    # It did not wait for the child, which is there.
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.close(done)
    os.waitpid(child, 0)
    assert len(delivered(tmp_path / "out.shade")) == 2


def test_arguments_are_checked_at_once(tmp_path: Path) -> None:
    for wrong, words in [
        ({"classes": "ant"}, "classes"), ({"classes": []}, "classes"),
        ({"classes": 3}, "classes"), ({"classes": [1]}, "classes"), ({"format": "gif"}, "format"),
        ({"format": None}, "format"), ({"quality": 0}, "quality"), ({"quality": "x"}, "quality"),
        ({"options": "--format raw"}, "options"), ({"options": 1}, "options"),
    ]:  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=words):
            Writer(tmp_path / "out.shade", **wrong)  # type: ignore[arg-type]
    assert json.dumps(left_in(tmp_path)) == "[]"


def test_samples_that_would_be_lost_are_refused(tmp_path: Path) -> None:
    for keys, text in [
        (("cat", "cat"), "sample 1: its key 'cat' is that of a sample before"),
        (("a/b", "__all__/b"), "sample 1: its key '__all__/b' cannot be a path"),
    ]:
        with pytest.raises(ShadeError, match=text), Writer(tmp_path / "out.shade") as writer:
            for key in keys:
                writer.add(np.zeros((8, 8, 3), np.uint8), None, key=key)
    for mode, kind in [("F", np.float32), ("I", np.int32)]:
        picture = Image.fromarray(np.ones((8, 8), kind))
        assert picture.mode == mode
        with pytest.raises(ShadeError, match=f"of mode '{mode}'"), Writer(tmp_path / "out.shade") as writer:
            writer.add(picture, None)
    assert not (tmp_path / "out.shade").exists()


def test_two_classes_may_have_one_name(tmp_path: Path) -> None:
    classes = ["crane", "ant", "crane"]
    with Writer(tmp_path / "out.shade", classes=classes) as writer:
        for label in (0, 2, "ant"):
            writer.add(np.zeros((8, 8, 3), np.uint8), label)
    with Loader(tmp_path / "out.shade", 3, image_size=8, train=False) as loader:
        assert [label for _, labels in loader for label in labels.tolist()] == [0, 2, 1]
    with pytest.raises(ShadeError, match="'crane' is that of several classes"):
        with Writer(tmp_path / "more.shade", classes=classes) as writer:
            writer.add(np.zeros((8, 8, 3), np.uint8), "crane")
