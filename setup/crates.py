"""Says whether the crates of Cargo.lock were checked by the rules of deny.toml; with --check, checks them and writes that down.

    python setup/crates.py                       # a test of `make test`
    python setup/crates.py --check CARGO_DENY    # `make crates`

To compile cargo-deny takes two minutes of CPU, and what it says changes with Cargo.lock and deny.toml only, so it is not for
each run of the tests. RustSec's list of advisories changes by itself: `make crates` looks at it before each release.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "deny.toml"
CHECKED = ROOT / "setup/crates.checked"
WHAT = ("licenses", "sources", "bans")


def main() -> int:
    """Compares or checks; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", type=Path, metavar="CARGO_DENY", help="check with this program, and write setup/crates.checked")
    program = parser.parse_args().check
    found = hashlib.sha256((ROOT / "Cargo.lock").read_bytes() + RULES.read_bytes()).hexdigest()
    if program is None:
        if CHECKED.read_text(encoding="ascii").strip() == found:
            return 0
        print("Cargo.lock or deny.toml has changed: run `make crates`, and commit setup/crates.checked", file=sys.stderr)
        return 1
    if not allows(program, RULES, *WHAT):
        return 1
    with tempfile.TemporaryDirectory() as folder:
        stricter = Path(folder) / "deny.toml"
        stricter.write_text(RULES.read_text(encoding="utf-8").replace('"MIT",', ""), encoding="utf-8")
        assert not allows(program, stricter, "licenses", capture_output=True), "it finds nothing"
    if subprocess.run([program, "fetch", "db"], cwd=ROOT, check=False).returncode != 0:
        print("RustSec's list cannot be had here: advisories were not looked at", file=sys.stderr)
    elif not allows(program, RULES, "advisories"):
        return 1
    CHECKED.write_text(f"{found}\n", encoding="ascii")
    return 0


def allows(program: Path, rules: Path, *what: str, capture_output: bool = False) -> bool:
    """Whether these rules allow all crates."""
    command = [program, "--config", rules, "check", *what]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=capture_output).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
