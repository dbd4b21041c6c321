"""The line protocol of workers: one JSON request per line on standard input, one JSON answer per line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

PROMPT_LEN = 32
NEW_TOKENS = 64


def decode_seconds(generate: Callable[[list[int], int], list[int]], prompt: list[int]) -> dict[str, Any]:
    """The seconds of one new token, and the tokens: the time for 65 less the time for 1, by 64."""
    begin = time.perf_counter()
    generate(prompt, 1)
    middle = time.perf_counter()
    tokens = generate(prompt, 1 + NEW_TOKENS)
    end = time.perf_counter()
    return {"seconds": ((end - middle) - (middle - begin)) / NEW_TOKENS, "tokens": tokens}


def serve(load: Callable[[str, int], Callable[[list[int], int], list[int]]]) -> None:
    """Answers requests until the input ends. `load(folder, threads)` gives a function that generates greedily."""
    begin = time.perf_counter()
    generate = load(sys.argv[1], int(sys.argv[2]))
    print(json.dumps({"load_seconds": time.perf_counter() - begin}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(decode_seconds(generate, request["prompt"])), flush=True)
