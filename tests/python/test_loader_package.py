"""The package itself: exceptions, stubs, statistics, and life without torch."""

import ast
import inspect
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import files

import packed
import pytest
import shade_load
from shade_load import Loader, _native

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


def test_the_stubs_say_what_the_native_module_has() -> None:
    assert files(shade_load).joinpath("py.typed").is_file()
    stub = ast.parse(files(shade_load).joinpath("_native.pyi").read_text(encoding="utf-8"))
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    typed_dicts = {
        name for name, node in classes.items() if any(ast.unparse(base) == "TypedDict" for base in node.bases)
    }
    values = {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    public = {name for name in vars(_native) if not name.startswith("__")} | {"__version__"}
    assert (set(classes) - typed_dicts) | values | functions == public - {"_native"}
    for name in ("Session", "Batch", "RecordReader", "View"):
        said = {node.name for node in classes[name].body if isinstance(node, ast.FunctionDef)}
        inherited = {*dir(object), "__module__"}
        real = {member for member in vars(getattr(_native, name)) if member not in inherited}
        assert said - inherited == real, name


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
    missing = [name for name in inspect.signature(Loader).parameters if name not in (Loader.__doc__ or "")]
    assert missing == []


def test_stats_hold_the_figures(dataset: packed.Packed) -> None:
    began = time.monotonic()
    with Loader(
        dataset.path, BATCH, image_size=packed.SIDE, cache="100%", job="stats", store="latency=50ms"
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
            return Loader(dataset.path, BATCH, image_size=size, job="torchless")

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
