"""Writes the repository's address, which is in Cargo.toml alone, into the pages that show it; without one, what stands there.

    address.py

It also writes what a package index shows: README.md with links that lead to the version's files in the repository.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BADGES = """\
[![Licence](https://img.shields.io/badge/licence-Apache--2.0-blue)](LICENSE)
[![Python](https://img.shields.io/badge/Python-3.11_or_newer-blue)](docs/compatibility.md)
"""
# Shown once there is a public repository.
PUBLIC_BADGES = f"""\
[ci]: {{address}}/actions/workflows/ci.yml/badge.svg
{BADGES}\
[![CI][ci]](CONTRIBUTING.md) [![Version](https://img.shields.io/pypi/v/shade-load)](docs/install.md)
"""
# Beside a package's description. maturin takes none of Cargo.toml's.
URLS = """
[project.urls]
Repository = "{address}"
Issues = "{address}/issues"
Changelog = "{address}/blob/main/CHANGELOG.md"
"""
# The description in wheel and sdist. Links make long lines, and the rules for *.md leave it alone.
PAGE = "trainer-bridge/py/page.markdown"
# A link or picture in the repository. A link's text may be a picture.
LINK = re.compile(r"(!?)\[((?:!\[[^\]]*\][(\[][^)\]]*[)\]]|[^\[\]])*)\]\((?!https?:)([^)]+)\)")


class Place(NamedTuple):
    """What stands in a file between two texts: without an address, and with one."""

    file: str
    before: str
    after: str
    without: str
    with_one: str


PLACES = (
    Place("README.md", "# shade\n\n", "\n**Train", BADGES, PUBLIC_BADGES),
    Place("CITATION.cff", "license: Apache-2.0\n", "keywords:", "", 'repository-code: "{address}"\n'),
    Place("CONTRIBUTING.md", "for\n", "\n\nSay", "the repository's issues.", "[the repository's issues]({address}/issues)."),
    Place("docs/install.md", "git clone ", " shade &&", "REPOSITORY", "{address}"),
    Place("docs/conda-recipe.yaml", "about:\n", "  license:", "", "  repository: {address}\n"),
    Place("trainer-bridge/py/pyproject.toml", 'dynamic = ["version"]\n', "\n[project.optional", "", URLS),
)


def write(root: Path, address: str) -> list[str]:
    """Corrects the files of a checkout, and returns those that it has changed."""
    changed = []
    for place in PLACES:
        path = root / place.file
        text = path.read_text(encoding="utf-8")
        start = text.index(place.before) + len(place.before)
        end = text.index(place.after, start)
        new = (place.with_one if address else place.without).format(address=address)
        if text[start:end] != new:
            path.write_text(text[:start] + new + text[end:], encoding="utf-8")
            changed.append(place.file)
    path = root / PAGE
    new = page((root / "README.md").read_text(encoding="utf-8"), address, package(root)["version"])
    if path.read_text(encoding="utf-8") != new:
        path.write_text(new, encoding="utf-8")
        changed.append(PAGE)
    return changed


def page(readme: str, address: str, version: str) -> str:
    """README.md where no file of the repository is near: without an address no links to them, and no pictures."""

    def absolute(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        if not address:
            return "" if picture else text
        return f"{picture}[{text}]({address}/{'raw' if picture else 'blob'}/v{version}/{target})"

    readme = re.sub(r"<!--.*?-->\n", "", readme, flags=re.S)
    return re.sub(r"\n{3,}", "\n\n", LINK.sub(absolute, readme))


def package(root: Path) -> dict:
    """What Cargo.toml says of all crates."""
    return tomllib.loads((root / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]


if __name__ == "__main__":
    print("changed:", *write(ROOT, package(ROOT)["repository"]) or ["nothing"])
