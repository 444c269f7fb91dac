"""Finds our programs."""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path

from ._native import ShadeError

# Each program's crate, for `cargo install`.
CRATES = {"shade-load": "loader/daemon", "shade-pack": "packer"}


def find_daemon() -> Path:
    """The daemon's program: $SHADE_LOAD_BIN, else the one installed with this package, else the one on PATH."""
    return find_program("shade-load")


def find_program(name: str) -> Path:
    """The program `name`: what its variable names ($SHADE_LOAD_BIN), else installed with this package, else on PATH."""
    variable = f"{name.upper().replace('-', '_')}_BIN"
    named = os.environ.get(variable)
    if named:
        program = Path(named)
        if not os.access(program, os.X_OK):
            raise ShadeError(f"{variable} names {program}, which cannot be run: correct it or unset it")
        return program
    for program in _installed(name):
        if os.access(program, os.X_OK):
            return program
    found = shutil.which(name)
    if found is None:
        raise ShadeError(
            f"no {name}: neither installed with this package nor on PATH. A wheel of shade-load brings it. In a checkout "
            f"`cargo install --locked --path {CRATES[name]}` puts it on PATH, and `make build` into .venv. If it is "
            f"elsewhere, set {variable} to its path"
        )
    return Path(found)


def _installed(name: str) -> list[Path]:
    """Where the installer's record has the program; beside the package after `pip install --target`, which moves it."""
    try:
        recorded = metadata.files("shade-load") or []
    except metadata.PackageNotFoundError:
        recorded = []
    programs = [Path(os.path.normpath(file.locate())) for file in recorded if file.name == name]
    return [*programs, Path(__file__).parents[1] / "bin" / name]
