"""What a page is made of, as CommonMark and GitHub's tables have it, compared with what the site has.

Python-Markdown reads lists and code within tables otherwise than GitHub does: a page that looks right in one of them alone is
found here.
"""

from __future__ import annotations

import itertools
from html.parser import HTMLParser

from markdown_it import MarkdownIt

BLOCKS = {
    "h1",
    "h2",
    "h3",
    "h4",
    "ul",
    "ol",
    "li",
    "table",
    "tr",
    "td",
    "th",
    "pre",
    "blockquote",
    "img",
    "a",
    "strong",
    "em",
}
GITHUB = MarkdownIt("commonmark", {"html": True}).enable("table")


class _Shape(HTMLParser):
    """Lists the elements of a page in order, and the texts of code."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.in_code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in BLOCKS and ("class", "headerlink") not in attrs:
            self.parts.append(f"<{tag}>")
        if tag == "code":
            self.in_code = True
            self.parts.append("code ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "code":
            self.in_code = False

    def handle_data(self, data: str) -> None:
        if self.in_code:
            self.parts[-1] += "".join(data.split())


def first_difference(markdown: str, html: str) -> tuple[str, str] | None:
    """What GitHub shows of a page and what `html` has in its place, where they differ first."""
    pairs = itertools.zip_longest(
        _shape(GITHUB.render(_unescaped(markdown))), _shape(html), fillvalue="nothing"
    )
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def _unescaped(markdown: str) -> str:
    """The page as it stands in the repository: a bar in the code of a table has a backslash."""
    lines = markdown.split("\n")
    return "\n".join(_with_bars(line) if line.startswith("| ") else line for line in lines)


def _with_bars(line: str) -> str:
    parts = line.split("`")
    return "`".join(part.replace("|", "\\|") if number % 2 else part for number, part in enumerate(parts))


def _shape(html: str) -> list[str]:
    shape = _Shape()
    shape.feed(html)
    return shape.parts
