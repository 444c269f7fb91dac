"""Every public argument with every odd type: it is taken, or the error names the argument and says what is expected."""

import copy
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
import shade_load
import torch
from shade_load import Daemon, Loader, Plan, ShadeError
from shade_load.as_data_loader import COUNTERPARTS
from torch.utils.data import DataLoader

ROOT = Path(__file__).parents[2]
ODD = [
    None, True, np.True_, 0, 3, -1, 1 << 70, 1.5, 224.0, float("nan"), float("inf"), 1j, np.int64(3), np.float32(0.5),
    np.uint8(3), torch.tensor(3), torch.tensor(0.5), torch.tensor([1, 2]), np.array([1, 2]), np.array(["a"]), "", "x",
    "20", "0.2", b"x", bytearray(b"x"), [], [1], ["a"], (1, 2, 3), {}, {"a": 1}, {1}, object(), len, int, Path("x"),
    "9" * 5000, 10**5000,
]  # fmt: skip
# Arguments that take whatever there is, or whose error is about another one.
OTHER_NAMES = {
    "rank": "rank|world_size",
    "world_size": "rank|world_size",
    "weights": "weights",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a dataset, and a daemon that must not be started."""
    (tmp_path / "dataset.shade").touch()
    monkeypatch.setenv("SHADE_LOAD_BIN", "/bin/false")
    return tmp_path


def check(name: str, call: Callable[[], Any], is_taken: tuple[type[Exception], ...] = ()) -> None:
    try:
        call()
    except is_taken:
        return
    except (TypeError, ValueError, FileNotFoundError) as error:
        text = str(error)
        pattern = OTHER_NAMES.get(name, re.escape(name))
        assert re.search(rf"\b(?:{pattern})\b", text), text
        # Not the words of Rust.
        assert not re.search(r"invalid type|Some\(|\bu32\b", text), text


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_loader(folder: Path, value: Any) -> None:
    parameters = inspect.signature(Loader).parameters.values()
    # The transforms of `decode` have tests of their own.
    for name in (each.name for each in parameters if each.kind is not each.VAR_KEYWORD and each.name != "decode"):
        arguments = {"dataset": folder, "batch_size": 8, name: value}
        check(name, lambda arguments=arguments: Loader(**arguments), (ShadeError,))


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_plan_and_daemon(value: Any) -> None:
    for kind in (Plan, Daemon):
        for field in fields(kind):
            more = {"sampler": "weighted"} if field.name == "weights" else {}
            check(field.name, lambda kind=kind, field=field, more=more: kind(**{field.name: value, **more}))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("types")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def test_methods(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 8, image_size=packed.SIDE, daemon=Daemon(job="methods")) as loader:
        batch = next(iter(loader))
        for value in ODD:
            check("epoch", lambda value=value: loader.set_epoch(value))
            check("score", lambda value=value: loader.report_validation(value))
            check("batch", lambda value=value: loader.report(value, [1.0]))
            check("losses", lambda value=value: loader.report(batch, value))
            check("state", lambda value=value: loader.load_state_dict(value))
            check("cache", lambda value=value: loader.resize_cache(value), (ShadeError,))
        whole = loader.state_dict()
        for name in whole:
            for value in ODD:
                if name in ("epoch", "batch"):
                    continue
                check("state", lambda name=name, value=value: loader.load_state_dict({**whole, name: value}), (ShadeError,))
            if name not in ("epoch", "batch"):
                with pytest.raises(ValueError, match="^state"):
                    loader.load_state_dict({key: value for key, value in whole.items() if key != name})


def test_numbers_of_other_types_are_numbers(dataset: packed.Packed) -> None:
    plan = Plan(sampler="echo", echo=np.float32(1.5), cover=np.int64(3), pace=np.False_, tail=np.str_("drop"))
    daemon = Daemon(job="numbers", workers=np.int32(2), timeout=torch.tensor(60), linger=np.float64(0.5))
    with Loader(
        dataset.path, np.int64(4), image_size=np.int64(packed.SIDE), seed=np.uint64(7), rank=torch.tensor(0),
        world_size=np.int8(1), plan=plan, daemon=daemon, train=np.True_, cache=np.int64(1 << 20),
    ) as loader:  # fmt: skip
        loader.set_epoch(np.int64(2))
        assert [type(value) for value in (loader.batch_size, loader.rank, loader.world_size)] == [int] * 3
        batch = next(iter(loader))
        assert (len(batch), batch.epoch, tuple(batch.images.shape[2:])) == (4, 2, (packed.SIDE, packed.SIDE))
    with Loader(dataset.path, 4, image_size=(np.int64(8), np.int16(9)), daemon=Daemon(job="pair")) as loader:
        assert tuple(next(iter(loader)).images.shape[2:]) == (8, 9)


@pytest.mark.parametrize(
    ("cache", "instead"), [(0.2, '"20%"'), ("20", '"20%"'), (20, '"20%"'), (1.0, '"100%"'), (np.float32(0.5), '"50%"'), ("0.2", "")]
)
def test_a_cache_of_a_few_bytes_is_a_percentage_that_lacks_its_sign(folder: Path, cache: Any, instead: str) -> None:
    with pytest.raises((TypeError, ValueError), match="^cache: ") as error:
        Loader(folder, 8, cache=cache)
    assert instead in str(error.value)


def test_what_a_loader_cannot_do_is_said_in_words(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 8, daemon=Daemon(job="words")) as loader:
        for call in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="make one in each process"):
                call(loader)
        # The copy that failed has closed nothing.
        assert sum(len(batch) for batch in loader) == len(dataset)
        with pytest.raises(TypeError, match="use of the Loader|shade_load.ImageFolder"):
            next(iter(DataLoader(loader)))
        arrived = pickle.loads(pickle.dumps(loader.dataset))
        assert (len(arrived), arrived.classes) == (61, ["ant", "bee", "cat"])
        with pytest.raises(ShadeError, match="set_epoch"):
            arrived.set_epoch(1)


def test_a_spawned_process_says_so_too(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 8, daemon=Daemon(job="spawn")) as loader, pytest.raises(TypeError, match="mp.spawn"):
        torch.multiprocessing.spawn(print, args=(loader,), nprocs=1)


def test_each_argument_of_a_data_loader_has_a_counterpart(folder: Path) -> None:
    here = set(inspect.signature(Loader).parameters) | {field.name for kind in (Plan, Daemon) for field in fields(kind)}
    theirs = set(inspect.signature(DataLoader).parameters) - here
    assert theirs <= set(COUNTERPARTS)
    page = (ROOT / "docs/from-imagefolder.md").read_text(encoding="utf-8")
    for name in sorted(COUNTERPARTS):
        assert re.search(rf"^\|.*`{name}[`=]", page, re.M), f"docs/from-imagefolder.md does not name {name}"
        with pytest.raises(TypeError, match=rf"^Loader: {name} is a DataLoader's: leave it out; ") as error:
            Loader(folder, 8, **{name: 1})
        assert COUNTERPARTS[name] in str(error.value)
    with pytest.raises(TypeError) as error:
        Loader(folder, 8, shuffle=True, num_workers=4, drop_last=True, pin_memory=True)
    for part in ("train=False", "Daemon(workers=...)", 'Plan(tail="drop")', 'device="cuda:0"'):
        assert part in str(error.value)


def test_all_names_are_there_without_pillow_and_torch() -> None:
    code = """
import sys
for name in ("PIL", "torch", "torchvision", "numpy"):
    sys.modules[name] = None
from shade_load import *
import io
print(ImageFolder.__name__, Loader.__name__)
try:
    import shade_load.image_folder
    shade_load.image_folder.pil_rgb(io.BytesIO(b""))
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "ImageFolder Loader"
    assert "PIL" in done.stdout.splitlines()[1]
    assert set(shade_load.__all__) <= set(dir(shade_load)) | {"ImageFolder"}
