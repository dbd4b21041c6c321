"""What `make docs` adds to the pages of docs/ while MkDocs builds the site.

Pages outside docs/ that others link to, sources with highlighting, a page for each family and each part of Python's API, and
their places in the navigation. The pages in docs/ stay as GitHub shows them: links are changed here alone.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import api
import families
import repository
import shapes
from mkdocs.structure.files import File, Files, InclusionLevel
from repository import ROOT

RUST = """\
# The crate's API

rustdoc makes it from the sources: <a href="../rust/rsgen/index.html">the library <code>rsgen</code></a>, which is all that a program
needs. Its parts:

- <a href="../rust/rsgen/generator/struct.Generator.html"><code>Generator</code></a> opens a model and generates;
- <a href="../rust/rsgen/struct.GenerationConfig.html"><code>GenerationConfig</code></a> has the fields of a call;
- <a href="../rust/rsgen/serve/index.html"><code>serve</code></a> has the routes for services of your own.

[In a Rust program](../rust.md) shows how they are used.
"""


def _generated() -> dict[str, str]:
    pages = {**families.pages(), **api.pages(), "reference/rust.md": RUST}
    for path, place in repository.PAGES.items():
        made = repository.notebook_page if path.endswith(".ipynb") else _text
        pages[place] = made(path)
    return pages


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


GENERATED = _generated()
LOG = logging.getLogger("mkdocs.hooks.site")


def on_config(config: Any) -> Any:
    """Puts the lists of pages into the navigation."""
    docs = ROOT / "docs"
    lists = {
        name: sorted(f"{name}/{path.name}" for path in (docs / name).glob("*.md"))
        for name in ("recipes", "strategies", "decisions")
    }
    # The overview of a folder comes first.
    lists = {
        name: sorted(paths, key=lambda path: not path.endswith("README.md")) for name, paths in lists.items()
    }
    lists["families"] = [path for path in GENERATED if path.startswith("families/")]
    lists["api"] = [path for path in GENERATED if path.startswith("reference/python/")]
    config.nav = _filled(config.nav, lists)
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def _filled(nav: Any, lists: dict[str, list[str]]) -> Any:
    if isinstance(nav, list):
        return [_filled(item, lists) for item in nav]
    if isinstance(nav, dict):
        return {title: _filled(item, lists) for title, item in nav.items()}
    return lists[nav[1:-1]] if nav.startswith("<") else nav


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made, and the sources that pages link to."""
    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for place, text in GENERATED.items():
        files.append(File.generated(config, place, content=text))
        pages[repository.origin(place)] = text
    linked = {place for path, text in pages.items() for place in repository.outside_links(text, path)}
    for path in sorted(linked):
        place = repository.place(path)
        if place.startswith("source/") and files.get_file_from_path(place) is None:
            text = repository.source_page(path)
            files.append(File.generated(config, place, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Changes what GitHub and rustdoc show otherwise than MkDocs."""
    if page.file.src_uri.startswith("source/"):
        return markdown
    return repository.as_site(repository.with_links(markdown, page.file.src_uri))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Fails where GitHub shows something else than the site."""
    path = ROOT / repository.origin(page.file.src_uri)
    if path.suffix == ".md" and path.exists():
        differs = shapes.first_difference(page.markdown, html)
        if differs:
            LOG.warning(f"{path.relative_to(ROOT)}: GitHub shows {differs[0]}, and the site {differs[1]}")
    return html


#: A heading whose anchor GitHub knows; Python-Markdown drops no character of a code span.
ANCHOR = re.compile(r"[^\w\- ]")


def slug(heading: str, separator: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return ANCHOR.sub("", heading.strip().lower()).replace(" ", separator)
