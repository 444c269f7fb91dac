"""A daemon goes on for other trainings when a launcher has cleaned up after the one that started it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import packed
import pytest
from shade_load import Daemon, Loader

BATCH = 8
# Starts the daemon, and stays until it is killed or told to end.
FIRST = """
import sys
from shade_load import Daemon, Loader
with Loader(sys.argv[1], 8, daemon=Daemon(job=sys.argv[2])) as loader:
    print(loader.daemon_pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def dataset(tmp_path: Path) -> packed.Packed:
    """One for each test, and so one daemon."""
    packed.image_folder(tmp_path / "folder", "png")
    return packed.pack(tmp_path / "folder", tmp_path / "data.shade")


def start(dataset: packed.Packed, job: str) -> tuple[subprocess.Popen[str], int]:
    """A training in a session of its own, as launchers start one, and its daemon's process."""
    command = [sys.executable, "-W", "ignore", "-c", FIRST, str(dataset.path), job]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return process, int(line)


def processes() -> Iterator[tuple[int, int, int, int]]:
    """(process, parent, group, session) of all that run."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                yield int(entry.name), int(fields[1]), int(fields[2]), int(fields[3])


def children(of: int) -> set[int]:
    return {pid for pid, parent, _, _ in processes() if parent == of}


def tree(of: int) -> set[int]:
    found = children(of)
    return found | {pid for child in found for pid in tree(child)}


def runs(pid: int) -> bool:
    return any(pid == process for process, *_ in processes())


# What launchers end after a rank, besides the rank itself.
CLEAN_UPS: dict[str, Callable[[int], set[int]]] = {
    "children, as Ray": children,
    "descendants, as DeepSpeed": tree,
    "process group, as torchrun": lambda of: {pid for pid, _, group, _ in processes() if group == of},
    "session, as a terminal": lambda of: {pid for pid, _, _, session in processes() if session == of},
}


@pytest.mark.parametrize("clean_up", CLEAN_UPS.values(), ids=CLEAN_UPS)
def test_it_serves_others_when_its_first_training_was_cleaned_up(
    dataset: packed.Packed, clean_up: Callable[[int], set[int]]
) -> None:
    first, daemon = start(dataset, "first")
    with Loader(dataset.path, BATCH, daemon=Daemon(job="second")) as loader:
        assert loader.daemon_pid == daemon
        batches = iter(loader)
        next(batches)
        for victim in clean_up(first.pid) | {first.pid}:
            os.kill(victim, signal.SIGKILL)
        # The training's output ends with it: the daemon does not keep it open.
        first.communicate()
        assert sum(1 for _ in batches) == len(loader) - 1
        assert sum(1 for _ in loader) == len(loader)
        assert loader.daemon_pid == loader.stats()["pid"] == daemon
    while runs(daemon):
        time.sleep(0.01)


def test_its_log_goes_to_the_training_that_is_still_there(dataset: packed.Packed) -> None:
    first, daemon = start(dataset, "first")
    second, same = start(dataset, "second")
    assert same == daemon
    told = subprocess.run(
        [packed.program("shade-load"), "status", "--json"], check=True, capture_output=True, text=True
    )
    (address,) = [status["socket"] for status in json.loads(told.stdout) if status["pid"] == daemon]

    def leave_a_line() -> None:
        """Breaks the protocol, which the log tells."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(address.replace("@", "\0", 1))
            peer.send(b"\xff" * 10)
            # The line was logged before.
            while peer.recv(1 << 16):
                pass

    assert first.stderr is not None and second.stderr is not None
    leave_a_line()
    # It is logged by then, and on its way.
    heard = ""
    while "WARN" not in heard:
        heard += first.stderr.readline()
    heard += first.communicate("")[1]
    assert "serving" in heard and heard.count("WARN") == 1, heard
    leave_a_line()
    assert "WARN" in second.stderr.readline()
    second.communicate("")
