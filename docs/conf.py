"""How Sphinx makes the site: every Markdown file of the repository is a page, docs/index.md the first."""

import re
import shutil
import tomllib
from functools import partial
from pathlib import Path

from sphinx.application import Sphinx

project = "shade"
author = "the authors of shade"
extensions = ["myst_parser"]
# The repository's root is the source folder, so that links between its folders stay links.
root_doc = "docs/index"
include_patterns = ["*.md", "**/*.md"]
exclude_patterns = [".*", "target", "site", "dist", "demo-out", "study-data", "benches/rivals/.venv", "images/fuzz/target"]
html_theme = "furo"
html_title = "shade"
# A link from each page to its source, once there is an address.
package = tomllib.loads((Path(__file__).parents[1] / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]
if package["repository"]:
    html_theme_options = {"source_repository": package["repository"], "source_branch": "main", "source_directory": ""}
html_show_sourcelink = False
html_copy_source = False
# GitHub's anchors, so that one link works there and here.
myst_heading_anchors = 4
# Decisions, reports and the crates' pages are reached from other pages.
suppress_warnings = ["toc.not_included"]


def navigation(text: str) -> str:
    """The index's lists of links as Sphinx's tables of contents: one for each chapter, not shown in the page."""
    tables = []
    for chapter in re.split(r"^## ", text, flags=re.M)[1:]:
        caption = chapter.splitlines()[0]
        pages = re.findall(r"^- \[([^\]]+)\]\(([^)#]+)\.md\)", chapter, re.M)
        entries = "\n".join(f"{title} <{page}>" for title, page in pages)
        tables.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n")
    return text + "\n" + "\n".join(tables)


def link_of_folder(page: Path, link: re.Match[str]) -> str:
    """A link to a folder as a site can have it: to the folder's page, or the words alone."""
    words, target = link.groups()
    if not (page.parent / target).is_dir():
        return link[0]
    return f"[{words}]({target.rstrip('/')}/README.md)" if (page.parent / target / "README.md").is_file() else words


def prepare(app: Sphinx, name: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    # The site loads nothing from elsewhere, so it has no badges.
    plain = re.sub(r"^\[!\[.*\n", "", source[0], flags=re.M)
    text = re.sub(r"\[([^\]]+)\]\(([^)#:]+)\)", partial(link_of_folder, page), plain)
    source[0] = navigation(text) if name == root_doc else text


def for_agents(readme: str, index: str) -> str:
    """llms.txt: what shade is, and every page of the index with what it is about."""
    is_for = next(part for part in readme.split("\n\n") if part.startswith("**")).replace("**", "").replace("\n", " ")
    chapters = index[index.index("## ") :]
    above = re.sub(r"\]\(\.\./([^)#]+)\.md\)", r"](\1.html)", chapters)
    links = re.sub(r"\]\(([^)#]+)\.md\)", r"](docs/\1.html)", above)
    return f"# shade\n\n> {is_for}\n\n{links}"


def finish(app: Sphinx, error: Exception | None) -> None:
    """README's first screen is also the site's."""
    if error is None and app.builder.format == "html":
        site, root = Path(app.outdir), Path(app.srcdir)
        shutil.copyfile(site / "README.html", site / "index.html")
        pages = [(root / page).read_text(encoding="utf-8") for page in ("README.md", "docs/index.md")]
        (site / "llms.txt").write_text(for_agents(*pages), encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("source-read", prepare)
    app.connect("build-finished", finish)
