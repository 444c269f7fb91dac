"""Each version number stands in one place; pages and recipes that repeat one say the same."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKSPACE = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]
VERSION = WORKSPACE["package"]["version"]
RUST = WORKSPACE["package"]["rust-version"]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def number(path: str, name: str) -> str:
    """The value of a constant in the source."""
    (found,) = re.findall(rf'const {name}: .*? = b?"?(\w+)"?;', text(path))
    return found


def test_crates_and_package_have_the_version_of_the_workspace() -> None:
    for member in WORKSPACE["members"]:
        package = tomllib.loads(text(f"{member}/Cargo.toml"))["package"]
        assert package["version"] == package["rust-version"] == {"workspace": True}, member
    project = tomllib.loads(text("trainer-bridge/py/pyproject.toml"))["project"]
    assert "version" not in project and project["dynamic"] == ["version"], "maturin takes that of Cargo.toml"


def test_pages_and_recipes_name_the_version() -> None:
    assert f"Version {VERSION}:" in text("README.md")
    assert f"\n  version: {VERSION}\n" in text("docs/conda-recipe.yaml")
    assert f"\nversion: {VERSION}\n" in text("CITATION.cff")
    assert re.search(rf"^## \[({re.escape(VERSION)}|Unreleased)\]", text("CHANGELOG.md"), re.M)


def test_pages_and_recipes_name_the_oldest_rust_and_python() -> None:
    python = tomllib.loads(text("trainer-bridge/py/pyproject.toml"))["project"]["requires-python"].removeprefix(">=")
    for page in ("README.md", "docs/compatibility.md"):
        assert f"Rust {RUST} or newer" in " ".join(text(page).split()) and f"Python {python} or newer" in text(page), page
    assert text("docs/conda-recipe.yaml").count(f"python >={python}") == 2
    assert f'features = ["abi3-py{python.replace(".", "")}"]' in text("Cargo.toml")


def test_the_image_builds_with_that_rust_and_runs_on_the_same_debian() -> None:
    built, run = re.findall(r"^FROM (\S+)", text("Dockerfile"), re.M)
    debian = built.rpartition("-")[2]
    assert built == f"rust:{RUST}-{debian}"
    assert re.fullmatch(rf"python:3\.\d+-slim-{debian}", run), "the wheel needs the C library it was built with"


def test_the_page_about_compatibility_names_the_formats() -> None:
    page = text("docs/compatibility.md")
    assert f"`{number('loader/core/src/training/snapshot.rs', 'MAGIC')}`" in page
    assert f"protocol number, now {number('formats/layout/src/control/codec.rs', 'PROTOCOL')}." in page
    assert f"(index major version {number('formats/layout/src/index/layout.rs', 'MAJOR')})" in page
    assert f"`shade-load trace`), version {number('formats/layout/src/trace.rs', 'VERSION')} |" in page
