"""Writes the table of features in docs/parity.md from docs/parity_rows.csv.

    python tools/make_parity.py

A test compares the page with what this would write, and each row with the code: a feature that is there names its tests,
and a field that is refused is no feature.
"""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, ROWS = DOCS / "parity.md", DOCS / "parity_rows.csv"
BEGIN, END = "<!-- Made by tools/make_parity.py: begin -->", "<!-- Made by tools/make_parity.py: end -->"

#: What a status means, as the page shows it.
STATUSES = {"exact": "exact", "differs": "differs", "own": "in its own way", "no": "no"}


def rows() -> list[dict[str, str]]:
    """The rows of the file."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def shown_by(row: dict[str, str]) -> list[tuple[str, str]]:
    """The files and tests of a row."""
    pairs = [pair.split(" ") for pair in row["shown_by"].split("; ")]
    return [(file, test) for file, test in pairs]


def table() -> str:
    """The sections of the page, each a table."""
    lines = []
    for section, group in itertools.groupby(rows(), lambda row: row["section"]):
        lines += [f"### {section}", "", "| transformers | rsgen | shown by |", "|---|---|---|"]
        for row in group:
            versions = f"4.49: {row['in_4_49']}; 5.24: {row['in_5_24']}"
            status = STATUSES[row["status"]] + (f": {row['rsgen']}" if row["rsgen"] else "")
            tests = ", ".join(f"`{file}` `{test}`" for file, test in shown_by(row))
            lines.append(f"| {row['feature']} ({versions}) | {status} | {tests} |")
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """The page with its table."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
