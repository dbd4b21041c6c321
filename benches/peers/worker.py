"""The line protocol of workers: one JSON request per line on standard input, one JSON answer per line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

Ids = list[list[int]]
# From prompts of one length, a number of new tokens and a number of beams to the new tokens of each prompt.
Generate = Callable[[Ids, int, int], Ids]


def serve(load: Callable[[str, int], Generate]) -> None:
    """Answers requests until the input ends. `load(folder, threads)` gives a function that generates."""
    begin = time.perf_counter()
    generate = load(sys.argv[1], int(sys.argv[2]))
    print(json.dumps({"load_seconds": time.perf_counter() - begin}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        begin = time.perf_counter()
        tokens = generate(request["prompts"], request["new_tokens"], request["num_beams"])
        print(json.dumps({"seconds": time.perf_counter() - begin, "tokens": tokens}), flush=True)
