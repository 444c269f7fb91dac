"""Makes dist/release: notes, sdist, wheels, software bill of materials and checksums of one version.

    release.py [--try]

It refuses a tree with changes, a version that is tagged already or has no section in CHANGELOG.md, and a machine that
cannot make all wheels. With --try it makes what it can, with the notes of the unreleased version. What was left out or
not run stands at the end.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from address import package
from bill import BILL, bill_of_materials, checksums
from notices import ROOT, output
from wheel import PACKAGE, PROGRAMS, make_wheel

FOLDER = ROOT / "dist/release"
# What a package index takes, and nothing else.
PACKAGES = FOLDER / "packages"
# glibc that zig links for: RHEL 8, Debian 10, Ubuntu 20.04.
GLIBC = "2.28"
# The last one's programs stay in the tree, so it is the machine's own.
TARGETS = ("aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu")
FREE_THREADED = "3.14t"
# Packs and trains where a wheel is installed alone. The images are in the repository.
LIFE = f"""
import subprocess, sys, sysconfig
from pathlib import Path

free = sysconfig.get_config_var("Py_GIL_DISABLED")
import shade_load
assert not (free and sys._is_gil_enabled()), "the module asks for the GIL"
folder = Path(sys.argv[1])
subprocess.run([Path(sys.executable).with_name("shade-pack"), "create", folder, folder.parent / "three.shade"], check=True)
with shade_load.Loader(folder.parent / "three.shade", 3, image_size=32) as loader:
    assert [sorted(batch.ids.tolist()) for batch in loader] == [[0, 1, 2]]
print("ran:", sys.version.split(" (")[0], "packed and loaded three images", "without the GIL" if free else "")
"""
left_out: list[str] = []


def main() -> None:
    trying = sys.argv[1:] == ["--try"]
    if sys.argv[1:] and not trying:
        sys.exit(__doc__)
    # cargo-zigbuild and maturin look there for zig.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    version, repository = package(ROOT)["version"], package(ROOT)["repository"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not trying:
        refuse(version, repository, changelog)
    targets = [target for target in TARGETS if has_standard_library(target)]
    left_out.extend(f"wheels for {t}: Rust's standard library for it cannot be had" for t in TARGETS if t not in targets)
    if left_out and not trying:
        sys.exit(f"error: {left_out[0]}: rustup target add {TARGETS[0]}; with --try the rest is made")
    shutil.rmtree(FOLDER, ignore_errors=True)
    PACKAGES.mkdir(parents=True)
    section = "Unreleased" if trying and "[Unreleased]" in changelog else version
    (FOLDER / "NOTES.md").write_text(notes(changelog, section), encoding="utf-8")
    (FOLDER / "TAG").write_text(f"v{version}\n", encoding="utf-8")
    (FOLDER / BILL).write_text(bill_of_materials(), encoding="utf-8")
    for target in targets:
        make_wheels(target)
    check_source(make_source(PACKAGES))
    write_checksums(FOLDER)
    print(f"\nmake release: {FOLDER.relative_to(ROOT)} has version {version}")
    print("\n".join(f"LEFT OUT: {what}" for what in left_out) or "nothing was left out")


def refuse(version: str, repository: str, changelog: str) -> None:
    """Ends with the first reason why this tree may not be released."""
    reasons = {
        "there are changes that are not committed (git status)": output("git", "status", "--porcelain"),
        f"v{version} is tagged already: raise the version in Cargo.toml": output("git", "tag", "--list", f"v{version}"),
        f"CHANGELOG.md has no section [{version}]": f"\n## [{version}] - " not in changelog,
        "Cargo.toml has no address of the repository: fill it in, then run setup/address.py": not repository,
    }
    for reason, is_true in reasons.items():
        if is_true:
            sys.exit(f"error: {reason}. A try needs none of this: setup/release.py --try")


def notes(changelog: str, version: str) -> str:
    """The changelog's section of a version, without its heading."""
    _, _, after = changelog.partition(f"\n## [{version}]")
    return re.split(r"^## ", after.partition("\n")[2], flags=re.M)[0].strip() + "\n"


def has_standard_library(target: str) -> bool:
    """Whether rustc can compile for it, after a try to install what is missing."""
    folder = Path(output("rustc", "--print", "target-libdir", "--target", target).strip())
    if not list(folder.glob("libstd-*.rlib")) and shutil.which("rustup"):
        subprocess.run(["rustup", "target", "add", target], check=False)
    return bool(list(folder.glob("libstd-*.rlib")))


def make_wheels(target: str) -> None:
    """The wheel of every GIL Python and the one of the free-threaded one, and what can be run of them."""
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / target / "release"
    names = [word for name in (*PROGRAMS, "shade-capi") for word in ("--package", name)]
    run("cargo-zigbuild", "zigbuild", "--locked", "--release", "--target", f"{target}.{GLIBC}", *names)
    scripts = PACKAGE / "shade_load._native.data/scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        shutil.copy(built / name, scripts / name)
    options = ["--locked", "--release", "--zig", "--target", target]
    for interpreter in ([], ["--interpreter", f"python{FREE_THREADED}"]):
        make_wheel(PACKAGES, built, [*options, *interpreter])
    machine = target.partition("-")[0]
    wheels = sorted(PACKAGES.glob(f"*_{machine}.whl"))
    assert len(wheels) == 2 and all(int(re.search(r"manylinux_2_(\d+)_", w.name)[1]) <= 28 for w in wheels), wheels
    with tempfile.TemporaryDirectory() as folder:
        if machine == os.uname().machine:
            for wheel in wheels:
                live(wheel, Path(folder) / wheel.name)
        else:
            emulate(machine, built, Path(folder))


def live(wheel: Path, folder: Path) -> None:
    """Runs a wheel in an environment of its own, if its Python is here."""
    free = "cp314t" in wheel.name
    python = shutil.which(f"python{FREE_THREADED}") if free else sys.executable
    if not python:
        left_out.append(f"running {wheel.name}: no python{FREE_THREADED} on PATH")
        return
    subprocess.run([python, "-m", "venv", "--without-pip", folder / "environment"], check=True)
    run("pip", "--python", folder / "environment/bin/python", "install", "--quiet", "--no-index", wheel)
    python = folder / "environment/bin/python"
    subprocess.run([python, "-I", "-c", LIFE, three_images(folder)], check=True)


def emulate(machine: str, built: Path, folder: Path) -> None:
    """Runs the programs of another processor: their versions, three images packed and verified, plans and a cache."""
    emulator = shutil.which(f"qemu-{machine}-static") or shutil.which(f"qemu-{machine}")
    libraries = Path(f"/usr/{machine}-linux-gnu")
    if not emulator or not libraries.is_dir():
        left_out.append(f"running the programs for {machine}: no qemu-{machine} here, or no {libraries}")
        return
    pack, load = ([emulator, "-L", libraries, built / name] for name in ("shade-pack", "shade-load"))
    dataset = folder / "three.shade"
    for command in ([*pack, "--version"], [*load, "--version"], [*pack, "create", three_images(folder), dataset]):
        subprocess.run(command, check=True)
    for command in ([*pack, "verify", dataset], [*load, "simulate", dataset, "--cache", "50%"]):
        subprocess.run(command, check=True)
    print(f"ran: the programs for {machine}, by {emulator}")


def three_images(folder: Path) -> Path:
    """An image folder of three images that the repository has."""
    source = ROOT / "images/tests/data"
    for name in ("baseline.jpg", "baseline.png", "grey.jpg"):
        (folder / "images/one").mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, folder / "images/one")
    return folder / "images"


def make_source(folder: Path) -> Path:
    """The sdist: the module's crates and the package, without the programs' crates."""
    run("maturin", "sdist", "--out", folder, "--manifest-path", PACKAGE / "Cargo.toml")
    (archive,) = folder.glob("*.tar.gz")
    return archive


def check_source(archive: Path) -> None:
    """The sdist has every crate that it needs, and its lock gives the versions of ours."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder], check=True)
        (unpacked,) = Path(folder).iterdir()
        manifest = unpacked / PACKAGE.relative_to(ROOT) / "Cargo.toml"
        described = json.loads(output("cargo", "metadata", "--format-version", "1", "--manifest-path", str(manifest)))
    others = {(crate["name"], crate["version"]) for crate in described["packages"]} - checksums().keys()
    assert not others, f"the sdist would be built with {others}"


def write_checksums(folder: Path) -> None:
    """For `sha256sum --check` beside what was downloaded from the release's page, which has no folders."""
    files = [*sorted((folder / PACKAGES.name).iterdir()), folder / BILL]
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def run(module: str, *arguments: object) -> None:
    """A tool of this environment."""
    program = Path(sys.executable).with_name(module)
    subprocess.run([program, *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
