"""The package itself: exceptions, stubs, statistics, and life without torch."""

import ast
import inspect
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import packed
import pytest
import shade_load
from shade_load import Daemon, Loader, _native, launch

BATCH = 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("package")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def test_all_exceptions_are_shade_errors() -> None:
    assert issubclass(shade_load.ShadeError, RuntimeError)
    for kind in (shade_load.DaemonGone, shade_load.RecordError, shade_load.LoaderTimeout):
        assert issubclass(kind, shade_load.ShadeError)
        assert kind.__module__ == "shade_load"


def test_a_debug_build_warns_at_import() -> None:
    command = [sys.executable, "-W", "always", "-c", "import shade_load"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ("RuntimeWarning" in done.stderr) == _native.DEBUG_BUILD, done.stderr


class TestStubs:
    """What `_native.pyi` says is what the native module has."""

    STUB = ast.parse(files(shade_load).joinpath("_native.pyi").read_text(encoding="utf-8"))
    CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
    DICTS = {name for name, node in CLASSES.items() if "TypedDict" in map(ast.unparse, node.bases)}
    # Classes with members of their own: all but dictionaries and exceptions.
    TYPES = sorted(name for name, node in CLASSES.items() if not node.bases)

    def test_it_comes_with_the_package(self) -> None:
        assert files(shade_load).joinpath("py.typed").is_file()

    def test_the_module_has_these_names(self) -> None:
        values = {node.target.id for node in self.STUB.body if isinstance(node, ast.AnnAssign)}
        functions = {node.name for node in self.STUB.body if isinstance(node, ast.FunctionDef)}
        public = {name for name in vars(_native) if not name.startswith("__")} | {"__version__"}
        assert (set(self.CLASSES) - self.DICTS) | values | functions == public - {"_native"}

    @pytest.mark.parametrize("name", TYPES)
    def test_a_class_has_these_members(self, name: str) -> None:
        said = {node.name for node in self.CLASSES[name].body if isinstance(node, ast.FunctionDef)}
        inherited = {*dir(object), "__module__"}
        real = {member for member in vars(getattr(_native, name)) if member not in inherited}
        assert said - inherited == real

    @pytest.mark.parametrize("name", TYPES)
    def test_members_are_of_this_kind_and_take_these_arguments(self, name: str) -> None:
        for node in self.CLASSES[name].body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
                continue
            member = vars(getattr(_native, name))[node.name]
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            assert ("property" in decorators) == inspect.isgetsetdescriptor(member), node.name
            assert ("staticmethod" in decorators) == isinstance(member, staticmethod), node.name
            if "property" not in decorators:
                said = [argument.arg for argument in node.args.args]
                assert said == list(inspect.signature(getattr(member, "__func__", member)).parameters), node.name

    def test_dictionaries_have_the_keys_that_the_module_takes(self, dataset: packed.Packed) -> None:
        said = {
            name: {node.target.id for node in self.CLASSES[name].body if isinstance(node, ast.AnnAssign)}
            for name in self.DICTS
        }
        with Loader(dataset.path, BATCH, image_size=packed.SIDE, daemon=Daemon(job="stubs")) as loader:
            job = dict(loader._job)
        document = json.dumps(job)
        daemon = {"socket": None, "binary": "none", "settings": "{}", "timeout_seconds": 1.0, "or_free_name": False}
        daemon |= {"survive": True, "deaths_max": 20}
        assert said == {"Daemon": set(daemon)}

        # The rank is looked at once both are understood, and then nothing is connected.
        with pytest.raises(ValueError, match="rank: got 1"):
            _native.Session.connect("/", "none", 1, document, daemon)

        def misses(name: str, daemon: dict[str, Any]) -> None:
            with pytest.raises((KeyError, TypeError)) as caught:
                _native.Session.connect("/", "none", 1, document, daemon)
            causes: list[BaseException | None] = [caught.value]
            while causes[-1] is not None:
                causes.append(causes[-1].__cause__)
            assert f"'{name}'" in map(str, causes), causes

        with pytest.raises(ValueError, match="unknown field `colour`"):
            _native.Session.connect("/", "none", 1, json.dumps({**job, "colour": 1}), daemon)
        for name in daemon:
            misses(name, without(daemon, name))


def without(dictionary: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in dictionary.items() if key != name}


def test_without_a_daemons_program_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SHADE_LOAD_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    # As in a package that was installed by pip from a checkout: without programs.
    monkeypatch.setattr(launch, "_installed", lambda name: [])
    with pytest.raises(shade_load.ShadeError, match="cargo install --locked --path loader/daemon.*set SHADE_LOAD_BIN"):
        shade_load.find_daemon()
    program = tmp_path / "shade-load"
    program.write_text("no program")
    monkeypatch.setenv("SHADE_LOAD_BIN", str(program))
    with pytest.raises(shade_load.ShadeError, match=f"SHADE_LOAD_BIN names {program}, which cannot be run"):
        shade_load.find_daemon()
    program.chmod(0o755)
    assert shade_load.find_daemon() == program
    monkeypatch.delenv("SHADE_LOAD_BIN")
    assert shade_load.find_daemon() == program, "the one on PATH"


def test_every_public_name_is_documented() -> None:
    for name in shade_load.__all__:
        value = getattr(shade_load, name)
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue
        assert inspect.getdoc(value), name
    for kind in (Loader, shade_load.Batch):
        for name, member in vars(kind).items():
            if not name.startswith("_"):
                assert inspect.getdoc(member), f"{kind.__name__}.{name}"
    parameters = inspect.signature(Loader).parameters.values()
    names = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
    documented = {Loader: names} | {
        kind: {field.name for field in fields(kind)} for kind in (shade_load.Plan, shade_load.Daemon)
    }
    for kind, names in documented.items():
        missing = [name for name in names if not re.search(rf"^ +(\w+, )?{name}[:,]", kind.__doc__ or "", re.MULTILINE)]
        assert missing == [], kind


def test_stats_hold_the_figures(dataset: packed.Packed) -> None:
    began = time.monotonic()
    with Loader(
        dataset.path, BATCH, image_size=packed.SIDE, cache="100%", daemon=Daemon(job="stats", store="latency=500ms")
    ) as loader:
        assert loader.stats()["stall_seconds"] == 0.0
        for epoch in range(2):
            for batch in loader:
                loader.report(batch, [1.0] * len(batch))
            stats = loader.stats()
            assert stats["epoch"]["epoch"] == epoch
            assert stats["epoch"]["accesses"] == len(dataset)
            counts = stats["epoch"]
            assert counts["hits"] + counts["prefetched"] + counts["misses"] == len(dataset)
        assert stats["total"]["accesses"] == 2 * len(dataset)
        assert stats["total"]["bytes_read"] > 0
        assert stats["pid"] == loader.daemon_pid
        assert 0 < stats["epoch"]["distinct_share"] <= 1
        assert "simulat" in stats["engine"].lower(), "a simulated store must be called one"
        assert 0.005 < stats["stall_seconds"] < time.monotonic() - began


class TestWithoutTorch:
    """Where torch cannot be imported, columns are views."""

    @pytest.fixture
    def open_loader(
        self, monkeypatch: pytest.MonkeyPatch, dataset: packed.Packed
    ) -> Callable[[int | None], Loader]:
        monkeypatch.setitem(sys.modules, "torch", None)

        def opened(size: int | None) -> Loader:
            return Loader(dataset.path, BATCH, image_size=size, daemon=Daemon(job="torchless"))

        return opened

    def test_columns_are_views(
        self, dataset: packed.Packed, open_loader: Callable[[int | None], Loader]
    ) -> None:
        with open_loader(packed.SIDE) as loader:
            batch = next(iter(loader))
            assert isinstance(batch.images, _native.View)
            assert batch.images.shape == (BATCH, 3, packed.SIDE, packed.SIDE)
            assert (batch.images.dtype, batch.ids.dtype, batch.weights.dtype) == ("uint8", "int64", "float32")
            assert len(batch.images) == len(batch.labels) == BATCH
            ids = batch.ids.tolist()
            assert bytes(batch.images) == b"".join(dataset.pixels(sample) for sample in ids)
            assert batch.labels.tolist() == [dataset.labels[sample] for sample in ids]
            assert batch.weights.tolist() == [1.0] * BATCH
            assert batch.flags.tolist() == [0] * BATCH
            assert batch.padding == [False] * BATCH
            assert "uint8" in repr(batch.images)
            loader.report(batch, [0.5] * BATCH)

    def test_records_are_views(
        self, dataset: packed.Packed, open_loader: Callable[[int | None], Loader]
    ) -> None:
        with open_loader(None) as loader:
            batch = next(iter(loader))
            for sample, record in zip(batch.ids.tolist(), batch.records, strict=True):
                content = dataset.files[sample].read_bytes()
                assert bytes(record) == content
                assert record.shape == (len(content),)
                assert record.tolist() == list(content)

    def test_importing_the_package_imports_no_torch(self) -> None:
        code = "import sys, shade_load; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
