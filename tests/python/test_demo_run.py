"""The demo as a user runs it, on small data: what it leaves behind, and that it can be interrupted."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

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
    assert "hit ratio, all epochs" in output

    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["data"] == {"name": "images", "train_samples": 81, "val_samples": 9}
    assert [run["setting"]["sampler"] for run in result["runs"]] == ["uniform", "pads"]
    for run in result["runs"]:
        assert [epoch["epoch"] for epoch in run["epochs"]] == [0, 1]
        for epoch in run["epochs"]:
            assert epoch["accesses"] == epoch["hits"] + epoch["prefetched"] + epoch["misses"] == 81
            assert 0 <= epoch["val_accuracy"] <= 1
        # Both samplers begin with a permutation.
        assert (run["epochs"][0]["distinct"], run["epochs"][0]["repeat_max"]) == (81, 1)
    with Image.open(tmp_path / "out" / "plot.png") as image:
        assert image.format == "PNG"


def test_a_second_run_packs_only_what_has_changed(demo: Start, tmp_path: Path, jpeg_folder: Path) -> None:
    arguments = ("--data", jpeg_folder, "--epochs", "1", "--store-delay", "0")
    first, errors = demo(*arguments).communicate(timeout=HANG_SECONDS)
    assert "packed before" not in first, errors
    second, errors = demo(*arguments).communicate(timeout=HANG_SECONDS)
    assert second.count("packed before") == 2, errors
    assert "SIMULATED" not in second


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
    assert f"demo: {tmp_path / 'absent'}: no such folder" in errors


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
