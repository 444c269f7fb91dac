"""Crates have licences and sources that deny.toml allows; what .venv gets is locked, as it was asked for."""

import json
import re
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
ALLOWED = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))
LICENCES = set(ALLOWED["licenses"]["allow"])


def may_be_used(expression: str) -> bool:
    """Whether a choice of licences meets the SPDX expression. A slash is crates' older form of OR."""
    words = re.findall(r"[()]|[\w.+-]+(?: WITH [\w.-]+)?", expression.replace("/", " OR "))

    def any_of() -> bool:
        found = all_of()
        while words and words[0] == "OR":
            words.pop(0)
            found = all_of() or found
        return found

    def all_of() -> bool:
        found = one()
        while words and words[0] == "AND":
            words.pop(0)
            found = one() and found
        return found

    def one() -> bool:
        word = words.pop(0)
        if word != "(":
            return word in LICENCES
        found = any_of()
        assert words.pop(0) == ")", expression
        return found

    met = any_of()
    assert not words, expression
    return met


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-2.0-only OR MIT", True),
        ("MIT AND GPL-2.0-only", False),
        ("MIT/Apache-2.0", True),
        ("(MIT OR GPL-2.0-only) AND Unicode-3.0", True),
        ("Apache-2.0 WITH LLVM-exception OR MIT", True),
        ("GPL-3.0-only WITH GCC-exception-3.1", False),
    ],
)
def test_expressions_are_understood(expression: str, met: bool) -> None:
    assert may_be_used(expression) == met


def test_crates_have_allowed_licences_and_sources() -> None:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
    described = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    crates = [crate for crate in json.loads(described)["packages"] if crate["source"]]
    assert len(crates) > 100
    registries = {f"registry+{registry}" for registry in ALLOWED["sources"]["allow-registry"]}
    excepted = {entry["crate"]: entry["allow"] for entry in ALLOWED["licenses"]["exceptions"]}
    for crate in crates:
        is_excepted = crate["license"] in excepted.get(crate["name"], ())
        assert is_excepted or may_be_used(crate["license"]), f"{crate['name']}: {crate['license']}"
        assert crate["source"] in registries, f"{crate['name']}: {crate['source']}"


@pytest.mark.skipif(shutil.which("cargo-deny") is None, reason="cargo-deny, which takes minutes to compile, is not here")
def test_cargo_deny_agrees() -> None:
    # Advisories need their list, which is not part of a checkout.
    command = ["cargo", "deny", "--offline", "check", "licenses", "sources", "bans"]
    checked = subprocess.run(command, cwd=ROOT, check=False, stderr=subprocess.PIPE, text=True)
    assert checked.returncode == 0, checked.stderr


def test_hadolint_finds_nothing_in_the_dockerfile(tmp_path: Path) -> None:
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN cd /tmp\n")
    assert subprocess.run([hadolint, bad], stdout=subprocess.DEVNULL, check=False).returncode == 1, "it can find something"


@pytest.mark.parametrize("name", ["requirements", "docs-requirements", "pages-requirements"])
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
