"""The site: Sphinx builds it without a warning, so every link and anchor of every page leads somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="setup/docs-requirements.lock is not installed")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by what `make docs` runs. `-W`: a warning, such as a link that leads nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", ROOT / "docs"]
    done = subprocess.run(
        [*command, "-d", folder / "doctrees", ROOT, folder / "html"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_of_docs_is_in_the_navigation_or_linked(site: Path) -> None:
    linked = set()
    for page in site.rglob("*.html"):
        for target in re.findall(r'href="([^"#]+\.html)', page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                linked.add(os.path.normpath(page.parent.relative_to(site) / target))
    pages = {str(page.relative_to(ROOT).with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= linked


def test_the_site_needs_no_network(site: Path) -> None:
    for page in [*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.js")]:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*src="(https?:[^"]*)"', text)
        loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|preload|icon)"[^>]*href="(https?:[^"]*)"', text)
        loaded += re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^\"')]*)", text)
        assert not loaded, page


def test_search_finds_a_word_of_a_page(site: Path) -> None:
    """The index is a script, so search works from files, too."""
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(") and "docs/which-sampler" in index and '"lookahead"' in index
