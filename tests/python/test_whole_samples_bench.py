"""The bench of masks, mixtures and buckets runs at its smallest, beside a DataLoader."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_kind_is_measured_beside_a_data_loader(tmp_path: Path) -> None:
    small = ["--samples", "130", "--rounds", "1", "--workers", "1", "--out", tmp_path / "out"]
    subprocess.run(list(map(str, [sys.executable, "-m", "benches.whole_samples", *small])), cwd=ROOT, check=True)
    record, report = (json.loads((tmp_path / "out/results.json").read_text()), (tmp_path / "out/report.md").read_text())
    assert [(row["kind"], row["way"]) for row in record["rows"]] == [
        (kind, way) for kind in ("masks", "mixtures", "buckets") for way in ("DataLoader", "shade")
    ]
    for row in record["rows"]:
        # An epoch of a mixture has all of its first half, in whole batches: 65 / 0.7 rows.
        samples = {"DataLoader": 92, "shade": 128}[row["way"]] if row["kind"] == "mixtures" else 130
        assert row["runs"][0]["samples"] == samples and f"- {row['way']}: {row['runs'][0]['what']}" in report
    assert "shade: 19 to 19 of 64 rows" in report or "shade: 19 to 20 of 64 rows" in report
