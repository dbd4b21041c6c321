"""What was measured as data, and as tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import Ids, Task
from turns import Measured, Worker

# Figures of the peers taken by hand, which a run is held against.
REFERENCE = json.loads((Path(__file__).resolve().parent / "reference.json").read_text())

# Why a figure is missing that was measured.
NOISE = "the longer call took less time than the shorter one: measure more rounds, with nothing else at work"

# How far apart the bits per weight of two models of the same precision may be.
SAME_BITS = 0.05
APART = "* bits per weight more than 5 % apart from those of rsgen"

# A row of a table: a worker's name and figures, or why it has none.
Row = dict[str, Any]
# Heading, width and text of a column.
Column = tuple[str, int, Callable[[Row], str]]


def reference(shape: str, name: str, figure: str) -> float | None:
    """The reference figure of a peer; those of one kind share it."""
    rows = (row for key, row in REFERENCE.get(shape, {}).items() if name.startswith(key))
    return next(rows, {}).get(figure)


def same_tokens(tokens: Ids, others: Ids) -> list[int]:
    """How many tokens are equal, and of how many."""
    pairs = [pair for rows in zip(tokens, others, strict=True) for pair in zip(*rows, strict=True)]
    return [sum(a == b for a, b in pairs), len(pairs)]


def task_rows(
    shape: str, name: str, task: Task, measured: dict[str, Measured], bits: dict[str, float], peers: set[str]
) -> list[Row]:
    """A row for each worker, in the order of `measured`; the first is what tokens and bits per weight are held against."""
    medians = {
        name: statistics.median(result.seconds) for name, result in measured.items() if result.missing is None
    }
    # What is the difference of two calls can come out below zero when the machine was busy in one of them.
    there = {name: measured[name] for name, seconds in medians.items() if seconds > 0}
    first = next(iter(there.values()), Measured())
    # The peer that the first fares worst against.
    best = min(
        (name for name in there if name in peers),
        key=lambda name: median_ratio(there[name].seconds, first.seconds),
        default=None,
    )
    rows = []
    for worker, result in measured.items():
        if worker not in there:
            rows.append({"name": worker, "missing": result.missing or NOISE})
            continue
        figure, expected = task.figure(medians[worker]), reference(shape, worker, name)
        rows.append(
            {
                "name": worker,
                "figure": figure,
                "unit": task.unit,
                "seconds": medians[worker],
                "bits_per_weight": bits[worker],
                "bits_apart": abs(bits[worker] / bits[next(iter(measured))] - 1) > SAME_BITS,
                "over_read": median_ratio(result.seconds, result.reads),
                # Higher is better, and the best peer is 1.
                "score": median_ratio(there[best].seconds, result.seconds) if best else None,
                "over_reference": figure / expected if expected else None,
                "same_tokens": same_tokens(result.tokens, first.tokens),
                "all_seconds": result.seconds,
                "all_read_seconds": result.reads,
            }
        )
    return rows


def load_rows(shape: str, workers: list[Worker], checkpoint_bytes: int, peers: set[str]) -> list[Row]:
    """The time of loading and the largest resident memory of each worker."""
    loads = {worker.name: statistics.median(worker.loads) for worker in workers if worker.missing is None}
    best = min((seconds for name, seconds in loads.items() if name in peers), default=None)
    rows = []
    for worker in workers:
        if worker.missing is not None:
            rows.append({"name": worker.name, "missing": worker.missing})
            continue
        seconds, rss = loads[worker.name], worker.peak_rss
        load, memory = (reference(shape, worker.name, key) for key in ("load_seconds", "peak_rss_mb"))
        rows.append(
            {
                "name": worker.name,
                "figure": seconds,
                "unit": "s",
                "score": best / seconds if best else None,
                "over_reference": seconds / load if load else None,
                "peak_rss_bytes": rss,
                "rss_over_file": rss / checkpoint_bytes,
                "rss_over_reference": rss / 1e6 / memory if memory else None,
                "stayed": worker.stays,
                "all_seconds": worker.loads,
            }
        )
    return rows


def median_ratio(above: list[float], below: list[float]) -> float:
    """Of what was measured in the same round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def number(key: str, digits: int, scale: float = 1.0) -> Callable[[Row], str]:
    """The text of a figure, a dash if there is none."""
    return lambda row: "–" if row[key] is None else f"{scale * row[key]:.{digits}f}"


TASK_COLUMNS: list[Column] = [
    ("figure", 10, lambda row: f"{row['figure']:.{1 if row['unit'] == 'tok/s' else 3}f}"),
    ("ms", 10, number("seconds", 2, 1e3)),
    ("bits", 9, lambda row: f"{row['bits_per_weight']:.2f}{'*' if row['bits_apart'] else ' '}"),
    ("÷ read", 9, number("over_read", 2)),
    ("best peer = 1", 15, number("score", 2)),
    ("÷ reference", 13, number("over_reference", 2)),
    ("same tokens", 13, lambda row: "{} of {}".format(*row["same_tokens"])),
]
LOAD_COLUMNS: list[Column] = [
    ("load s", 10, number("figure", 2)),
    ("best peer = 1", 15, number("score", 2)),
    ("÷ reference", 13, number("over_reference", 2)),
    ("peak RSS MB", 13, number("peak_rss_bytes", 0, 1e-6)),
    ("÷ file", 8, number("rss_over_file", 2)),
    ("÷ reference", 13, number("rss_over_reference", 2)),
]


def table(title: str, columns: list[Column], rows: list[Row]) -> str:
    """The rows as text, and why some are missing."""
    lines = [title, f"{'':24}" + "".join(f"{heading:>{width}}" for heading, width, _ in columns)]
    for row in rows:
        if "missing" in row:
            lines.append(f"{row['name']:24}  missing: {row['missing']}")
        else:
            lines.append(f"{row['name']:24}" + "".join(f"{text(row):>{width}}" for _, width, text in columns))
    if any(row.get("bits_apart") for row in rows):
        lines.append(APART)
    return "\n".join(lines) + "\n"
