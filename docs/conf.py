"""How Sphinx makes the site: every Markdown file of the repository is a page, docs/index.md the first."""

import re
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
    text = re.sub(r"\[([^\]]+)\]\(([^)#:]+)\)", partial(link_of_folder, page), source[0])
    source[0] = navigation(text) if name == root_doc else text


def setup(app: Sphinx) -> None:
    app.connect("source-read", prepare)
