"""The wheel: what is in it, which systems it names, and a whole life in an empty environment without PyTorch.

Programs in C are built with what it brings.
"""

import email
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import packed
import pytest
from shade_load import _native

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "trainer-bridge/py/python/shade_load"
BATCH = 8
C_INTERFACE = {
    "include/shade_client.h",
    "include/shade_torch.hpp",
    "lib/cmake/shade_client/shade_client-config.cmake",
    "lib/cmake/shade_client/shade_client-config-version.cmake",
    "lib/libshade_client.so",
    "lib/libshade_client.so.1",
    "lib/pkgconfig/shade_client.pc",
}
# Two batches as bytes, by a daemon that the Loader finds without PATH.
TRAINS = f"""
import json, sys
from shade_load import Daemon, Loader, find_daemon

with Loader(sys.argv[1], {BATCH}, image_size={packed.SIDE}, daemon=Daemon(linger=600)) as loader:
    batches = [(batch.ids.tolist(), batch.labels.tolist(), bytes(batch.images).hex()) for batch, _ in zip(loader, range(2))]
print(json.dumps([str(find_daemon()), batches]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by what `make wheel` runs, of what is compiled already."""
    folder = tmp_path_factory.mktemp("wheel")
    release = [] if _native.DEBUG_BUILD else ["--release"]
    command = [sys.executable, ROOT / "setup/wheel.py", folder, *release]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs' folder of an environment that has this wheel and nothing else, not even pip."""
    environment = tmp_path_factory.mktemp("empty") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    before = everything(environment)
    pip(environment, "install", "--no-index", wheel)
    yield environment / "bin"
    pip(environment, "uninstall", "--yes", "shade-load")
    assert everything(environment) == before, "left: what uninstalling leaves"


@pytest.fixture
def without_shade(tmp_path: Path) -> Path:
    """The programs' folder of an environment that has what the tests' has, PyTorch too, except shade."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        if not found.name.startswith("shade_load"):
            (packages / found.name).symlink_to(found)
    return environment / "bin"


def pip(environment: Path, *arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--python", environment / "bin/python", "--quiet", *arguments]
    subprocess.run(command, check=True)


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def run(*command: object, **variables: object) -> str:
    """What a command prints that finds no program of ours on PATH."""
    environment = {"PATH": "/usr/bin:/bin", **{name: str(value) for name, value in variables.items()}}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_has_the_package_the_programs_and_the_licences(wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        licences = f"shade_load-{version}.dist-info/licenses/licenses"
        notices = archive.read(f"{licences}/THIRD-PARTY.txt").decode()
        assert archive.read(f"{licences}/LICENSE") == (ROOT / "LICENSE").read_bytes()
        (bill,) = (archive.read(name).decode() for name in entries if "/sboms/" in name)
    files = [file for file in PACKAGE.rglob("*") if file.suffix in (".py", ".pyi", ".typed")]
    sources = {str(file.relative_to(PACKAGE.parent)) for file in files}
    programs = {f"shade_load-{version}.data/scripts/{name}" for name in ("shade-load", "shade-pack")}
    others = {name for name in entries if ".dist-info/" not in name}
    c_interface = {f"shade_load/capi/{name}" for name in C_INTERFACE}
    assert others == sources | programs | c_interface | {"shade_load/_native.abi3.so"}
    assert all(entries[name].external_attr >> 16 & 0o111 == 0o111 for name in programs), "programs may be executed"
    parts = {part["name"] for part in json.loads(bill)["components"]}
    assert {"pyo3", "ratatui", "fast_image_resize"} <= parts, "of module, daemon and packer"
    assert str(ROOT) not in bill
    # C and assembly, beside the crates.
    for linked in ("libjpeg-turbo", "Independent JPEG Group", "Zstandard", "BoringSSL", "pyo3 0."):
        assert linked in notices, linked


def test_an_index_shows_the_readme(wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.message_from_bytes(archive.read(f"shade_load-{version}.dist-info/METADATA"))
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    page = (ROOT / "trainer-bridge/py/page.markdown").read_text(encoding="utf-8")
    assert metadata.get_payload(decode=True).decode().strip() == page.strip()


def test_it_runs_where_its_name_says(wheel: Path) -> None:
    interpreter, abi, platform = wheel.stem.split("-")[2:]
    machine = sysconfig.get_platform().removeprefix("linux-").replace("-", "_")
    named = re.fullmatch(rf"manylinux_2_(\d+)_{machine}", platform)
    assert (interpreter, abi) == ("cp311", "abi3") and named, wheel.name
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=True
    ).stdout
    # That of the module and of both programs.
    needed = re.search(r'platform tag:\s+"manylinux_2_(\d+)_', shown)
    assert needed and int(needed[1]) <= int(named[1]), shown


def test_it_packs_and_trains_in_an_empty_environment(
    installed: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = wheel.name.split("-")[1]
    for name in ("shade-pack", "shade-load"):
        assert run(installed / name, "--version") == f"{name} {version}\n"
    monkeypatch.setenv("SHADE_PACK_BIN", str(installed / "shade-pack"))
    packed.image_folder(tmp_path / "photos", "png")
    dataset = packed.pack(tmp_path / "photos", tmp_path / "photos.shade")
    try:
        found, batches = json.loads(run(installed / "python", "-I", "-W", "ignore", "-c", TRAINS, dataset.path))
    finally:
        stopped = subprocess.run([installed / "shade-load", "stop", dataset.path], check=False)
    assert stopped.returncode == 0, "its daemon was there"
    assert found == str(installed / "shade-load")
    assert len(batches) == 2
    for ids, labels, images in batches:
        assert len(ids) == BATCH
        assert labels == [dataset.labels[sample] for sample in ids]
        assert bytes.fromhex(images) == b"".join(dataset.pixels(sample) for sample in ids)


def test_c_programs_are_built_with_what_it_brings(installed: Path, tmp_path: Path) -> None:
    """The program and the CMakeLists.txt of docs/cpp.md, by CMake and by pkg-config."""
    page = (ROOT / "docs/cpp.md").read_text(encoding="utf-8")
    program_text, cmake_text = (part.split("```")[0] for part in page.split("```text\n")[1:3])
    (tmp_path / "main.c").write_text(program_text)
    (tmp_path / "CMakeLists.txt").write_text(cmake_text)
    asked = "import shade_load; print(shade_load.cmake_prefix_path)"
    prefix = run(installed / "python", "-I", "-W", "ignore", "-c", asked).strip()
    assert Path(prefix).is_relative_to(installed.parent)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    command = ["pkg-config", "--with-path", f"{prefix}/lib/pkgconfig", "--cflags", "--libs", "shade_client"]
    flags = run(*command).split()
    run("cc", tmp_path / "main.c", "-o", tmp_path / "by-pkg-config", *flags, f"-Wl,-rpath,{prefix}/lib")
    packed.image_folder(tmp_path / "photos", "png")
    dataset = packed.pack(tmp_path / "photos", tmp_path / "photos.shade")
    expected = sum(file.stat().st_size for file in dataset.files)
    for built in (tmp_path / "build/program", tmp_path / "by-pkg-config"):
        assert int(run(built, dataset.path, SHADE_LOAD_BIN=installed / "shade-load")) == expected


def test_its_program_is_found_in_a_folder_of_packages_alone(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", folder, wheel]
    subprocess.run(command, check=True)
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import shade_load; print(shade_load.find_daemon())"
    assert run(sys.executable, "-I", "-S", "-W", "ignore", "-c", code) == f"{folder}/bin/shade-load\n"


def test_the_tutorial_runs_from_its_first_command(wheel: Path, without_shade: Path, tmp_path: Path) -> None:
    """The page's blocks, of which the first installs from a folder of wheels."""
    pages = pytest.importorskip("test_readme")
    first, *_ = pages.blocks(pages.TUTORIAL, "sh", "python")
    assert "pip install --no-index --find-links dist " in first.text
    (tmp_path / "dist").symlink_to(wheel.parent)
    check = f"\nimport shade_load\nassert shade_load.__file__.startswith({str(without_shade.parent)!r})\n"
    (tmp_path / "script.py").write_text(pages.script(pages.TUTORIAL) + check, encoding="utf-8")
    environment = {**os.environ, "PATH": f"{without_shade}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    command = [without_shade / "python", "-W", "ignore::RuntimeWarning", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert re.search(r"accuracy 0\.\d+", done.stdout), done.stdout
