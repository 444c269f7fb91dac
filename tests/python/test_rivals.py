"""The table of `benches/rivals`: each row names functions that are there, and the rows that the
records have."""

import ast
import json
from pathlib import Path

import pytest

from benches.rivals import table

RIVALS = Path(table.__file__).parent
RECORDS = RIVALS.parent / "record"
ROWS = [
    (bench, name, row)
    for bench, rows in (
        ("pack", table.PACK),
        ("read", table.READ),
        ("decode", table.DECODE),
        ("augment", table.AUGMENT),
        ("train", table.TRAIN),
    )
    for name, row in rows.items()
]
# What a bench passes to a row's function, and to the one that prepares it. A row with `fast` gets a
# decoder, too.
ARGUMENTS = {"pack": (4, 0), "read": (4, 2), "decode": (4, 3), "augment": (4, 3), "train": (2, 2)}


def function(name: str) -> ast.FunctionDef:
    """The function MODULE.FUNCTION, from its source: most rivals are not installed where the tests
    run."""
    module, wanted = name.split(".")
    parsed = ast.parse((RIVALS / "systems" / f"{module}.py").read_text())
    found = [node for node in parsed.body if isinstance(node, ast.FunctionDef) and node.name == wanted]
    assert len(found) == 1, f"{name}: {len(found)} functions"
    return found[0]


def takes(name: str, count: int) -> bool:
    arguments = function(name).args
    most = len(arguments.args)
    return most - len(arguments.defaults) <= count and (count <= most or arguments.vararg is not None)


@pytest.mark.parametrize(("bench", "name", "row"), ROWS, ids=[f"{bench}-{name}" for bench, name, _ in ROWS])
def test_a_row_names_functions_that_take_what_the_bench_passes(bench: str, name: str, row: table.Row) -> None:
    to_run, to_prepare = ARGUMENTS[bench]
    assert takes(row.run, to_run + row.fast)
    if row.prepare:
        assert takes(row.prepare, to_prepare)
    assert takes(f"{row.run.split('.')[0]}.version", 1)


def test_every_system_is_in_the_table() -> None:
    named = {row.run.split(".")[0] for _, _, row in ROWS}
    assert named == {path.stem for path in (RIVALS / "systems").glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("name", ["shade.read", "shade_pack.pack", "torch_dataloader.read", "preadv.read"])
def test_what_needs_no_rival_is_imported(name: str) -> None:
    assert callable(table.load(name))


@pytest.mark.parametrize(("bench", "rows"), [("pack", table.PACK), ("read", table.READ), ("decode", table.DECODE)])
def test_the_rows_of_the_records_are_still_there(bench: str, rows: dict[str, table.Row]) -> None:
    found = 0
    for record in RECORDS.glob(f"*-rivals-{bench}*.json"):
        titles = {row.title for row in rows.values()} | bounds(bench)
        for row in json.loads(record.read_text())["rows"]:
            found += 1
            assert any(row["name"] == title or row["name"].startswith(f"{title}, ") for title in titles), row["name"]
            assert row.get("contender", next(iter(rows))) in {*rows, "bare", "gather"}
    assert found > 5


def bounds(bench: str) -> set[str]:
    """Titles of the rows that measure no rival."""
    if bench == "pack":
        return set()
    module = __import__(f"benches.rivals.{bench}", fromlist=["BOUNDS"])
    return set(module.BOUNDS.values())
