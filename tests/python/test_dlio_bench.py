"""The bench under DLIO: its data, what it runs and leaves out, and its tables. DLIO itself is not installed here."""

import json
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Loader, Writer

from benches.dlio import __main__ as bench
from benches.dlio import memory
from benches.dlio.cell import DISK, STORE, Cell
from benches.dlio.copies import crc32c, renamed
from benches.dlio.data import files_for
from benches.dlio.report import markdown
from benches.dlio.rows import AS_IT_IS, DECODED, ROWS, TOUCHED

SAMPLES = 7


def test_copies_of_a_dataset_are_one_dataset_of_linked_shards(tmp_path: Path) -> None:
    piece = tmp_path / "piece.shade"
    with Writer(piece) as writer:
        for number in range(SAMPLES):
            writer.add(_pgm(number), key=f"copy-000/{number}")
    copies = [piece, *(tmp_path / f"{copy}.shade" for copy in (1, 2))]
    for copy, out in enumerate(copies[1:], start=1):
        renamed(piece, out, "copy-000/", f"copy-{copy:03}/")
    merged = tmp_path / "merged.shade"
    packed.run_pack("merge", "--link", merged, *copies)
    packed.run_pack("verify", merged)
    shards = [path.stat() for path in merged.glob("*.tar")]
    assert len(shards) == len(copies) and len({shard.st_ino for shard in shards}) == 1
    with Loader(merged, SAMPLES) as loader:
        records = [record.tobytes() for batch in loader for record in batch.records.memoryviews()]
    assert sorted(records) == sorted(len(copies) * [_pgm(number) for number in range(SAMPLES)])


def test_memory_is_touched_up_to_a_limit_and_no_more_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.touched((1 << 30) - 1) == [], "whole GiB"
    monkeypatch.setattr(memory, "GIB", 1 << 20)
    monkeypatch.setattr(memory, "_available_bytes", lambda: 5 << 20)
    assert [len(memory.touched(limit << 20)) for limit in (3, 9)] == [3, 5]


def _pgm(number: int) -> bytes:
    return b"P5 1 1 255\n" + bytes([number])


def test_checksums_are_castagnolis() -> None:
    # RFC 3720, B.4.
    assert (crc32c(bytes(32)), crc32c(b"\xff" * 32)) == (0x8A9136AA, 0x62A8AB43)


def test_ranks_have_equally_many_files_and_steps_enough() -> None:
    for accelerators in (1, 3, 10):
        files = files_for(1_251, accelerators, 320)
        assert files % accelerators == 0
        assert files // accelerators * 1_251 >= 320 * 400 > (files // accelerators - 1) * 1_251


def arguments(*words: str) -> Any:
    return bench.parser().parse_args(words)


def test_what_is_compared_runs_in_turn() -> None:
    made = list(bench.matrix(arguments("--rounds", "2", "--accelerators", "8", "3", "--rows", "shade", "dali", "shade-decoded")))
    assert made[:2] == [Cell(DISK, AS_IT_IS, row, 3, 1) for row in ("shade", "dali")]
    assert len(made) == len(set(made)) == 2 * 2 * 2 * 2
    decoded = bench.matrix(arguments("--variants", DECODED, "--stores", STORE, "--accelerators", "1", "--rounds", "1"))
    assert {cell.row for cell in decoded} == {name for name, row in ROWS.items() if row.only == DECODED}
    touched = bench.matrix(arguments("--variants", TOUCHED))
    assert {cell.row for cell in touched}.isdisjoint(name for name, row in ROWS.items() if row.forgets)


def result(cell: Cell, au: float | None, busy: bool = False) -> dict[str, Any]:
    took = {"loader_cores": 0.5, "store_cores": 0.25, "dlio_samples_per_second": 5_000.0, "longest_loads": []}
    return {**vars(cell), "au": au, "is_stopped": au is None, "busy": busy, "other_cores": 0.0, **took}


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    wanted = list(bench.matrix(arguments("--stores", STORE, "--rows", "shade", "dali", "--rounds", "1", "--accelerators", "3", "4")))
    asked, utilisation = [], {"shade": [95.0, 91.0], "dali": [40.0]}

    def run(cell: Cell) -> dict[str, Any]:
        asked.append(cell.name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        # Others used the machine in the first run.
        return result(cell, utilisation[cell.row][cell.accelerators - 3], busy=len(asked) == 1)

    options = arguments("--data", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        bench.run_missing(wanted, run, options)
    results = bench.run_missing(wanted, run, options)
    first, second, third, _hopeless = (cell.name for cell in wanted)
    assert asked == [first, second, third, first, third], "void, done, interrupted, then what was missing"
    assert [(row["row"], row["accelerators"]) for row in results] == [("shade", 3), ("dali", 3), ("shade", 4)]
    assert not json.loads((tmp_path / "cells" / f"{first}.json").read_text())["busy"]


def test_a_row_passes_where_all_of_its_runs_do() -> None:
    cells = [Cell(STORE, AS_IT_IS, "shade", count, round_) for count in (3, 4, 6) for round_ in (1, 2)]
    runs = [result(cell, au) for cell, au in zip(cells, [97, 96, 95, 90.0, 91, 89.9], strict=True)]
    runs.append(result(Cell(STORE, AS_IT_IS, "dali", 3, 1), None, busy=True))
    record = {
        "date": "2026-11-29", "machine": {"cores": 2, "cpu": "a CPU", "kernel": "6"}, "versions": {"git": "abc"},
        "busy": False, "command": "make", "steps": 320, "written_samples": 60_048, "rows": runs,
    }  # fmt: skip
    told = markdown(record)
    assert "| shade, default options | 97.0, 96.0 | 95.0, 90.0 | 91.0, 89.9 | 4 |" in told
    assert "| DLIO's DALI, as in MLPerf | too slow? | not run | not run | fewer than 3 |" in told
    assert "**1 of 7 runs are void**" in told
