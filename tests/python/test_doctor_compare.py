"""`shade-load doctor --compare`: a DataLoader beside shade, on real files, and what it leaves behind."""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import packed
import pytest
from shade_load.socket_folder import socket_folder
from test_schemas import check


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("compared")
    packed.image_folder(root / "folder", "jpeg")
    return packed.pack(root / "folder", root / "data.shade")


def compare(*words: object, **variables: object) -> subprocess.Popen[str]:
    command = [packed.program("shade-load"), "doctor", "--compare", *map(str, words)]
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def finished(running: subprocess.Popen[str], code: int = 0) -> str:
    out, error = running.communicate()
    assert running.returncode == code, f"{running.returncode}\n{out}{error}"
    return out if code == 0 else error


def without_torch(folder: Path) -> str:
    """A PYTHONPATH with which the import of torch fails."""
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    return os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])


def test_a_dataloader_and_shade_read_the_files_as_they_are(dataset: packed.Packed, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in dataset.folder.rglob("*")}
    words = ("--seconds", "1", "--workers", "1", "--image-size", packed.SIDE, "--json")
    cache = tmp_path / "cache"
    running = compare(dataset.folder, *words, TMPDIR=tmp_path, XDG_CACHE_HOME=cache)
    report = check("shade-load-doctor-compare", finished(running))
    assert (report["images"], report["dataset"], report["image_size"]) == (61, None, packed.SIDE)
    assert report["has_torch"] and report["loader"] == "DataLoader, 1 workers"
    assert report["record_share"] == 1.0 and 0 < report["read_alone_p50_ms"] <= report["read_alone_max_ms"]
    for counts, rounds in (((2, 4), report["cold"]), ((2,), report["warm"])):
        for side in rounds.values():
            assert len(side["rounds"]) in counts and min(side["rounds"]) > 0, report
    # Nothing is read that the cache holds.
    assert report["cold"]["shade"]["operations_per_s"] > 0 == report["warm"]["shade"]["operations_per_s"]
    assert {path: path.stat().st_mtime_ns for path in dataset.folder.rglob("*")} == before
    # torch leaves a folder of its own behind.
    assert not list(tmp_path.glob("shade*")), "the index of the folder, which a Loader keeps, is in the cache"


def test_without_torch_threads_stand_in_and_are_named(dataset: packed.Packed, tmp_path: Path) -> None:
    running = compare(dataset.folder, dataset.path, "--seconds", "1", PYTHONPATH=without_torch(tmp_path))
    text = finished(running)
    assert text.startswith("thread pool of ") and "as there is no torch beside shade" in text
    assert f"  shade reads {dataset.path}\n" in text and "61 images each" in text
    assert "\ncold " in text and "\nwarm " in text and "of CPU a record (threads, shade)" in text.replace("\n    ", " ")


def test_what_cannot_be_compared_is_refused(dataset: packed.Packed, tmp_path: Path) -> None:
    for folder, words, said in (
        (tmp_path / "none", (), "cannot look at"),
        (dataset.folder, ("--python", "/bin/false"), "it needs a Python with the package shade_load"),
        (dataset.folder / "ant", (dataset.path,), "0 images in common: a comparison needs 32"),
    ):
        assert said in finished(compare(folder, *words, PYTHONPATH=without_torch(tmp_path)), code=1)


def test_after_ctrl_c_nothing_is_left(dataset: packed.Packed, tmp_path: Path) -> None:
    # Short, as sockets in it have paths of 107 bytes at most.
    scratch = Path(tempfile.mkdtemp(dir="/tmp"))
    variables = {"TMPDIR": scratch, "PYTHONPATH": without_torch(tmp_path)}
    running = compare(dataset.folder, dataset.path, "--seconds", "600", **variables)
    while not any(scratch.glob("shade-doctor-*/*.sock")):
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGINT)
    assert "interrupted" in finished(running, code=130)
    scratch.rmdir()
    # Its daemon is of the same session, and ends when its rank has left.
    while processes_of(running.pid):
        time.sleep(0.05)


def test_a_temporary_folder_of_a_long_name_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for parent, expected in ((tmp_path / ("long" * 20), Path("/tmp")), (Path("/var/tmp"), Path("/var/tmp"))):
        parent.mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(parent))
        with socket_folder("shade-") as folder:
            assert Path(folder).parent == expected


def processes_of(session: int) -> list[str]:
    """Processes of a session."""
    told = subprocess.run(["ps", "-o", "pid=", "-s", str(session)], capture_output=True, text=True, check=False)
    return told.stdout.split()
