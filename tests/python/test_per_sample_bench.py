"""The bench of functions of samples runs at its smallest: results are those of a DataLoader."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_results_are_those_of_a_data_loader(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benches.per_sample", "--samples", "150", "--rounds", "1", "--out", tmp_path / "out"]
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True)
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    ways = {row["way"]: row["runs"][0] for row in record["rows"]}
    assert all(run["samples"] == 150 for run in ways.values())
    files, records, images = (ways[way]["digest"] for way in ways)
    assert files == records != images
    assert all(f"| {way} |" in (tmp_path / "out" / "report.md").read_text() for way in ways)
