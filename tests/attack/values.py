"""Values that no sensible caller gives: numbers at the edges, texts of every kind and size, nests of lists and dicts."""

from __future__ import annotations

import random

NUMBERS = [
    *(
        0,
        1,
        -1,
        2,
        3,
        7,
        63,
        64,
        65,
        255,
        1000,
        2**16,
        2**31 - 1,
        2**31,
        2**32,
        2**53,
        2**63 - 1,
        2**63,
        2**64,
    ),
    *(-(2**31), -(2**63), 10**30, 0.0, -0.0, 0.5, 1.5, -0.5, 1e-300, 1e300, 1e-45),
]
UNUSUAL = [float("nan"), float("inf"), -float("inf")]
#: Characters that terminals, tokenizers and normalizers treat in ways of their own.
CHARS = [
    "a",
    "b",
    " ",
    "\n",
    "é",
    "ß",
    "İ",
    "ﷺ",
    "가",
    "😀",
    "\u0301",
    "\u202e",
    "\u200b",
    "\x1b[31m",
    "\0",
    "▁",
    "Ġ",
    "<",
    "{",
    "}",
    "%",
    '"',
    "\\",
]
WORDS = [
    "Once",
    " upon",
    " a",
    " time",
    "hello ",
    "<s>",
    "</s>",
    "{{ x }}",
    "0x0A",
    "<0x0A>",
    "../",
    "\x07",
    "\u2066",
]
#: Lengths of texts and lists: mostly short.
SIZES = [0, 1, 1, 2, 2, 3, 5, 10, 40, 100, 1000, 10_000]
LARGE_SIZES = [*SIZES, 100_000, 1_000_000]


def number(rng: random.Random) -> int | float:
    """A number, mostly of the edges."""
    if rng.random() < 0.3:
        return rng.randint(-20, 200)
    return rng.choice(NUMBERS)


def text(rng: random.Random, sizes: list[int] = SIZES) -> str:
    """A text: one piece many times, or a mixture."""
    size = rng.choice(sizes)
    if rng.random() < 0.6:
        return rng.choice(CHARS + WORDS) * size
    return "".join(rng.choice(CHARS + WORDS) for _ in range(min(size, 2000)))


def json_value(rng: random.Random, depth: int = 0) -> object:
    """Something that JSON can hold."""
    kind = rng.random()
    if kind < 0.35:
        return number(rng)
    if kind < 0.6:
        return text(rng)
    if kind < 0.75 or depth > 3:
        return rng.choice([None, True, False, "", [], {}])
    if kind < 0.8:
        return nest(rng)
    size = rng.choice([0, 1, 2, 3, 10])
    if kind < 0.9:
        return [json_value(rng, depth + 1) for _ in range(size)]
    return {text(rng)[:300]: json_value(rng, depth + 1) for _ in range(size)}


def nest(rng: random.Random) -> object:
    """A deep nest, or a wide list of one thing."""
    if rng.random() < 0.5:
        return [rng.choice([0, "", [], {}, None, -1, 1.5])] * rng.choice([10, 1000, 100_000])
    value: object = []
    for _ in range(rng.choice([5, 50, 500])):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value
