"""Our own without waiting for the disk: what all the others do."""

import subprocess
import sys
from pathlib import Path

from benches.rivals.writers import shade

WANTS_FOLDER = False
OPTION = "--no-sync"
version = shade.version


def pack(source: Path, out: Path, programs: Path, workers: int) -> None:
    try:
        shade.pack(source, out, programs, workers, OPTION)
    except subprocess.CalledProcessError:
        if OPTION not in subprocess.check_output([programs / "shade-pack", "create", "--help"], text=True):
            sys.exit(f"this shade-pack does not know {OPTION}")
        raise
