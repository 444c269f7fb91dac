"""The table of `benches/rivals`: each row names functions that are there, and the rows that the
records have."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import documents
import numpy
import pytest
from shade_load.recipe import recipe
from shade_load.transforms import PillowGaussianBlur

from benches.rivals import recipe_check, table
from benches.rivals.kinds import KINDS
from benches.rivals.recipes import KIND_NAMES

RIVALS = Path(table.__file__).parent
RECORDS = RIVALS.parent / "record"
ROWS = [
    (bench, name, row)
    for bench, rows in (
        ("pack", table.PACK),
        ("read", table.READ),
        ("decode", table.DECODE),
        ("augment", table.AUGMENT),
        ("recipes", table.RECIPES),
        ("train", table.TRAIN),
    )
    for name, row in rows.items()
]
# What a bench passes to a row's function, and to the one that prepares it. A row with `fast` gets a
# decoder, too.
ARGUMENTS = {"pack": (4, 0), "read": (4, 2), "decode": (4, 3), "augment": (4, 3), "recipes": (4, 3), "train": (2, 2)}


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


def lists_of_the_page() -> dict[str, Any]:
    """What docs/recipes.md gives as `decode`, by recipe."""
    page = (RIVALS.parents[1] / "docs/recipes.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M)[: len(KIND_NAMES)]:
        # Without the Loader, which would need a dataset.
        exec(block.partition("\nwith ")[0], names)
    return {
        "deit3": names["options"]["decode"],
        "convnext": names["convnext"],
        "dinov2": names["dinov2"],
        "simclr": names["pairs"]["decode"],
    }


def test_recipes_are_those_of_the_page() -> None:
    recipe_lists = pytest.importorskip("benches.rivals.recipe_lists")
    shown = lists_of_the_page()
    assert list(shown) == KIND_NAMES
    for name, given in shown.items():
        lists = recipe_lists.views(name, PillowGaussianBlur, magnitude=9)
        assert len(lists) == len(KINDS[name].views)
        (ours, floats), (theirs, expected) = (recipe(each, None) for each in (lists if len(lists) > 1 else lists[0], given))
        assert documents.views(ours) == documents.views(theirs)
        assert told(floats) == told(expected)


def told(function: Any) -> list[Any]:
    """The attributes of what is done to a batch's floats."""
    closed = getattr(function, "__closure__", None)
    parts = closed[0].cell_contents if closed else [function]
    return [(type(part), str(vars(part))) for part in parts]


@pytest.mark.parametrize("wrong", ["nothing", "mirrored", "blurred", "grey", "darker", "views"])
def test_another_recipe_is_told(tmp_path: Path, wrong: str) -> None:
    draw = numpy.random.default_rng(0)

    def looked_at(changed: str) -> list[recipe_check.Epoch]:
        epoch = recipe_check.Epoch()
        ramp = numpy.linspace(0, 1, 12, dtype=numpy.float32)
        for _ in range(784):
            view = draw.random((3, 12, 12), numpy.float32) + ramp * draw.random()
            if changed == "mirrored":
                view = view[:, :, ::-1]
            if changed == "blurred":
                view = (view + numpy.roll(view, 1, axis=2)) / 2
            if changed == "grey":
                view = numpy.repeat(view[:1], 3, axis=0)
            epoch.add([view - 0.1 if changed == "darker" else view] * (2 if changed == "views" else 1), 0)
        return [epoch]

    recipe_check.keep(looked_at("nothing"), tmp_path)
    faults = recipe_check.differences(looked_at(wrong), tmp_path, recipe_check.DISTANCE_MAX)
    assert bool(faults) == (wrong != "nothing"), faults


def bounds(bench: str) -> set[str]:
    """Titles of the rows that measure no rival."""
    if bench == "pack":
        return set()
    module = __import__(f"benches.rivals.{bench}", fromlist=["BOUNDS"])
    return set(module.BOUNDS.values())
