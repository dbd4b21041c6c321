"""Draws the speed of a run as curves: against the tokens of the context, and against the requests at once.

python benches/peers/curves.py RESULT.json PICTURE.svg [SHAPE PRECISION]
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from picture import STYLE as BARS_STYLE
from tasks import TASKS, Task

# A chart: its size, what is left for labels, and the room for names behind the last point.
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, NAMES = 560, 260, 52, 34, 40, 170
DOT = 3
STYLE = (
    BARS_STYLE
    + """
.grid { stroke: #d0d7de }
.rsgen { stroke: #c2410c }
.peer { stroke: #8c959f }
polyline { stroke-width: 2; fill: none !important }
@media (prefers-color-scheme: dark) {
  .grid { stroke: #30363d }
  .rsgen { stroke: #fb923c }
  .peer { stroke: #6e7681 }
}
"""
)


@dataclass(frozen=True)
class Curve:
    """What a chart shows: the tasks that belong to it, and where they are on its axis."""

    title: str
    axis: str
    belongs: Callable[[Task], bool]
    place: Callable[[Task], int]


CURVES = [
    Curve(
        "Tokens a second of one text",
        "tokens of context",
        lambda task: task.decoding and task.num_prompts == 1,
        lambda task: task.prompt_len,
    ),
    Curve(
        "Tokens a second of all requests that share a system prompt of 1,000 tokens",
        "requests at once",
        lambda task: task.shared_len > 0,
        lambda task: task.num_prompts,
    ),
]
# The ways in which rsgen, llama.cpp and OpenVINO are measured.
WAYS = ("calls", "unified", "separate", "paged", "SDPA", "batch256", "batch2048")
# From a worker's name to its points: a place on the axis, and tokens a second.
Lines = dict[str, list[tuple[int, float]]]


def lines_of(tasks: dict[str, list[dict[str, Any]]], curve: Curve) -> Lines:
    """The points of each worker in the order of the axis: of several ways that a library has, the one that is fastest there."""
    fastest: dict[str, dict[int, float]] = {}
    for name, rows in tasks.items():
        if curve.belongs(TASKS[name]):
            place = curve.place(TASKS[name])
            for row in rows:
                if "figure" in row:
                    points = fastest.setdefault(without_way(row["name"]), {})
                    points[place] = max(points.get(place, 0.0), row["figure"])
    return {name: sorted(points.items()) for name, points in fastest.items()}


def without_way(name: str) -> str:
    """The name of a worker without the word that says which of its ways it goes."""
    library, _, way = name.rpartition(" ")
    return library if way in WAYS else name


def chart(curve: Curve, lines: Lines) -> str:
    """Both axes are logarithms, so that a ratio is the same distance everywhere."""
    points = [point for line in lines.values() for point in line]
    places, figures = sorted({place for place, _ in points}), [figure for _, figure in points]
    low, high = min(figures) / 1.15, max(figures) * 1.15

    def x(place: int) -> float:
        span = math.log(places[-1] / places[0])
        return LEFT + 10 + math.log(place / places[0]) / span * (WIDTH - LEFT - NAMES - 20)

    def y(figure: float) -> float:
        return HEIGHT - BOTTOM - math.log(figure / low) / math.log(high / low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text class="heading" x="0" y="16">{escape(curve.title)}</text>']
    for figure in ticks(low, high):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - NAMES}" y1="{y(figure):.1f}" y2="{y(figure):.1f}"/>'
            f'<text class="faint" x="{LEFT - 6}" y="{y(figure) + 4:.1f}" text-anchor="end">{figure:g}</text>'
        )
    for place in places:
        text = f"{place // 1024}k" if place >= 1024 else str(place)
        parts.append(
            f'<text class="faint" x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text}</text>'
        )
    middle = (LEFT + WIDTH - NAMES) / 2
    parts.append(
        f'<text class="faint" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{curve.axis}</text>'
    )
    # Names keep a line's distance from each other, and are behind all lines, also those that end early.
    above = math.inf
    for name, line in sorted(lines.items(), key=lambda item: -y(item[1][-1][1])):
        kind = "rsgen" if name.startswith("rsgen") else "peer"
        path = " ".join(f"{x(place):.1f},{y(figure):.1f}" for place, figure in line)
        parts.append(f'<polyline class="{kind}" points="{path}"/>')
        parts += [
            f'<circle class="{kind}" cx="{x(place):.1f}" cy="{y(figure):.1f}" r="{DOT}"/>'
            for place, figure in line
        ]
        above = min(y(line[-1][1]) + 4, above - 14)
        parts.append(f'<text x="{WIDTH - NAMES + 2}" y="{above:.1f}">{escape(name)}</text>')
    return "\n".join(parts)


def ticks(low: float, high: float) -> list[float]:
    """The round numbers between both."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [
        step * 10.0**power
        for power in range(first, last + 1)
        for step in (1, 2, 5)
        if low <= step * 10.0**power <= high
    ]


def draw(tasks: dict[str, list[dict[str, Any]]]) -> str:
    """The charts that the tasks have at least two points of, below each other."""
    charts = [(curve, lines_of(tasks, curve)) for curve in CURVES]
    charts = [(curve, lines) for curve, lines in charts if max(map(len, lines.values()), default=0) > 1]
    height = len(charts) * (HEIGHT + 20)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        f"<title>{escape('; '.join(curve.title for curve, _ in charts))}</title>",
        f"<style>{STYLE}</style>",
        *(
            f'<g transform="translate(0 {i * (HEIGHT + 20)})">\n{chart(curve, lines)}\n</g>'
            for i, (curve, lines) in enumerate(charts)
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    source, target, *which = sys.argv[1:]
    shapes = json.loads(Path(source).read_text())["shapes"]
    shape, precision = which or next((shape, next(iter(shapes[shape]))) for shape in shapes)
    Path(target).write_text(draw(shapes[shape][precision]["tasks"]))
