"""Crates were checked by the rules of deny.toml; what .venv gets is locked, as it was asked for."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sysconfig.get_path("scripts"))


def test_crates_were_checked_as_they_are_now() -> None:
    compared = subprocess.run([sys.executable, ROOT / "setup/crates.py"], check=False, capture_output=True, text=True)
    assert compared.returncode == 0, compared.stderr


def tree(edges: str, *options: str) -> set[tuple[str, str]]:
    """Crates that packages are made with, and their features. A crate may be there twice, for build scripts."""
    command = ["cargo", "tree", "--locked", "--edges", edges, "--prefix", "none", "--format", "{p}|{f}", *options]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    found = (line.removesuffix(" (*)").partition("|") for line in lines)
    return {(crate, features) for crate, _, features in found}


def made(*names: str) -> set[tuple[str, str]]:
    """Crates of others that packages are made with, and their features."""
    packages = [word for name in names for word in ("--package", name)]
    return {(crate, features) for crate, features in tree("normal,build", *packages) if not crate.startswith("shade-")}


@pytest.mark.parametrize("other", ["shade-slow-store", "shade-capi"])
def test_the_module_asks_for_no_other_features_than_the_programs(other: str) -> None:
    """`make build` and `make wheel` call cargo twice: the second call compiles none of these again."""
    programs, module = made("shade-load", "shade-pack", other), made("shade-load-py")
    both = {crate for crate, _ in programs} & {crate for crate, _ in module}
    assert any(crate.startswith("serde_core ") for crate in both)
    assert {(crate, features) for crate, features in module - programs if crate in both} == set()


def test_the_module_of_the_tests_has_the_features_of_the_whole_workspace() -> None:
    """`make test` calls cargo twice as well: with the feature for it, the second call compiles the module alone."""
    everything, module = tree("normal,build,dev", "--workspace"), ("--package", "shade-load-py", "--features", "as-in-tests")
    of_module = {(crate, features) for crate, features in tree("normal", *module) if not crate.startswith("shade-load-py ")}
    assert of_module - everything == set()


def test_hadolint_finds_nothing_in_the_dockerfile(tmp_path: Path) -> None:
    hadolint = SCRIPTS / "hadolint"
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN cd /tmp\n")
    assert subprocess.run([hadolint, bad], stdout=subprocess.DEVNULL, check=False).returncode == 1, "it can find something"


@pytest.mark.parametrize("name", ["requirements", "docs-requirements", "pages-requirements", "release-requirements"])
def test_what_is_installed_is_locked_with_hashes(name: str) -> None:
    asked = (ROOT / f"setup/{name}.txt").read_text(encoding="utf-8")
    locked = (ROOT / f"setup/{name}.lock").read_text(encoding="utf-8")
    entries = re.findall(r"^(\S+)==(\S+)(?: ; [^\n\\]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", locked, re.M)
    assert len(entries) == len(re.findall(r"^\S+==", locked, re.M)), "each has a hash"
    for line in asked.splitlines():
        if not line.startswith("#"):
            wanted = Requirement(line)
            versions = [version for name, version, _ in entries if name == wanted.name]
            assert versions and all(wanted.specifier.contains(version) for version in versions), line
