"""`setup/toolchain.sh` refuses a Python that the package does not support, before any build; systemd takes the unit."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def check(folder: Path, version: tuple[int, int, int]) -> subprocess.CompletedProcess[str]:
    """Runs it with an interpreter that claims this version."""
    python = folder / "python"
    code = f"import sys; sys.version_info = {version}; exec(sys.argv[1])"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$2"\n')
    python.chmod(0o755)
    script = ROOT / "setup" / "toolchain.sh"
    environment = os.environ | {"PYTHON": str(python)}
    return subprocess.run([script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", [(3, 9, 2), (3, 10, 14)])
def test_an_older_python_is_refused_by_name(tmp_path: Path, version: tuple[int, int, int]) -> None:
    done = check(tmp_path, version)
    assert done.returncode == 1
    assert f"python is Python 3.{version[1]}, which is too old: shade needs Python 3.11 or newer" in done.stderr
    assert "make PYTHON=" in done.stderr


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 13, 1), (4, 0, 0)])
def test_others_are_taken(tmp_path: Path, version: tuple[int, int, int]) -> None:
    done = check(tmp_path, version)
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if not (analyze := shutil.which("systemd-analyze")):
        pytest.skip("no systemd-analyze")
    unit = (ROOT / "docs/shade-load@.service").read_text(encoding="utf-8")
    assert "\nExecStart=/usr/local/bin/shade-load serve %f " in unit

    def complaints(text: str) -> str:
        path = tmp_path / "shade-load@data-photos.shade.service"
        # A program that is there.
        path.write_text(text.replace("/usr/local/bin/shade-load", sys.executable), encoding="utf-8")
        return subprocess.run([analyze, "verify", "--man=no", path], capture_output=True, text=True, check=False).stderr

    assert complaints(unit) == ""
    assert "Failed to parse" in complaints(unit.replace("Restart=on-failure", "Restart=sometimes"))
