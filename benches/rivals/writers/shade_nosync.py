"""Our own without waiting for the disk: what all the others do."""

from pathlib import Path

from benches.rivals.writers import shade

WANTS_FOLDER = False
version = shade.version


def pack(source: Path, out: Path, programs: Path, workers: int) -> None:
    shade.pack(source, out, programs, workers, "--no-sync")
