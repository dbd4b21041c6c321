"""Draws the scores of a run as bars, legible on light and on dark pages.

python benches/peers/picture.py RESULT.json PICTURE.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

# A column for each shape and precision: names, then bars of up to this length, then figures.
NAMES, LONGEST = 150, 190
# Where scores end, and the column, with a margin to the next.
SCORES, COLUMN, MARGIN = NAMES + LONGEST + 36, NAMES + LONGEST + 150, 36
BAR, GAP, HEADING = 14, 4, 34
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.heading { font-weight: 600 }
.faint { fill: #57606a }
.rsgen { fill: #c2410c }
.peer { fill: #8c959f }
.best { stroke: #57606a; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .faint { fill: #9ea7b3 }
  .rsgen { fill: #fb923c }
  .peer { fill: #6e7681 }
  .best { stroke: #9ea7b3 }
}
"""


def draw(result: dict[str, Any]) -> str:
    """The picture of a run's data: bars for each task, the best peer 1.00."""
    columns = [
        column(f"{shape} in {precision}", figures["tasks"])
        for shape, precisions in result["shapes"].items()
        for precision, figures in precisions.items()
    ]
    width, bottom = COLUMN * len(columns), max((bottom for _, bottom in columns), default=0)
    size = f'viewBox="0 0 {width} {bottom}" width="{width}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<title>rsgen and its peers: the best peer of each task is 1.00, longer is faster</title>",
        f"<style>{STYLE}</style>",
        *(f'<g transform="translate({COLUMN * i} 0)">\n{text}\n</g>' for i, (text, _) in enumerate(columns)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def column(model: str, tasks: dict[str, list[dict[str, Any]]]) -> tuple[str, int]:
    """The groups of a shape in a precision, and where they end."""
    groups = {task: [row for row in rows if row.get("score") is not None] for task, rows in tasks.items()}
    longest = max((row["score"] for rows in groups.values() for row in rows), default=1.0)
    parts, top = [], 0
    for task, rows in groups.items():
        parts.append(group(f"{task} on {model}", rows, top, LONGEST / longest))
        top += height(rows)
    return "\n".join(parts), top


def height(rows: list[dict[str, Any]]) -> int:
    """Of a group."""
    return HEADING + len(rows) * (BAR + GAP) + 2 * GAP


def group(heading: str, rows: list[dict[str, Any]], top: int, scale: float) -> str:
    """The bars of a task, the longest first."""
    bottom = top + height(rows) - 2 * GAP
    best = NAMES + scale
    parts = [
        f'<text class="heading" x="0" y="{top + HEADING - 12}">{escape(heading)}</text>',
        f'<text class="faint" x="{best:.1f}" y="{top + HEADING - 12}" text-anchor="middle">best peer</text>',
    ]
    for index, row in enumerate(sorted(rows, key=lambda row: -row["score"])):
        y = top + HEADING + index * (BAR + GAP)
        kind, length = "rsgen" if row["name"].startswith("rsgen") else "peer", scale * row["score"]
        figure = f"{row['figure']:.{0 if row['figure'] >= 100 else 1 if row['figure'] >= 10 else 2}f} {row['unit']}"
        text = y + BAR - 3
        parts += [
            f'<text x="{NAMES - 8}" y="{text}" text-anchor="end">{escape(row["name"])}</text>',
            f'<rect class="{kind}" x="{NAMES}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{SCORES}" y="{text}" text-anchor="end">{row["score"]:.2f}</text>',
            f'<text class="faint" x="{COLUMN - MARGIN}" y="{text}" text-anchor="end">{figure}</text>',
        ]
    parts.append(
        f'<line class="best" x1="{best:.1f}" x2="{best:.1f}" y1="{top + HEADING - 6}" y2="{bottom}"/>'
    )
    return "\n".join(parts)


if __name__ == "__main__":
    source, target = sys.argv[1:]
    Path(target).write_text(draw(json.loads(Path(source).read_text())))
