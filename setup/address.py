"""Writes the repository's address, which is in Cargo.toml alone, into the pages that show it; without one, what stands there.

    address.py
"""

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
    Place("trainer-bridge/py/Cargo.toml", "publish.workspace = true\n", "\n[lib]", "", "repository.workspace = true\n"),
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
    return changed


def repository(root: Path) -> str:
    return tomllib.loads((root / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["repository"]


if __name__ == "__main__":
    print("changed:", *write(ROOT, repository(ROOT)) or ["nothing"])
