"""What a typed answer costs: the time of a token within a grammar over that of a free one, and the time to compile a type.

python benches/typed.py                                 # the bundled story model
python benches/typed.py path/to/llama

It needs the Python package, built for release. The type has 12 fields, 4 of them lists of objects, and compiles anew in each round. Free
calls of as many tokens and calls with the grammar take turns; a figure is the median over the rounds, of which the first
does not count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, fields, make_dataclass
from typing import Any, Literal

import rsgen


@dataclass
class Item:
    """A part of a list."""

    name: str
    count: int
    kind: Literal["red", "green", "blue"]


def drawn_type(number: int) -> type[Any]:
    """A type of its own: another one compiles anew."""
    kinds: list[Any] = [str, int, list[Item], bool | None, Literal["glad", "sad"], float]
    named = [(f"field_{number}_{place}", kinds[place % 6]) for place in range(10)]
    return make_dataclass("Drawn", [*named, (f"more_{number}", list[Item]), (f"last_{number}", list[Item])])


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a model's folder (default: the bundled model)")
    parser.add_argument("--tokenizer", help="the folder of a tokenizer, where the model has none")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()

    gen = rsgen.Generator(arguments.model, tokenizer=arguments.tokenizer)

    def seconds(**call: Any) -> tuple[float, int]:
        start = time.perf_counter()
        out = gen.generate("Once upon a time there was a", **call)
        return time.perf_counter() - start, out.usage.generated_tokens

    times = []
    for number in range(1 + arguments.rounds):
        kind = drawn_type(number)
        assert len(fields(kind)) == 12
        first, again = (seconds(output_type=kind, max_new_tokens=1)[0] for _ in range(2))
        within, count = seconds(output_type=kind, max_new_tokens=arguments.tokens)
        free, _ = seconds(max_new_tokens=count, min_new_tokens=count)
        times.append((first - again, within / free, count))
    compiling, ratio, count = (statistics.median(column) for column in zip(*times[1:], strict=True))
    print(f"a type of 12 fields compiles in {1000 * compiling:.0f} ms")
    print(f"{count:.0f} tokens within its grammar take {ratio:.2f} of the time of free ones")


if __name__ == "__main__":
    main()
