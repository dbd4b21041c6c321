"""Files of the repository as pages of the site, and links that lead to them."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Pages outside docs/ that have a place in the navigation.
PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benches/peers/README.md": "project/peers.md",
    "examples/working_day.ipynb": "examples/working_day.md",
    "tools/story_model/README.md": "project/story_model.md",
}
#: The README says what the first page says.
SAME_AS = {"README.md": "index.md"}

LANGUAGES = {
    ".json": "json",
    ".md": "markdown",
    ".py": "python",
    ".rs": "rust",
    ".toml": "toml",
    ".yml": "yaml",
}
FENCE = re.compile(r"^( *)(`{3,})([^\n]*)\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
#: A bar within a code span of a table: GitHub wants the backslash, and Python-Markdown shows it.
CODE = re.compile(r"`[^`\n]+`")
#: What rustdoc hides as well.
HIDDEN = re.compile(r"^#(?: .*)?\n", re.MULTILINE)


def file_of(path: str) -> str:
    """A file, or that of a folder which says what the others are, or its first one."""
    if not (ROOT / path).is_dir():
        return path
    names = sorted(item.name for item in (ROOT / path).iterdir() if item.is_file())
    return f"{path}/{'README.md' if 'README.md' in names else names[0]}"


def place(path: str) -> str:
    """The page of a file of the repository, which `path` names from its root."""
    path = file_of(path)
    if path in PAGES or path in SAME_AS:
        return PAGES.get(path) or SAME_AS[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def origin(page: str) -> str:
    """The file of the repository that a page is, or the place in docs/ where it would be."""
    for path, other in PAGES.items():
        if page == other:
            return path
    return f"docs/{page}"


def outside_links(text: str, path: str) -> list[str]:
    """The files outside docs/ that a page links to; it is the file `path`."""
    found = []
    for target in _targets(text):
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not linked.startswith(("docs/", "..")) and (ROOT / linked).exists():
            found.append(file_of(linked))
    return found


def _targets(text: str) -> list[str]:
    matches = LINK.finditer(FENCE.sub("", text))
    return [match[2] for match in matches if "://" not in match[2] and not match[2].startswith("mailto:")]


def with_links(text: str, page: str) -> str:
    """A page's text with links that lead to pages of the site. What leads nowhere stays, and fails the build."""
    path = origin(page)

    def moved(match: re.Match[str]) -> str:
        if "://" in match[2]:
            return match[0]
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
        if linked.startswith("..") or not (ROOT / linked).exists():
            return match[0]
        return match[1] + posixpath.relpath(place(linked), posixpath.dirname(page) or ".") + match[3]

    return _outside_fences(text, lambda prose: LINK.sub(moved, prose))


def as_site(text: str) -> str:
    """A page's text with blocks of Rust as rustdoc shows them: no hidden lines, no attributes."""

    def block(match: re.Match[str]) -> str:
        indent, ticks, info, body = match.groups()
        if info.startswith("rust"):
            info, body = "rust", HIDDEN.sub("", body)
        return f"{indent}{ticks}{info}\n{body}{indent}{ticks}"

    return FENCE.sub(block, _outside_fences(text, _bars))


def _bars(prose: str) -> str:
    lines = prose.split("\n")
    return "\n".join(
        CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in lines
    )


def _outside_fences(text: str, change) -> str:
    parts, end = [], 0
    for match in FENCE.finditer(text):
        parts += [change(text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, change(text[end:])])


def source_page(path: str) -> str:
    """A page that shows a file of the repository."""
    text = (ROOT / path).read_text(encoding="utf-8")
    fence = "`" * (max([2, *map(len, re.findall(r"`+", text))]) + 1)
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n# `{path}`\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def notebook_page(path: str) -> str:
    """A notebook as a page: its texts and its programs."""
    cells = json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"]).rstrip()
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"
