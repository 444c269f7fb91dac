"""The benches of a bucket run at their smallest, and their readers deliver every record once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import packed
import pytest

ROOT = Path(__file__).parents[2]
RECORDS = 300


def run(bench: str, out: Path, *words: object) -> list[dict[str, Any]]:
    """The rows of a record."""
    # shade-pack and shade-load are beside it.
    programs = packed.helper("shade-test-bucket").parent
    command = [sys.executable, "-m", "benches.buckets", bench, "--programs", programs, "--out", out]
    done = subprocess.run(
        [*map(str, command), "--records", str(RECORDS), *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())["rows"]


def test_the_loaders_read_in_turn(tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    pytest.importorskip("webdataset")
    rows = run("rivals", tmp_path / "rivals.json", "--rounds", 1, "--only", "shade", "--only", "webdataset")
    # One that delivers anything else has no row.
    assert [row["name"] for row in rows] == ["shade", "WebDataset"]
    for row in rows:
        assert row["requests"] > 0 and 0 < row["first_256_seconds"] < RECORDS / row["median"]


def test_requests_are_counted(tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    rows = {row["name"]: row for row in run("requests", tmp_path / "requests.json")}
    plain, cached = rows["uniform, no cache"], rows["uniform, cache of 20 %"]
    # A record that is still in flight when its next use is planned is read once for both.
    assert 0 < cached["misses_an_epoch"] < plain["misses_an_epoch"] <= RECORDS
    assert all(row["median"] > 0 for row in rows.values())
    assert all(row["delivered_an_epoch"] == RECORDS for row in rows.values())
