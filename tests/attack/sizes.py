"""Draws values of every field that a request sizes, long ones, in a process with little memory left."""

from __future__ import annotations

import random
import re
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import rsgen
from hostile import Folder

from attack.children import Step

#: How long the values are.
LENGTHS = [1 << 12, 1 << 16, 1 << 18, 1 << 20]
#: What a process may allocate besides what it has.
MORE_BYTES = [64 << 20, 256 << 20, 1 << 30]

Maker = Callable[[int], object]


def ids(length: int) -> list[int]:
    """Token ids, of which most are no tokens."""
    return list(range(length))


def lists(length: int) -> list[list[int]]:
    """Lists of ids."""
    return [[index % 64, index] for index in range(length)]


#: Values by what the annotation of a field says, the first that fits.
FORMS: list[tuple[str, Maker]] = [
    ("list[list[list[int]", lambda length: [[[index % 64], [index % 64, 5]] for index in range(length)]),
    ("list[list[list[int] | float", lambda length: [[[index % 64], 1.0] for index in range(length)]),
    ("list[list[int]", lists),
    ("dict[tuple", lambda length: {(index % 64, index): 1.0 for index in range(length)}),
    ("dict[int", lambda length: dict.fromkeys(range(length), 1.0)),
    ("list[int", ids),
    ("dict[str", lambda length: {"enum": [str(index) for index in range(length)]}),
    ("list[str", lambda length: [str(index) for index in range(length)]),
    ("str", lambda length: "a" * (16 * length)),
]


def sized() -> dict[str, list[Maker]]:
    """The fields with the ways to make their values long."""
    fields = {}
    for field in rsgen._rsgen._tables()["fields"]:
        annotation = re.sub(r"Literal\[[^]]*\]", "", field["type"])
        makers = [make for form, make in FORMS if form in annotation]
        if makers:
            fields[field["name"]] = makers
    return fields


def limit_memory(more_bytes: int) -> None:
    """Lets this process allocate only so much besides what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def case(seed: int, path: Path) -> Iterator[Step]:
    """Each field once, in one process."""
    rng = random.Random(seed)
    path.mkdir()
    folder = Folder(path)
    folder.tokenizer()
    gen = rsgen.Generator(path, num_threads=1, kv_cache_bytes=1 << 20)
    limit_memory(rng.choice(MORE_BYTES))
    for name, makers in sized().items():
        make, length = rng.choice(makers), rng.choice(LENGTHS)
        beams = {"num_beams": 2} if name == "force_words_ids" else {}

        def call(make: Maker = make, length: int = length, name: str = name, beams: dict = beams) -> object:
            try:
                value = make(length)
            except MemoryError:
                return None
            return gen.generate([1, 2], max_new_tokens=1, **{name: value}, **beams)

        yield f"size {seed}: {name} of {length}", call
