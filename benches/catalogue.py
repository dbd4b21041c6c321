"""A catalogue of a million entries: how long it takes to build, save and open, and what it adds to a search with beams.

python benches/catalogue.py                              # the bundled story model
python benches/catalogue.py target/peers/models/S        # a model of the size of SmolLM2-135M

It needs the Python package, built for release. Entries have 4 to 12 drawn tokens. Searches with the catalogue and free ones of as many
steps take turns; a figure is the median over the rounds, of which the first does not count.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rsgen

# The most seconds of a build, bytes of a token, and times of a search with the catalogue.
BUILD, BYTES, BEAMS = 3.0, 16, 1.15
# The steps of a search.
STEPS = 8


def seconds(work: Callable[[], Any]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Measures, and says what is slower than it should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a model's folder (default: the bundled model)")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--beams", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--compute-dtype", default="float32")
    arguments = parser.parse_args()

    gen = rsgen.Generator(arguments.model, compute_dtype=arguments.compute_dtype)
    draw = random.Random(0)
    words = range(3, gen.config["vocab_size"])
    # A set leaves out what is there twice.
    drawn = {tuple(draw.choices(words, k=draw.randint(4, 12))) for _ in range(arguments.entries)}
    entries = [list(entry) for entry in drawn]
    tokens = sum(map(len, entries))
    trie = rsgen.TokenTrie(entries[:10])

    def build() -> None:
        nonlocal trie
        trie = rsgen.TokenTrie(iter(entries))

    built = statistics.median(seconds(build) for _ in range(3))
    size = trie.memory_bytes / tokens
    print(f"{len(trie)} entries of {tokens} tokens: built in {built:.2f} s, {size:.1f} bytes a token")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalogue.trie"
        saved = seconds(lambda: trie.save(path))
        opened = seconds(lambda: rsgen.TokenTrie.open(path))
    print(f"saved in {saved:.2f} s, opened in {opened:.2f} s")

    prompt = [draw.choice(words) for _ in range(32)]
    # As many steps with the catalogue: none of these entries ends before.
    long = rsgen.TokenTrie(entry for entry in entries if len(entry) >= STEPS)
    call = {"num_beams": arguments.beams, "eos_token_id": 2, "pad_token_id": 0, "max_new_tokens": STEPS}

    def free() -> None:
        gen.beam_search(prompt, **call)

    def within() -> None:
        gen.beam_search(prompt, allowed_sequences=long, **call)

    times = [(seconds(free), seconds(within)) for _ in range(1 + arguments.rounds)][1:]
    of_free, of_catalogue = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(within / free for free, within in times)
    print(
        f"{arguments.beams} beams, {STEPS} steps: free {of_free:.2f} s, in the catalogue {of_catalogue:.2f} s, ratio {ratio:.2f}"
    )
    assert built <= BUILD, "it takes too long to build"
    assert size <= BYTES, "it takes too much memory"
    assert ratio <= BEAMS, "the search is too slow"


if __name__ == "__main__":
    main()
