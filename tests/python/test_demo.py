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
from studies import image_sets, slow_store

ROOT = Path(__file__).parents[2]
# Where `make test` builds shade-slow-store.
PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
# Only a run that hangs gets here.
HANG_SECONDS = 240

# 90 images, without the tenth that is held out.
SAMPLES = 81

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Start]:
    """A way to start the demo; what is still running at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        options = ["--out", tmp_path / "out", "--image-size", "16", "--delay-us", "200"]
        command = [sys.executable, "-u", "-m", "demo", *options, *arguments]
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


@pytest.fixture
def programs(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The folder with the slow store, if the parameter is "mounted", else one without it."""
    if request.param == "simulated":
        return tmp_path
    (tmp_path / "tried").mkdir()
    tried = slow_store.find(PROGRAMS, 1, 1, tmp_path / "tried")
    if tried.program is None:
        pytest.skip(f"no file system can be mounted: {tried.simulated_because}")
    return PROGRAMS


@pytest.mark.parametrize("programs", ["mounted", "simulated"], indirect=True)
def test_three_runs_print_write_and_draw(demo: Start, tmp_path: Path, programs: Path, jpeg_folder: Path) -> None:
    process = demo("--data", jpeg_folder, "--epochs", "2", "--programs", programs)
    output, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, errors
    is_simulated = programs != PROGRAMS
    assert ("SIMULATED STORE: 0.2 ms an operation, 4 at once" in output) == is_simulated
    assert "stall s, all epochs" in output and "- The training computes" in output
    with Image.open(tmp_path / "out" / "plot.png") as image:
        assert image.format == "PNG"

    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["store_simulated"] == is_simulated
    assert list(result["runs"]) == ["DataLoader", "shade, permutations", "shade, echo"]
    for run in result["runs"].values():
        assert [epoch["epoch"] for epoch in run["epochs"]] == [0, 1]
        assert all(0 <= epoch["accuracy"] <= 1 and epoch["stall s"] > 0 for epoch in run["epochs"])
        # What shade reads ahead of an epoch counts in the one before, of so few images all.
        read_mb = [epoch["read MB"] for epoch in run["epochs"]]
        assert sum(read_mb) > 0 and min(read_mb) >= 0
    base, permutations = result["runs"]["DataLoader"], result["runs"]["shade, permutations"]
    for run in (base, permutations):
        assert all(epoch["distinct"] == 1 and epoch["samples"] == SAMPLES for epoch in run["epochs"])
    assert [run["sampler"] for run in result["runs"].values()] == ["permutations", "uniform", "echo"]
    # 81 samples by turns: 41 are read, and one of them comes once.
    assert all(epoch["distinct"] < 0.51 for epoch in result["runs"]["shade, echo"]["epochs"])
    assert all(epoch["read MB"] > 0 for epoch in base["epochs"])
    if is_simulated:
        assert base["operations"] is None
        return
    # Each epoch finds no file in memory, and nothing leads past the store.
    assert base["operations"]["open"] == 2 * SAMPLES
    assert base["operations"]["read"] >= 2 * SAMPLES
    assert 0 < permutations["operations"]["open"] < SAMPLES


@pytest.mark.parametrize("programs", ["mounted", "simulated"], indirect=True)
def test_ctrl_c_leaves_no_process_and_no_mount(
    demo: Start, tmp_path: Path, programs: Path, jpeg_folder: Path
) -> None:
    process = demo("--data", jpeg_folder, "--epochs", "100000", "--programs", programs)
    read_an_epoch(process)
    # The training, the DataLoader's four workers and, where it is mounted, the store.
    others = [os.pidfd_open(pid) for pid in processes_naming(tmp_path) if pid != process.pid]
    assert len(others) >= 5
    assert bool(mounts(tmp_path)) == (programs == PROGRAMS)
    # As a terminal does it: to the whole foreground group.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    assert "interrupted" in errors and "Traceback" not in errors
    for other in others:
        ended, _, _ = select.select([other], [], [], HANG_SECONDS)
        os.close(other)
        assert ended, "a process outlived the demo"
    assert not mounts(tmp_path)
    assert not (tmp_path / "out" / "result.json").exists()


def test_ctrl_c_during_a_run_with_shade_ends_its_daemon(demo: Start, tmp_path: Path, jpeg_folder: Path) -> None:
    process = demo("--data", jpeg_folder, "--epochs", "40", "--programs", tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("shade, permutations"):
            break
    read_an_epoch(process)
    daemons = [os.pidfd_open(pid) for pid in processes_naming(tmp_path / "out" / "images-held-out-train.shade")]
    assert daemons, "no daemon is running during the training"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=HANG_SECONDS)
    for daemon in daemons:
        ended, _, _ = select.select([daemon], [], [], HANG_SECONDS)
        os.close(daemon)
        assert ended, "a daemon outlived the demo"


def read_an_epoch(process: subprocess.Popen[str]) -> None:
    """Reads the output up to the first epoch's figures."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[:1] == ["0"]:
            return


def mounts(folder: Path) -> set[str]:
    """Mount points below the folder, in any process's namespace."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                lines = (process / "mountinfo").read_text().splitlines()
            except OSError:
                continue  # ended meanwhile
            found |= {line.split()[4] for line in lines if line.split()[4].startswith(str(folder))}
    return found


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
    images = data.given(png_folder, tmp_path, None)
    made = images.folder
    assert (images.side, images.has_side) == (64, False)
    found = {
        split: {path.relative_to(made / split) for path in (made / split).rglob("*.png")} for split in ("train", "val")
    }
    assert not found["train"] & found["val"]
    assert found["train"] | found["val"] == {path.relative_to(png_folder) for path in png_folder.rglob("*.png")}
    for name in ("ant", "bee", "cat"):
        assert sum(1 for path in found["val"] if path.parts[0] == name) == 3
    assert all((made / "val" / path).read_bytes() == (png_folder / path).read_bytes() for path in found["val"])
    # A link would lead past the slow store.
    assert not any(path.is_symlink() for path in made.rglob("*"))


def test_train_and_val_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("train", "val"):
        (tmp_path / "mine" / name).mkdir(parents=True)
    assert data.given(tmp_path / "mine", tmp_path / "out", 96) == data.Images(tmp_path / "mine", 96, has_side=False)
    assert not (tmp_path / "out").exists()


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


def test_without_public_images_the_demo_draws_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no npm
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(image_sets.fashion_mnist, "FOLDER", tmp_path / "absent")
    monkeypatch.setattr(data, "STRIPES_TRAIN", 20)
    monkeypatch.setattr(data, "STRIPES_VAL", 10)
    images = data.built_in(tmp_path)
    assert images == data.Images(tmp_path / "stripes", data.STRIPES_SIDE, has_side=True)
    assert sum(1 for _ in (images.folder / "train").rglob("*.jpg")) == 20
    said = capsys.readouterr().out
    assert "not cifar10: " in said and "npm is not installed" in said
    assert "not fashion-mnist: " in said


def test_the_first_images_of_fashion_mnist_stand_in_for_cifar10(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no npm
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(image_sets.fashion_mnist, "FOLDER", tmp_path)
    monkeypatch.setattr(data, "SAMPLES", 12)
    pixels = {}
    for split, count in (("train", 24), ("t10k", 6)):
        pixels[split] = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        write_idx(tmp_path / f"{split}-images-idx3-ubyte.gz", pixels[split])
        write_idx(tmp_path / f"{split}-labels-idx1-ubyte.gz", (np.arange(count) % 10).astype(np.uint8))
    images = data.built_in(tmp_path)
    assert images == data.Images(tmp_path / "fashion-mnist-12", 28, has_side=True)
    assert sum(1 for _ in (images.folder / "train").rglob("*.png")) == 12
    assert sum(1 for _ in (images.folder / "val").rglob("*.png")) == 6
    with Image.open(images.folder / "train" / "trouser" / "00011.png") as image:
        np.testing.assert_array_equal(np.asarray(image), pixels["train"][11])


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


def test_what_no_demo_has_made_stays(png_folder: Path, tmp_path: Path) -> None:
    for name in ("unfinished", f"{png_folder.name}-held-out", "a.shade"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.tex").write_text("mine")
    for name in (f"{png_folder.name}-held-out", "a.shade"):
        with pytest.raises(SystemExit, match="no demo has made it"):
            data.anew(tmp_path, name)
    with pytest.raises(SystemExit, match="no demo has made it"):
        data.given(png_folder, tmp_path, None)
    data.write_stripes(tmp_path / "some")
    assert len(list(tmp_path.glob("*/thesis.tex"))) == 3
    # Nor does it count what a link leads to.
    data.anew(tmp_path, "made").symlink_to(tmp_path / "a.shade")
    with pytest.raises(SystemExit, match="no demo has made it"):
        data.anew(tmp_path, "made")
    # What a demo has made is made anew.
    images = data.given(png_folder, tmp_path / "some", None)
    (images.folder / "old").write_text("old")
    assert data.given(png_folder, tmp_path / "some", None) == images and not (images.folder / "old").exists()
