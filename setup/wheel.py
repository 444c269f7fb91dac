"""Makes a wheel of the module, of the programs that make has put beside it, and of the C interface.

    wheel.py FOLDER [OPTION...]     the options are maturin's, such as --release
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from bill import BILL, bill_of_materials
from notices import ROOT, output, write_notices

PACKAGE = ROOT / "trainer-bridge/py"
PROGRAMS = ("shade-load", "shade-pack")
# Prefix of the C interface: shade_load.cmake_prefix_path.
C_INTERFACE = PACKAGE / "python/shade_load/capi"
# The tags that pip knows a distribution by: the C libraries of widespread Linux distributions.
GLIBC = (17, 28, 31, 34, 35, 36, 38, 39, 40, 41)


def main() -> None:
    folder, *options = sys.argv[1:]
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    make_wheel(Path(folder), target / ("release" if "--release" in options else "debug"), options)


def make_wheel(folder: Path, built: Path, options: list[str]) -> None:
    """Puts the wheel of the programs' processor into `folder`: `built` has the C interface that cargo made."""
    write_notices(PACKAGE / "licenses")
    (PACKAGE / BILL).write_text(bill_of_materials(), encoding="utf-8")
    library = install_c_interface(built)
    programs = [PACKAGE / "shade_load._native.data/scripts" / name for name in PROGRAMS]
    needed = max(map(glibc_needed, [*programs, library]))
    tag = next((version for version in GLIBC if version >= needed), None)
    if tag is None:
        sys.exit(f"error: the programs need glibc 2.{needed}, which setup/wheel.py knows no tag for: add it to GLIBC")
    # maturin looks at the module alone, and refuses a tag that promises too much for it.
    maturin = [sys.executable, "-m", "maturin", "build", "--out", folder, "--compatibility", f"manylinux_2_{tag}"]
    paths = ["--manifest-path", PACKAGE / "Cargo.toml", "--sbom-include", PACKAGE / BILL]
    subprocess.run([*maturin, *paths, *options], check=True)


def install_c_interface(built: Path) -> Path:
    """Puts the C interface into the package, and returns its library.

    Without the static library, which is many times as large as all the rest. A wheel has no links:
    a line for the linker stands in for the one to the library.
    """
    if not (built / "libshade_client.so").is_file():
        sys.exit(f"error: no {built}/libshade_client.so: build it first, with cargo build --package shade-capi")
    shutil.rmtree(C_INTERFACE, ignore_errors=True)
    subprocess.run([ROOT / "trainer-bridge/capi/install.sh", C_INTERFACE, built], check=True)
    (C_INTERFACE / "lib/libshade_client.a").unlink()
    link = C_INTERFACE / "lib/libshade_client.so"
    library = link.resolve()
    link.unlink()
    link.write_text(f"INPUT({library.name})\n", encoding="utf-8")
    return library


def glibc_needed(program: Path) -> int:
    """The least x of glibc 2.x that the program runs with: the newest version of a symbol in it."""
    versions = re.findall(r"Name: GLIBC_2\.(\d+)", output("readelf", "--version-info", "--wide", str(program)))
    return max(map(int, versions))


if __name__ == "__main__":
    main()
