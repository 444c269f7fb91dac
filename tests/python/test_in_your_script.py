"""The diffs of docs/in-your-script.md: each applies to its stock script, which then trains and resumes."""

import csv
import json
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import packed
import pytest
import torch

pytest.importorskip("torchvision")

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/in-your-script.md"
ADDED_MAX = 10
# What a script is made of, where it is not called so.
PACKAGES = {"convnext_main.py": "timm"}
COMMON = ["--batch-size", "16", "--size", "32", "--workers", "0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train` and `val`, and beside them both packed."""
    root = tmp_path_factory.mktemp("in-your-script")
    for split in ("train", "val"):
        packed.image_folder(root / split, "jpeg", side=48)
        packed.pack(root / split, root / f"{split}.shade")
    return root


@pytest.fixture(autouse=True)
def no_state_stays() -> Iterator[None]:
    yield
    if "accelerate" in sys.modules:
        # Accelerate keeps one state for the process.
        sys.modules["accelerate"].state.AcceleratorState._reset_state(reset_partial_state=True)


def diffs() -> dict[str, str]:
    """The page's diffs by their script."""
    bodies = re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    return {body.partition("\n")[0].removeprefix("--- "): body.partition("\n")[2] for body in bodies}


def patched(name: str, folder: Path) -> Path:
    """The script after the page's diff, whose hunks begin with `@@` and must each fit in one place."""
    script = (HERE / "stock" / name).read_text(encoding="utf-8")
    for hunk in diffs()[name].split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        assert {line[0] for line in lines} <= set(" -+"), hunk
        old, new = ("".join(line[1:] for line in lines if line[0] in side) for side in (" -", " +"))
        assert script.count(old) == 1, f"{name}: this fits in {script.count(old)} places:\n{old}"
        script = script.replace(old, new)
    (folder / name).write_text(script, encoding="utf-8")
    return folder / name


def run(script: Path, *arguments: object) -> None:
    before = sys.argv
    sys.argv = [str(script), *map(str, arguments), *COMMON]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = before


def torchvision_reference(out: Path) -> None:
    saved = torch.load(out / "checkpoint.pth", weights_only=True)
    assert saved["epoch"] == 1 and saved["loader"]["epoch"] == 2


def timm_train(out: Path) -> None:
    rows = list(csv.DictReader((out / "summary.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["epoch"] for row in rows] == ["0", "1"] and float(rows[1]["eval_top1"]) > 0
    assert (out / "checkpoint-1.pth.tar").is_file()


def lightning_train(out: Path) -> None:
    versions = sorted(out.glob("logs/version_*/metrics.csv"))
    rows = [row for log in versions for row in csv.DictReader(log.read_text(encoding="utf-8").splitlines())]
    for figure in ("val_accuracy", "shade/wait_share"):
        assert [row["epoch"] for row in rows if row[figure]] == ["0", "1"], figure


def transformers_train(out: Path) -> None:
    history = json.loads((out / "checkpoint-8/trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    assert [entry["epoch"] for entry in history if "eval_accuracy" in entry] == [1.0, 2.0]
    assert all("shade/wait_share" in entry for entry in history if "loss" in entry)
    assert (out / "checkpoint-8/shade_load.pt").is_file()


def convnext_main(out: Path) -> None:
    lines = [json.loads(line) for line in (out / "log.txt").read_text(encoding="utf-8").splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1] and all(line["test"]["acc1"] > 0 for line in lines)


def accelerate_train(out: Path) -> None:
    assert sorted(folder.name for folder in out.iterdir()) == ["epoch-0", "epoch-1"]
    assert (out / "epoch-1/custom_checkpoint_0.pkl").is_file()


CASES: list[tuple[Callable[[Path], None], list[str]]] = [
    (torchvision_reference, ["--device", "cpu", "--model", "squeezenet1_1"]),
    (timm_train, ["--device", "cpu"]),
    (convnext_main, ["--device", "cpu"]),
    (lightning_train, ["--accelerator", "cpu"]),
    (transformers_train, ["--cpu"]),
    (accelerate_train, ["--cpu"]),
]


def test_all_diffs_are_tried() -> None:
    names = {f"{check.__name__}.py" for check, _ in CASES}
    assert names == set(diffs()) == {script.name for script in (HERE / "stock").glob("*.py")}


@pytest.mark.parametrize(("check", "options"), CASES, ids=[check.__name__ for check, _ in CASES])
def test_a_stock_script_trains_with_few_lines_changed(
    check: Callable[[Path], None], options: list[str], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{check.__name__}.py"
    pytest.importorskip(PACKAGES.get(name, name.partition("_")[0]))
    (tmp_path / "stock").mkdir()
    run(HERE / "stock" / name, data, tmp_path / "stock", "--epochs", "1", *options)

    added = [line for line in diffs()[name].splitlines() if line.startswith("+") and line != "+"]
    assert len(added) <= ADDED_MAX
    script = patched(name, tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    run(script, data, out, "--epochs", "1", *options)
    run(script, data, out, "--epochs", "2", "--resume", *options)
    check(out)
    if check in (torchvision_reference, accelerate_train):
        assert capsys.readouterr().out.count("accuracy") == 3
