"""The demo as a user runs it, on small data: what it writes, that Ctrl-C ends it, and the
ImageFolders that it makes."""

import gzip
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from demo import data

ROOT = Path(__file__).parents[2]
# Only a run that hangs gets here.
HANG_SECONDS = 120

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Start]:
    """A way to start the demo; what is still running at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-u", "-m", "demo", "--out", tmp_path / "out", "--image-size", "16", *arguments]
        started.append(
            subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_run_prints_writes_and_draws(demo: Start, tmp_path: Path, jpeg_folder: Path) -> None:
    process = demo("--data", jpeg_folder, "--epochs", "2", "--store-delay", "100us")
    output, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, errors
    assert "SIMULATED STORE: each read takes 100us" in output
    assert "hit ratio, last" in output

    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["store_simulated"] is True
    assert list(result["runs"]) == ["uniform + lru", "pads + lookahead"]
    for name, epochs in result["runs"].items():
        assert [epoch["epoch"] for epoch in epochs] == [0, 1]
        assert all(0 <= epoch["accuracy"] <= 1 and epoch["read MB"] > 0 for epoch in epochs)
        # Both samplers begin with a permutation, and only PADS repeats samples later.
        assert epochs[0]["distinct"] == 1
        assert (epochs[1]["distinct"] == 1) == name.startswith("uniform")
    with Image.open(tmp_path / "out" / "plot.png") as image:
        assert image.format == "PNG"


def test_ctrl_c_ends_it_and_leaves_no_process(demo: Start, tmp_path: Path, jpeg_folder: Path) -> None:
    process = demo("--data", jpeg_folder, "--epochs", "100000", "--store-delay", "1ms")
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[:1] == ["0"]:  # the first epoch's figures
            break
    daemons = [os.pidfd_open(pid) for pid in processes_naming(tmp_path) if pid != process.pid]
    assert daemons, "no daemon is running during the training"
    # As a terminal does it: to the whole foreground group.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    assert "interrupted" in errors and "Traceback" not in errors
    for daemon in daemons:
        ended, _, _ = select.select([daemon], [], [], HANG_SECONDS)
        os.close(daemon)
        assert ended, "a daemon outlived the demo"
    assert not (tmp_path / "out" / "result.json").exists()


def test_data_that_is_not_there_is_an_error(demo: Start, tmp_path: Path) -> None:
    process = demo("--data", tmp_path / "absent")
    _, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 1
    # Before it may stand a warning that the module was built without optimisation.
    last = errors.splitlines()[-1]
    assert last.startswith("demo: ") and str(tmp_path / "absent") in last


def processes_naming(path: Path) -> list[int]:
    """Ids of the processes with `path` in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue  # ended meanwhile
            if str(path).encode() in command:
                found.append(int(folder.name))
    return found


def test_without_train_and_val_every_tenth_image_is_held_out(tmp_path: Path, png_folder: Path) -> None:
    made = data.given(png_folder, tmp_path)
    found = {
        split: {path.relative_to(made / split) for path in (made / split).rglob("*.png")} for split in ("train", "val")
    }
    assert not found["train"] & found["val"]
    assert found["train"] | found["val"] == {path.relative_to(png_folder) for path in png_folder.rglob("*.png")}
    for name in ("ant", "bee", "cat"):
        assert sum(1 for path in found["val"] if path.parts[0] == name) == 3
    assert all((made / "val" / path).read_bytes() == (png_folder / path).read_bytes() for path in found["val"])


def test_train_and_val_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("train", "val"):
        (tmp_path / "mine" / name).mkdir(parents=True)
    assert data.given(tmp_path / "mine", tmp_path / "out") == tmp_path / "mine"
    assert not (tmp_path / "out").exists()


def test_fashion_mnist_becomes_an_image_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "FASHION_MNIST", tmp_path)
    images = {}
    for split, count in (("train", 24), ("t10k", 6)):
        images[split] = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        write_idx(tmp_path / f"{split}-images-idx3-ubyte.gz", images[split])
        write_idx(tmp_path / f"{split}-labels-idx1-ubyte.gz", (np.arange(count) % 10).astype(np.uint8))
    data.write_fashion_mnist(tmp_path / "written", train_samples=12)
    assert sum(1 for _ in (tmp_path / "written" / "train").rglob("*.png")) == 12
    assert sum(1 for _ in (tmp_path / "written" / "val").rglob("*.png")) == 6
    with Image.open(tmp_path / "written" / "train" / "trouser" / "00011.png") as image:
        np.testing.assert_array_equal(np.asarray(image), images["train"][11])


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


def test_drawn_pictures_are_always_the_same_and_differ_between_the_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "STRIPES_TRAIN", 20)
    monkeypatch.setattr(data, "STRIPES_VAL", 10)
    for name in ("a", "b"):
        data.write_stripes(tmp_path / name)
    contents = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.jpg")}
        for name in ("a", "b")
    ]
    assert contents[0] == contents[1]
    assert len(set(contents[0].values())) == len(contents[0]) == 30
    assert sorted(path.name for path in (tmp_path / "a" / "val").iterdir()) == data.STRIPES
