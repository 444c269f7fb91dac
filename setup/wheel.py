"""Makes a wheel of the module and of the programs that make has put beside it.

    wheel.py FOLDER [OPTION...]     the options are maturin's, such as --release
"""

import re
import subprocess
import sys
from pathlib import Path

from notices import ROOT, output, write_notices

PACKAGE = ROOT / "trainer-bridge/py"
PROGRAMS = ("shade-load", "shade-pack")
# The tags that pip knows a distribution by: the C libraries of widespread Linux distributions.
GLIBC = (17, 28, 31, 34, 35, 36, 38, 39, 40, 41)


def main() -> None:
    folder, *options = sys.argv[1:]
    write_notices(PACKAGE / "licenses")
    needed = max(glibc_needed(PACKAGE / "shade_load._native.data/scripts" / name) for name in PROGRAMS)
    tag = next((version for version in GLIBC if version >= needed), None)
    if tag is None:
        sys.exit(f"error: the programs need glibc 2.{needed}, which setup/wheel.py knows no tag for: add it to GLIBC")
    # maturin looks at the module alone, and refuses a tag that promises too much for it.
    maturin = [sys.executable, "-m", "maturin", "build", "--out", folder, "--compatibility", f"manylinux_2_{tag}"]
    subprocess.run([*maturin, "--manifest-path", PACKAGE / "Cargo.toml", *options], check=True)


def glibc_needed(program: Path) -> int:
    """The least x of glibc 2.x that the program runs with: the newest version of a symbol in it."""
    versions = re.findall(r"Name: GLIBC_2\.(\d+)", output("readelf", "--version-info", "--wide", str(program)))
    return max(map(int, versions))


main()
