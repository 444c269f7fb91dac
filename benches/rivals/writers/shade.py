"""Our own, as a user would call it: it waits for the disk to confirm."""

import subprocess
from pathlib import Path

WANTS_FOLDER = False


def pack(source: Path, out: Path, programs: Path, workers: int, *options: str) -> None:
    words = [programs / "shade-pack", "create", "--quiet", "--jobs", str(workers), *options, source, out]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)


def version(programs: Path) -> str:
    done = subprocess.run([programs / "shade-pack", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()
