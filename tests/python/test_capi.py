"""The C interface: by ctypes, by programs in C and C++, and by libtorch beside Python's Loader."""

import ctypes
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packed import Packed, helper, image_folder, pack, program, with_fields
from shade_load import Loader, Plan
from shade_load.transforms import Grayscale, RandomHorizontalFlip, RandomResizedCrop, Resize

from studies.bucket import served

ROOT = Path(__file__).parents[2]
CAPI = ROOT / "trainer-bridge" / "capi"
LIBRARIES = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
OK, END, TIMEOUT, GONE, RECORD, USAGE, SYSTEM = range(7)
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


class BatchInfo(ctypes.Structure):
    """`shade_batch_info`."""

    _fields_ = [("size", c_size_t)] + [
        (name, c_uint32) for name in ("epoch", "index", "rows", "hits", "misses", "skipped", "substituted", "views")
    ]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    root = tmp_path_factory.mktemp("capi")
    image_folder(root / "images", "png")
    return pack(root / "images", root / "data.shade")


@pytest.fixture(autouse=True)
def daemon_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADE_LOAD_BIN", str(program("shade-load")))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Library and headers as users install them: under a relative name, with a blank, and moved afterwards."""
    folder = tmp_path_factory.mktemp("prefix")
    subprocess.run([CAPI / "install.sh", "-first name/of it", LIBRARIES.resolve()], cwd=folder, check=True)
    return (folder / "-first name" / "of it").rename(folder / "a prefix")


@pytest.fixture(scope="module")
def shade(prefix: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(prefix / "lib" / "libshade_client.so"))
    library.shade_error.restype = c_char_p
    library.shade_version.restype = c_char_p
    for name, types in {
        "shade_close": [c_void_p],
        "shade_batch_release": [c_void_p],
        "shade_free": [c_void_p],
        "shade_start_epoch": [c_void_p, c_uint32, c_uint32],
        "shade_next": [c_void_p, ctypes.c_double, POINTER(c_void_p)],
        "shade_batch_tensor": [c_void_p, c_char_p, POINTER(c_void_p)],
        "shade_batch_field": [c_void_p, c_char_p, c_uint32, POINTER(c_void_p), POINTER(c_size_t)],
        "shade_batch_describe": [c_void_p, POINTER(BatchInfo)],
        "shade_report": [c_void_p, c_void_p, POINTER(c_float), c_size_t],
        "shade_info": [c_void_p, POINTER(c_void_p)],
        "shade_stats": [c_void_p, POINTER(c_void_p)],
        "shade_payload": [c_void_p, POINTER(c_void_p), POINTER(c_size_t)],
    }.items():
        getattr(library, name).argtypes = types
    return library


def opened(shade: ctypes.CDLL, dataset: Path | str, **options: object) -> c_void_p:
    session = c_void_p()
    code = shade.shade_open(str(dataset).encode(), json.dumps(options).encode(), byref(session))
    assert code == OK, shade.shade_error()
    return session


def facts(shade: ctypes.CDLL, call: str, session: c_void_p) -> dict:
    text = c_void_p()
    assert getattr(shade, call)(session, byref(text)) == OK, shade.shade_error()
    assert text.value is not None
    value = json.loads(ctypes.string_at(text.value))
    shade.shade_free(text)
    return value


def column(shade: ctypes.CDLL, batch: c_void_p, name: str) -> np.ndarray:
    """A column over the batch's memory, by DLPack."""
    managed = c_void_p()
    assert shade.shade_batch_tensor(batch, name.encode(), byref(managed)) == OK, shade.shade_error()
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
    # torch takes the tensor over; numpy wants an object.
    return torch.from_dlpack(new(managed, b"dltensor", None)).numpy()


def batches(shade: ctypes.CDLL, session: c_void_p) -> Iterator[c_void_p]:
    batch = c_void_p()
    while (code := shade.shade_next(session, 60.0, byref(batch))) == OK:
        yield batch
        shade.shade_batch_release(batch)
    assert code == END, shade.shade_error()


def test_batches_are_those_of_python(shade: ctypes.CDLL, packed: Packed) -> None:
    session = opened(shade, packed.path, batch_size=8, seed=3, image_size=12)
    info = facts(shade, "shade_info", session)
    assert info["samples"] == len(packed) and info["classes"] == ["ant", "bee", "cat"]
    assert shade.shade_version().decode() and shade.shade_abi() == 1
    assert shade.shade_start_epoch(session, 2, 0) == OK
    kept = []
    with Loader(packed.path, 8, seed=3, image_size=12) as loader:
        assert info["batches_per_epoch"] == len(loader)
        loader.set_epoch(2)
        for batch, expected in zip(batches(shade, session), loader, strict=True):
            ids, labels, images = (column(shade, batch, name) for name in ("ids", "labels", "images"))
            assert ids.tolist() == expected.ids.tolist() and labels.tolist() == expected.labels.tolist()
            assert np.array_equal(images, expected.images.numpy())
            about = BatchInfo(size=ctypes.sizeof(BatchInfo))
            assert shade.shade_batch_describe(batch, byref(about)) == OK
            assert (about.epoch, about.index, about.rows) == (2, len(kept), len(ids))
            losses = (c_float * len(ids))(*range(len(ids)))
            assert shade.shade_report(session, batch, losses, len(ids)) == OK
            kept.append((ids, ids.copy()))
    payload, length = c_void_p(), c_size_t()
    assert shade.shade_payload(session, byref(payload), byref(length)) == OK and length.value > 0
    shade.shade_close(session)
    # Tensors outlive batch and session.
    assert all(np.array_equal(ids, copy) for ids, copy in kept)


def test_a_dataset_has_a_path_or_an_address(
    shade: ctypes.CDLL, packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def info(dataset: Path | str) -> dict:
        session = opened(shade, dataset, batch_size=8)
        told = facts(shade, "shade_info", session)
        assert shade.shade_start_epoch(session, 0, 0) == OK
        ids = [column(shade, batch, "ids").tolist() for batch in batches(shade, session)]
        shade.shade_close(session)
        return {"ids": ids, **{name: told[name] for name in ("samples", "classes", "content_id")}}

    expected = info(packed.path)
    assert info(packed.path / "dataset.shade") == expected
    shutil.copytree(packed.path, tmp_path / "root/photos/train")
    with served(helper("shade-test-bucket"), tmp_path / "root") as server:
        for name, value in server.environment(tmp_path / "cache", "s3").items():
            monkeypatch.setenv(name, value)
        assert info("s3://photos/train") == expected


def test_a_batch_of_another_session_is_not_reported(shade: ctypes.CDLL, packed: Packed) -> None:
    options = {"batch_size": 8, "plan": {"sampler": "pads"}}
    training = opened(shade, packed.path, **options)
    others = [
        opened(shade, packed.path, **options, daemon={"job": "another"}),
        opened(shade, packed.path, batch_size=8, train=False),
        opened(shade, packed.path, batch_size=8, image_size=12, daemon={"job": "decoded"}),
    ]
    losses = (c_float * 8)(*range(8))
    for session in (training, *others):
        assert shade.shade_start_epoch(session, 0, 0) == OK
        batch = c_void_p()
        assert shade.shade_next(session, 60.0, byref(batch)) == OK
        about = BatchInfo(size=ctypes.sizeof(BatchInfo))
        assert shade.shade_batch_describe(batch, byref(about)) == OK
        assert (about.epoch, about.index, about.rows) == (0, 0, 8)
        code = shade.shade_report(training, batch, losses, 8)
        assert code == (OK if session is training else USAGE)
        if session is not training:
            assert b"of another session" in shade.shade_error()
            shade.shade_close(session)
            assert shade.shade_report(training, batch, losses, 8) == USAGE
        shade.shade_batch_release(batch)
    total = facts(shade, "shade_stats", training)["total"]
    assert (total["reported"], total["unmatched_reports"]) == (8, 0)
    shade.shade_close(training)


def test_views_crops_and_flips_are_those_of_python(shade: ctypes.CDLL, packed: Packed) -> None:
    part: dict[str, Any] = {"RandomResizedCrop": {"size": [8, 9]}}
    views = [[{"Resize": {"size": [12, 10]}}, {"Grayscale": {}}], [part, {"RandomHorizontalFlip": {}}]]
    session = opened(shade, packed.path, batch_size=8, seed=3, decode=views)
    assert shade.shade_start_epoch(session, 0, 0) == OK
    decode = [[Resize((12, 10)), Grayscale()], [RandomResizedCrop((8, 9)), RandomHorizontalFlip()]]
    with Loader(packed.path, 8, seed=3, decode=decode) as loader:
        for batch, expected in zip(batches(shade, session), loader, strict=True):
            about = BatchInfo(size=ctypes.sizeof(BatchInfo))
            assert shade.shade_batch_describe(batch, byref(about)) == OK and about.views == 2
            for view, suffix in enumerate(["", ".1"]):
                for name in ("images", "crops", "flipped"):
                    found = column(shade, batch, name + suffix)
                    assert np.array_equal(found, expected[name][view].numpy()), (name, view)
            assert column(shade, batch, "images").shape[1:] == (1, 12, 10)
            managed = c_void_p()
            for missing in (b"images.2", b"images.x", b"labels.1", b"heights"):
                assert shade.shade_batch_tensor(batch, missing, byref(managed)) == USAGE, missing
    shade.shade_close(session)


def test_extra_fields_are_those_of_python(shade: ctypes.CDLL, packed: Packed, tmp_path: Path) -> None:
    def of(sample: int) -> dict[str, bytes]:
        fields = {"vector": np.full(3, sample, np.float32).tobytes()}
        return fields | ({"caption": b"c" * sample} if sample % 4 else {})

    dataset = with_fields(packed, tmp_path, of)
    fields = {"caption": "text", "vector": "float32[3]"}
    session = opened(shade, dataset.path, batch_size=8, seed=3, fields=fields)
    assert shade.shade_start_epoch(session, 0, 0) == OK
    text, length, managed = c_void_p(), c_size_t(), c_void_p()
    with Loader(dataset.path, 8, seed=3, fields=fields) as loader:
        for batch, expected in zip(batches(shade, session), loader, strict=True):
            assert np.array_equal(column(shade, batch, "fields.vector"), expected["vector"].numpy())
            for row, caption in enumerate(expected["caption"]):
                assert shade.shade_batch_field(batch, b"caption", row, byref(text), byref(length)) == OK
                found = ctypes.string_at(text.value, length.value).decode() if text.value else None
                assert found == caption
            for name, row in ((b"caption", len(expected)), (b"vector", 0), (b"nothing", 0)):
                assert shade.shade_batch_field(batch, name, row, byref(text), byref(length)) == USAGE, name
            for name in (b"fields.caption", b"fields.nothing"):
                assert shade.shade_batch_tensor(batch, name, byref(managed)) == USAGE, name
    shade.shade_close(session)


def test_a_view_that_a_field_does_not_have_is_refused(shade: ctypes.CDLL, packed: Packed, tmp_path: Path) -> None:
    dataset = with_fields(packed, tmp_path, lambda sample: {"box": np.float32([1, 1, 3, 3]).tobytes()})
    views = [[{"Resize": {"size": [12, 10]}}], [{"Resize": {"size": [8, 9]}}]]
    session = opened(shade, dataset.path, batch_size=8, decode=views, fields={"box": "boxes[xyxy]"})
    assert shade.shade_start_epoch(session, 0, 0) == OK
    place, length = c_void_p(), c_size_t()
    for batch in batches(shade, session):
        # Not as a sample without boxes.
        for name, status in ((b"box", OK), (b"box.1", OK), (b"box.2", USAGE), (b"box.255", USAGE), (b"box.256", USAGE)):
            assert shade.shade_batch_field(batch, name, 0, byref(place), byref(length)) == status, name
    shade.shade_close(session)


def test_floats_are_those_of_python(shade: ctypes.CDLL, packed: Packed) -> None:
    normalize = {"mean": [0.485, 0.456, 0.406], "std": [0.25]}
    session = opened(shade, packed.path, batch_size=8, seed=3, image_size=12, dtype="float16", normalize=normalize)
    assert shade.shade_start_epoch(session, 0, 0) == OK
    options: dict[str, Any] = {"dtype": "float16", "normalize": ((0.485, 0.456, 0.406), (0.25,))}
    with Loader(packed.path, 8, seed=3, image_size=12, **options) as loader:
        for batch, expected in zip(batches(shade, session), loader, strict=True):
            found = column(shade, batch, "images")
            assert found.dtype == np.float16 and np.array_equal(found, expected.images.numpy())
    shade.shade_close(session)


def ids_of_epoch(shade: ctypes.CDLL, session: c_void_p) -> list[list[int]]:
    assert shade.shade_start_epoch(session, 0, 0) == OK
    return [column(shade, batch, "ids").tolist() for batch in batches(shade, session)]


def test_weights_and_indices_are_those_of_python(shade: ctypes.CDLL, packed: Packed) -> None:
    weights = [float(1 + sample % 3) for sample in range(len(packed))]
    indices = list(range(0, len(packed), 2))
    plan = {"sampler": "weighted", "weights": weights, "indices": indices}
    session = opened(shade, packed.path, batch_size=4, seed=3, plan=plan)
    found = ids_of_epoch(shade, session)
    shade.shade_close(session)
    with Loader(packed.path, 4, seed=3, plan=Plan(**plan)) as loader:
        assert found == [batch.ids.tolist() for batch in loader]
    assert {sample for batch in found for sample in batch} <= set(indices)


def test_ranks_of_several_nodes_share_one_plan(shade: ctypes.CDLL, packed: Packed, tmp_path: Path) -> None:
    # As on two machines: a daemon for each rank. The samples of both are one epoch.
    plan = {"sampler": "pads", "tail": "pad"}
    ids = []
    for rank in range(2):
        options = {"rank": rank, "world_size": 2, "ranks_here": 1, "daemon": {"socket": str(tmp_path / f"node-{rank}")}}
        session = opened(shade, packed.path, batch_size=4, plan=plan, **options)
        ids.append({sample for batch in ids_of_epoch(shade, session) for sample in batch})
        stats = facts(shade, "shade_stats", session)
        assert (stats["jobs"][0]["ranks_here"], stats["jobs"][0]["world_size"]) == (1, 2)
        shade.shade_close(session)
    assert ids[0] | ids[1] == set(range(len(packed))) and not ids[0] & ids[1]


def test_a_killed_daemon_is_a_code(shade: ctypes.CDLL, packed: Packed, tmp_path: Path) -> None:
    # A ring with room for a part of the epoch: the daemon cannot publish it all before it dies.
    daemon = {"socket": str(tmp_path / "socket"), "ring": "64KiB", "survive": False}
    session = opened(shade, packed.path, batch_size=2, daemon=daemon)
    pid = facts(shade, "shade_info", session)["daemon_pid"]
    assert shade.shade_start_epoch(session, 0, 0) == OK
    batch = c_void_p()
    assert shade.shade_next(session, 60.0, byref(batch)) == OK
    os.kill(pid, signal.SIGKILL)
    shade.shade_batch_release(batch)
    while (code := shade.shade_next(session, 60.0, byref(batch))) == OK:
        shade.shade_batch_release(batch)
    text = shade.shade_error().decode()
    shade.shade_close(session)
    assert code == GONE and str(pid) in text, (code, text)


def test_a_killed_daemon_is_replaced(
    shade: ctypes.CDLL, packed: Packed, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    daemon = {"socket": str(tmp_path / "socket"), "ring": "64KiB", "linger": 0.1}
    session = opened(shade, packed.path, batch_size=2, daemon=daemon)
    undisturbed = ids_of_epoch(shade, session)
    assert shade.shade_start_epoch(session, 0, 0) == OK
    os.kill(facts(shade, "shade_info", session)["daemon_pid"], signal.SIGKILL)
    assert ids_of_epoch(shade, session) == undisturbed
    assert facts(shade, "shade_stats", session)["successors"] == 1
    assert capfd.readouterr().err.count("has taken its place") == 1
    os.kill(facts(shade, "shade_info", session)["daemon_pid"], signal.SIGKILL)
    assert facts(shade, "shade_stats", session)["successors"] == 2
    assert capfd.readouterr().err.count("has taken its place") == 1
    pid = facts(shade, "shade_info", session)["daemon_pid"]
    os.kill(pid, signal.SIGKILL)
    # Replaced while nothing is asked of it.
    while facts(shade, "shade_info", session)["daemon_pid"] == pid:
        time.sleep(0.001)
    shade.shade_close(session)
    assert capfd.readouterr().err.count("has taken its place") == 1


def test_mistakes_are_codes_with_their_reason(
    shade: ctypes.CDLL, packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = c_void_p()
    path = str(packed.path).encode()
    assert shade.shade_open(path, b'{"batch_size": 8, "plan": {"sampler": "best"}}', byref(session)) == USAGE
    assert b"sampler" in shade.shade_error()
    assert shade.shade_open(str(tmp_path).encode(), b'{"batch_size": 8}', byref(session)) == USAGE
    monkeypatch.setenv("SHADE_LOAD_BIN", str(tmp_path / "no-program"))
    options = json.dumps({"batch_size": 8, "daemon": {"socket": str(tmp_path / "socket")}}).encode()
    assert shade.shade_open(path, options, byref(session)) == GONE
    assert b"no-program" in shade.shade_error() and not session
    missing = {"shade_start_epoch": (None, 0, 0), "shade_stats": (None, None), "shade_next": (None, 1.0, None)}
    for call, arguments in missing.items():
        assert getattr(shade, call)(*arguments) == USAGE
    shade.shade_close(None)
    shade.shade_batch_release(None)


def compiled(tmp_path: Path, prefix: Path, compiler: list[str], source: Path, *options: str) -> Path:
    out = tmp_path / "program"
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
    command = [*compiler, str(source), "-o", str(out), *flags, "-lshade_client", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_the_header_is_plain_c_and_c_plus_plus(tmp_path: Path, prefix: Path) -> None:
    text = "#include <shade_client.h>\n#include <shade_client.h>\nint main(void) { return shade_abi() == 1 ? 0 : 1; }\n"
    for extension, compiler in (("c", ["cc", "-std=c11"]), ("cpp", ["c++", "-std=c++17"])):
        source = tmp_path / f"program.{extension}"
        source.write_text(text)
        subprocess.run([compiled(tmp_path, prefix, compiler + STRICT, source)], check=True)


@pytest.mark.parametrize("compiler", [["cc", "-std=c11"], ["c++", "-std=c++17", "-x", "c++"]], ids=["C11", "C++17"])
def test_a_program_counts_every_sample_once(
    tmp_path: Path, prefix: Path, packed: Packed, compiler: list[str]
) -> None:
    """Under AddressSanitizer, which also fails if anything is not given back."""
    source = CAPI / "tests" / "every_sample_once.c"
    checked = [*compiler, *STRICT, "-g", "-fsanitize=address,undefined"]
    built = compiled(tmp_path, prefix, checked, source)
    options = {"batch_size": 8, "plan": {"sampler": "pads"}}
    done = subprocess.run(
        [built, packed.path, json.dumps(options)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    info, *rows = done.stdout.splitlines()
    assert json.loads(info)["samples"] == len(packed)
    records = (file.read_bytes() for file in packed.files)
    assert sorted(tuple(map(int, row.split())) for row in rows) == [
        (sample, len(record), sum(record)) for sample, record in enumerate(records)
    ]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_valgrind_finds_nothing(tmp_path: Path, prefix: Path, packed: Packed) -> None:
    built = compiled(tmp_path, prefix, ["cc", "-std=c11", "-g"], CAPI / "tests" / "every_sample_once.c")
    # The thread that hears the daemon's last word still lives: its stack is "possibly lost".
    checked = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]
    command = [*checked, built, packed.path, '{"batch_size": 8}']
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1 + len(packed), done.stderr


def test_libtorch_trains_on_the_batches_of_python(tmp_path: Path, prefix: Path, packed: Packed) -> None:
    from torch.utils.cpp_extension import include_paths, library_paths

    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    includes = [part for path in include_paths() for part in ("-isystem", path)]
    libraries = [part for path in library_paths() for part in (f"-L{path}", f"-Wl,-rpath,{path}")]
    # libtorch_cpu needs libraries of the wheel that only Python knows; they are found when it runs.
    torch_libraries = ["-Wl,--unresolved-symbols=ignore-in-shared-libs", "-ltorch_cpu", "-lc10"]
    source = ROOT / "examples" / "libtorch" / "train.cpp"
    compiler = ["c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", abi, *includes]
    built = compiled(tmp_path, prefix, compiler, source, *libraries, *torch_libraries)
    done = subprocess.run([built, packed.path, "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *rows, first, second = done.stdout.splitlines()
    transforms = [RandomResizedCrop(16), RandomHorizontalFlip()]
    with Loader(packed.path, 16, seed=7, preset="clairvoyant", decode=transforms) as loader:
        expected = [
            f"{id} {label} {int(image.sum())}"
            for batch in loader
            for id, label, image in zip(batch.ids.tolist(), batch.labels.tolist(), batch.images, strict=True)
        ]
    assert rows == expected and len(rows) == len(packed)
    losses = [float(line.rpartition(" ")[2]) for line in (first, second)]
    assert losses[1] < losses[0], done.stdout


def test_the_page_builds_against_an_installed_prefix(tmp_path: Path, prefix: Path, packed: Packed) -> None:
    """The program and the CMakeLists.txt of docs/cpp.md, by CMake and by pkg-config."""
    source = tmp_path / "source"
    source.mkdir()
    page = (ROOT / "docs" / "cpp.md").read_text(encoding="utf-8")
    program_text, cmake_text = page.split("```text\n")[1:3]
    (source / "main.c").write_text(program_text.split("```")[0])
    # libtorch's own package demands a CUDA toolkit where its wheel has CUDA: a stand-in.
    (source / "TorchConfig.cmake").write_text('set(Torch_FOUND TRUE)\nset(TORCH_LIBRARIES "m")\n')
    found = "find_package(shade_client 0.1 REQUIRED)\n"
    cmake_text = cmake_text.split("```")[0].replace(found, f"find_package(Torch REQUIRED)\n{found}")
    cmake_text += "add_executable(with_torch main.c)\ntarget_link_libraries(with_torch shade::torch)\n"
    (source / "CMakeLists.txt").write_text(cmake_text)
    places = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DTorch_DIR={source}"]
    configure = ["cmake", "-S", source, "-B", source / "build", *places]
    for command in (configure, ["cmake", "--build", source / "build"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    command = ["pkg-config", "--static", "--cflags", "--libs", "shade_client"]
    flags = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    flags = shlex.split(flags)
    alone = [f"{prefix}/lib/libshade_client.a" if flag == "-lshade_client" else flag for flag in flags]
    for name, libraries in (("shared", [*flags, f"-Wl,-rpath,{prefix}/lib"]), ("static", alone)):
        subprocess.run(["cc", *STRICT, source / "main.c", "-o", source / name, *libraries], check=True)
    for wanted, fits in {"": True, "0": False, "0.0": False, "0.1": True, "0.1.0": True, "0.2": False, "1": False}.items():
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\nproject(versions C)\n"
            f"find_package(shade_client {wanted})\nmessage(STATUS \"found: ${{shade_client_FOUND}}\")\n"
        )
        command = ["cmake", "-S", source, "-B", tmp_path / "versions", places[0]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"found: {int(fits)}" in done.stdout, (wanted, done.stdout, done.stderr)
    expected = sum(file.stat().st_size for file in packed.files)
    for built in (source / "build" / "program", source / "shared", source / "static"):
        done = subprocess.run([built, packed.path], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and int(done.stdout) == expected, done.stderr
