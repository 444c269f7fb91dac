"""The bench of captions runs at its smallest, and a caption that comes along costs no operation."""

from pathlib import Path

import live_bench

SAMPLES = 600


def test_captions_come_with_their_images(tmp_path: Path) -> None:
    along, asked, files = "fields=('txt',)", "batch.fields()", "DataLoader, 8 workers"
    ways = [word for way in (along, asked, files) for word in ("--only", way)]
    record, report = live_bench.run("benches.captions", tmp_path, "--samples", SAMPLES, "--rounds", 1, *ways)
    runs = {row["way"]: row["runs"][0] for row in record["rows"]}
    assert list(runs) == ["images alone", along, asked, files]
    assert all(run["samples"] == SAMPLES and f"| {way} |" in report for way, run in runs.items())
    reads = {way: run["operations"]["read"] for way, run in runs.items()}
    assert reads["images alone"] / 2 < reads[along] < 1.1 * reads["images alone"] < reads[asked], reads
