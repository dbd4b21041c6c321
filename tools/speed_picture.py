"""Writes docs/speed.svg from the tables of speed in the README.

    python tools/speed_picture.py

A test compares the picture with what this would write.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "speed.svg"
HEADER = re.compile(r"^\| (bfloat16|quantized weights) \| (.+) \|\n\|[-|]+\n((?:\|.+\n)+)", re.MULTILINE)
COLOURS = ["#3949ab", "#00897b", "#7e57c2", "#ef6c00", "#1e88e5", "#c0392b"]

LEFT, TOP, WIDTH, SCALE = 130, 84, 760, 160
BAR, GAP = 13, 20


def rows() -> tuple[list[str], list[tuple[str, list[float]]]]:
    """The tasks, and for each model how many times as fast it is as the fastest peer, the lowest of several runs."""
    tasks: list[str] = []
    models = []
    for table, header, lines in HEADER.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        tasks = header.split(" | ")
        for line in lines.splitlines():
            name, *cells = line.strip("| ").split(" | ")
            name = name.removeprefix("the shape of ").replace("`", "")
            values = [min(float(number) for number in re.findall(r"\d+\.\d+", cell)) for cell in cells]
            models.append((name if table != "bfloat16" else f"{name}, bfloat16", values))
    return tasks, models


def picture() -> str:
    """The picture, as SVG."""
    tasks, models = rows()
    group = len(models) * BAR + GAP
    height = TOP + len(tasks) * group + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        "<title>How many times as fast rsgen is as the fastest of its peers</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
    ]
    for number, (name, _) in enumerate(models):
        x, y = 20 + number % 3 * 245, 18 + number // 3 * 22
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[number]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 10}" fill="#222222">{name}</text>')
    for times in range(4):
        x = LEFT + times * SCALE
        colour, width = ("#222222", 2) if times == 1 else ("#cccccc", 1)
        parts.append(
            f'<line x1="{x}" y1="{TOP - 6}" x2="{x}" y2="{height - 16}" stroke="{colour}" stroke-width="{width}"/>'
        )
        label = "1 = the fastest peer" if times == 1 else str(times)
        parts.append(f'<text x="{x}" y="{TOP - 12}" text-anchor="middle" fill="#444444">{label}</text>')
    for task, name in enumerate(tasks):
        top = TOP + task * group
        middle = top + len(models) * BAR / 2
        parts.append(
            f'<text x="{LEFT - 10}" y="{middle + 4:g}" text-anchor="end" fill="#222222">{name}</text>'
        )
        for number, (_, values) in enumerate(models):
            y, length = top + number * BAR, values[task] * SCALE
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{length:g}" height="{BAR - 2}" fill="{COLOURS[number]}"/>'
            )
            parts.append(
                f'<text x="{LEFT + length + 5:g}" y="{y + 9.5:g}" font-size="10" fill="#444444">{values[task]:.2f}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
