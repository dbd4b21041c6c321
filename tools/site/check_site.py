"""Checks the built site: links lead to files and places in them, and nothing comes from another host.

python tools/site/check_site.py FOLDER

The pages of rustdoc are checked for hosts alone: rustdoc checks its own links.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import api

#: Attributes with which a page loads something.
LOADS = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
    ("link", "href"),
}
#: Links of a head that load nothing.
NAMES = {"canonical", "prev", "next", "edit"}
IN_STYLES = re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)")


class _Page(HTMLParser):
    """The places of a page, its links, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.styles: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        self.styles.append(values.get("style", ""))
        for name, value in values.items():
            if (tag, name) in LOADS and not NAMES & set(values.get("rel", "").split()):
                self.loads.append(value)
            if name in ("href", "src"):
                self.links.append(value)


@cache
def page_of(path: Path) -> _Page:
    """A page that has been read."""
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken_links(path: Path) -> list[str]:
    """The links of a page that lead to no file, or to no place of it."""
    broken = []
    for link in page_of(path).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or link.startswith(("data:", "javascript:")):
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            broken.append(f"{link}: there is no such file")
        elif (
            parts.fragment
            and target.suffix == ".html"
            and unquote(parts.fragment) not in page_of(target).places
        ):
            broken.append(f"{link}: the page has no such place")
    return broken


def other_hosts(path: Path) -> list[str]:
    """What a page or style sheet loads from elsewhere."""
    if path.suffix == ".css":
        return IN_STYLES.findall(path.read_text(encoding="utf-8"))
    page = page_of(path)
    loaded = [load for load in page.loads if urlsplit(load).netloc]
    return loaded + [host for style in page.styles for host in IN_STYLES.findall(style)]


def without_places(site: Path) -> list[str]:
    """The public methods and attributes of the extension's classes that the reference does not show."""
    folder = site / "reference" / "python"
    shown = {place for page in folder.glob("*.html") for place in page_of(page).places}
    return [
        f"{name} has no place in {folder}" for name in api.members() if folder.exists() and name not in shown
    ]


def main() -> None:
    """Prints what is wrong, and fails if anything is."""
    site = Path(sys.argv[1]).resolve()
    files = [path for path in sorted(site.rglob("*")) if path.suffix in (".html", ".css")]
    pages = [path for path in files if path.suffix == ".html" and site / "rust" not in path.parents]
    wrong = [f"{path.relative_to(site)} loads {host}" for path in files for host in other_hosts(path)]
    # The page of a wrong address has links from the root, which it cannot know.
    wrong += [
        f"{path.relative_to(site)}: {link}"
        for path in pages
        if path.name != "404.html"
        for link in broken_links(path)
    ]
    without = [path for path in pages if "Content-Security-Policy" not in path.read_text(encoding="utf-8")]
    wrong += [f"{path.relative_to(site)} has no policy against other hosts" for path in without]
    wrong += without_places(site)
    if not pages or wrong:
        raise SystemExit("\n".join(["error: the site must hold pages that are right:", *wrong]))
    print(
        f"{len(pages)} pages, {len(files) - len(pages)} of rustdoc and styles: every link leads somewhere on this host"
    )


if __name__ == "__main__":
    main()
