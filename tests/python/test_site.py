"""The site: Sphinx builds it without a warning, so every link and anchor of every page leads somewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

pytest.importorskip("sphinx", reason="setup/docs-requirements.lock is not installed")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, reference_pages: None) -> Path:
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


class Html(HTMLParser):
    """A page's anchors, and where its links lead."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.links += [given[name] for name in ("href", "src") if name in given]


def test_links_and_anchors_of_the_built_pages_lead_somewhere(site: Path) -> None:
    """Also those that Sphinx does not check: of the theme, to files, and within tables of contents."""
    pages = {page: Html(page) for page in site.rglob("*.html")}
    nowhere, elsewhere = [], set()
    for page, html in pages.items():
        for link in html.links:
            if re.match("[a-z]+:|//", link):
                elsewhere.add(link)
                continue
            path, anchor = urldefrag(link)
            target = (page.parent / unquote(path.partition("?")[0])).resolve() if path else page
            if not target.exists() or (anchor and target in pages and unquote(anchor) not in pages[target].anchors):
                nowhere.append(f"{page.relative_to(site)}: {link}")
    print("links to other sites, which are not followed:", *sorted(elsewhere), sep="\n")
    assert not nowhere, "\n".join(nowhere)


def test_each_page_that_is_no_decision_is_in_the_index(site: Path) -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "index.md"]
    pages += [f"reference/{page.name}" for page in (ROOT / "docs/reference").glob("*.md")]
    assert not [page for page in pages if f"]({page})" not in index]


def test_the_root_is_readme_and_agents_find_every_page(site: Path) -> None:
    assert (site / "index.html").read_bytes() == (site / "README.html").read_bytes()
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    assert listed.startswith("# shade\n\n> Train on more images than memory holds")
    links = re.findall(r"\]\(([^)]+)\)", listed)
    assert len(links) > 40 and [link for link in links if not (site / link).is_file()] == []


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
