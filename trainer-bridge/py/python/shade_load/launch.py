"""Finds the daemon's program."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ._native import ShadeError

PROGRAM = "shade-load"
VARIABLE = "SHADE_LOAD_BIN"


def find_daemon() -> Path:
    """The daemon's program: $SHADE_LOAD_BIN, else the one in this package, else the one on PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        program = Path(named)
        if not os.access(program, os.X_OK):
            raise ShadeError(f"{VARIABLE} names {program}, which cannot be run: correct it or unset it")
        return program
    packaged = Path(__file__).parent / "bin" / PROGRAM
    if os.access(packaged, os.X_OK):
        return packaged
    found = shutil.which(PROGRAM)
    if found is None:
        raise ShadeError(
            f"no {PROGRAM}: neither {packaged} nor on PATH. In a checkout of shade, `cargo install --locked --path "
            f"loader/daemon` puts it on PATH, and `make build` into this package. If it is elsewhere, set {VARIABLE} to its path"
        )
    return Path(found)
