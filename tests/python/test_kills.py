"""Daemons are killed under Python and C at seeded moments: no exception, no wrong row, nothing left behind.

SHADE_KILLS sets the number of kills of all these trainings, SHADE_SEED other moments. What was seen is printed as rows
of the table that tests/kills prints: `make kills` shows both.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import packed
import pytest
from kills_train import processes

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
TRAININGS = 3
KILLS = -(-int(os.environ.get("SHADE_KILLS", str(TRAININGS * 4))) // TRAININGS)
SEED = int(os.environ.get("SHADE_SEED", "1"))


@dataclass
class Seen:
    """What was seen of a training."""

    kills: int = 0
    successors: int = 0
    rows: int = 0
    wrong: int = 0
    stalls: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def compare(self, given: list[list], undisturbed: list[list]) -> None:
        """Counts rows of the two that differ."""
        for at in range(max(len(given), len(undisturbed))):
            got, right = (ledger[at] if at < len(ledger) else [None, None, []] for ledger in (given, undisturbed))
            count = max(len(got[2]), len(right[2]))
            self.rows += count
            is_same = got[:2] == right[:2]
            self.wrong += count - (sum(map(int.__eq__, got[2], right[2])) if is_same else 0)

    def time(self, given: list[list]) -> None:
        """Notes how long the first batch of each daemon took."""
        self.starts.append(given[0][3])
        for before, after in zip(given, given[1:], strict=False):
            if before[4] != after[4]:
                self.stalls.append(after[3] - before[3])

    def tell(self, name: str) -> None:
        """Prints a row of the table."""
        ms = [f"{1000 * seconds:.0f}" for seconds in sorted(self.stalls)]
        start = f"{1000 * median(self.starts):.0f}"
        middle, late, worst = (ms[(len(ms) - 1) * share // 100] for share in (50, 99, 100))
        print(
            f"\n| {name} | {self.kills} | {self.successors} | {self.rows} | {self.wrong} | {middle} | {late} | {worst} "
            f"| {start} | {len(self.exceptions)} | {len(self.left)} |"
        )
        assert (self.wrong, self.exceptions, self.left) == (0, [], [])
        assert self.kills >= KILLS and self.stalls


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("kills")
    packed.image_folder(root / "folder", "png")
    plain = packed.pack(root / "folder", root / "data.shade")
    return packed.with_fields(plain, root, lambda sample: {"json": json.dumps({"number": sample}).encode()})


def environment(own: Path) -> dict[str, str]:
    """With folders of its own for whatever is left."""
    names = ("TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
    for name in names:
        (own / name).mkdir(parents=True, exist_ok=True)
    return {**os.environ, **{name: str(own / name) for name in names}}


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "shade" in name.lower()}


def left(word: str, own: Path, before: set[str]) -> list[str]:
    """Processes, files and shared memory that are there after the daemons have had time to end."""
    # A daemon that was started for a rank that has left since waits for its first rank for 30 s.
    until = time.monotonic() + 60
    while True:
        files = [str(file) for file in own.rglob("*") if not file.is_dir()]
        found = [*map(str, processes(word)), *files, *(shared_memory() - before)]
        sockets = Path("/proc/net/unix").read_text().splitlines()
        found += [line.split()[-1] for line in sockets if line.endswith(word)]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.02)


def lines(note: Path) -> list:
    return [json.loads(line) for line in note.read_text().splitlines()]


def train(dataset: packed.Packed, folder: Path, world: int, kills: int, epochs: int) -> tuple[list[list], list[str]]:
    """The notes of all ranks, and what those said that have failed."""
    folder.mkdir()
    script = Path(__file__).with_name("kills_train.py")
    common = {"env": environment(folder / "own"), "stderr": subprocess.PIPE, "text": True}
    ranks = [
        subprocess.Popen(
            [sys.executable, script, dataset.path, folder, *map(str, (rank, world, kills, SEED, epochs))], **common
        )
        for rank in range(world)
    ]
    said = [rank.communicate()[1] for rank in ranks]
    failed = [text for rank, text in zip(ranks, said, strict=True) if rank.returncode != 0]
    return [lines(folder / f"note-{rank}") for rank in range(world)], failed


@pytest.mark.parametrize(("name", "world"), [("Python, extra fields", 1), ("Python, DDP with gloo", 2)])
def test_a_loop_is_given_what_it_would_be_given_undisturbed(
    dataset: packed.Packed, name: str, world: int, tmp_path: Path
) -> None:
    before = shared_memory()
    seen = Seen()
    given, seen.exceptions = train(dataset, tmp_path / "killed", world, KILLS, 0)
    seen.left = left(str(dataset.path), tmp_path / "killed/own", before)
    assert not seen.exceptions, seen.exceptions
    calm, failed = train(dataset, tmp_path / "calm", world, 0, given[0][-1]["epochs"])
    assert not failed, failed
    for (*ledger, about), (*undisturbed, _) in zip(given, calm, strict=True):
        seen.kills += about["kills"]
        seen.successors = max(seen.successors, about["successors"])
        if about["warnings"] != about["successors"]:
            seen.exceptions.append(f"{about['warnings']} warnings of {about['successors']} successors")
        seen.compare(ledger, undisturbed)
        seen.time(ledger)
        seen.starts.append(undisturbed[0][3])
    seen.tell(name)


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("c")
    capi = ROOT / "trainer-bridge" / "capi"
    libraries = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "debug"
    subprocess.run([capi / "install.sh", root / "prefix", libraries], check=True)
    flags = [f"-I{root}/prefix/include", f"-L{root}/prefix/lib", f"-Wl,-rpath,{root}/prefix/lib"]
    source = capi / "tests" / "trains_on.c"
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["cc", *strict, source, "-o", root / "program", *flags, "-lshade_client"], check=True)
    return root / "program"


def train_in_c(program: Path, dataset: packed.Packed, own: Path, kills: int, epochs: int, seen: Seen) -> list[list]:
    """The lines of the C program, whose daemons are killed between them; it ends with its input."""
    # More die here within an hour than a training would put up with.
    daemon = {"ring": "64KiB", "linger": 0.2, "deaths_max": 10_000}
    options = {"batch_size": 2, "seed": 3, "image_size": 8, "daemon": daemon}
    variables = {**environment(own), "SHADE_LOAD_BIN": str(packed.program("shade-load"))}
    chance, dead, given, since = random.Random(SEED), set[int](), [], 0
    started = time.monotonic()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [program, dataset.path, json.dumps(options)]
    errors = own.with_suffix(".log")
    with errors.open("w") as log, subprocess.Popen(command, env=variables, stderr=log, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in process.stdout:
            epoch, number, daemon, *rows = map(int, line.split())
            if number == -1:
                # It asks whether there is another epoch.
                is_over = len(dead) >= kills if epochs == 0 else epoch + 1 >= epochs
                process.stdin.write("end\n" if is_over else "on\n")
                process.stdin.flush()
            else:
                given.append([epoch, number, rows, time.monotonic() - started, daemon])
                since += 1
            if since >= 2 and daemon not in dead and len(dead) < kills and chance.random() < 0.4:
                time.sleep(chance.random() * 0.01)
                with suppress(ProcessLookupError):
                    os.kill(daemon, signal.SIGKILL)
                dead.add(daemon)
                since = 0
    said = errors.read_text()
    if process.returncode != 0:
        seen.exceptions.append(said)
    seen.successors += said.count("has taken its place")
    seen.kills += len(dead)
    return given


def test_a_program_in_c_as_well(dataset: packed.Packed, c_program: Path, tmp_path: Path) -> None:
    before = shared_memory()
    seen = Seen()
    given = train_in_c(c_program, dataset, tmp_path / "own", KILLS, 0, seen)
    seen.left = left(str(dataset.path), tmp_path / "own", before)
    calm = train_in_c(c_program, dataset, tmp_path / "own", 0, given[-1][0] + 1, seen)
    seen.compare(given, calm)
    seen.time(given)
    seen.starts.append(calm[0][3])
    seen.tell("C")
