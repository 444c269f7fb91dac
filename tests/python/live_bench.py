"""Runs a live bench at its smallest."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from studies import slow_store

ROOT = Path(__file__).parents[2]
# Where `make test` builds shade-slow-store.
PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"


def run(module: str, tmp_path: Path, *more: object) -> tuple[dict[str, Any], str]:
    """The record and the report. The test is skipped where no file system can be mounted."""
    if refusal := slow_store.find(PROGRAMS, 1, 1, tmp_path).simulated_because:
        pytest.skip(refusal)
    command = [sys.executable, "-m", module, "--programs", PROGRAMS, "--out", tmp_path / "out", *more]
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True)
    return json.loads((tmp_path / "out" / "results.json").read_text()), (tmp_path / "out" / "report.md").read_text()
