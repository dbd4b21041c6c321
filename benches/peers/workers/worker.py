"""What workers have in common: a line protocol, with one JSON request and one JSON answer per line.

WORKER convert CHECKPOINT FOLDER WEIGHTS PACKAGE…
WORKER serve FOLDER THREADS [OPTION…]
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

# Seconds between the first prompts of two clients.
APART = 0.02

Ids = list[list[int]]
# What is called with the time of the first new token of a single text, in the seconds of `time.perf_counter`.
OnFirst = Callable[[float], None]
# From prompts, a number of new tokens, a number of beams and options to the new tokens of each prompt.
Generate = Callable[..., Ids]
# From a folder, a number of threads and further options.
Load = Callable[..., Generate]
# From a checkpoint, an empty folder for the converted model, the type of its weights, and the peer's packages.
Convert = Callable[[Path, Path, str, list[str]], None]


def main(load: Load, imports: list[str], convert: Convert | None = None) -> None:
    """Converts or serves. `imports` are imported before the time of `load` is taken."""
    verb, *arguments = sys.argv[1:]
    if verb == "convert":
        assert convert is not None
        checkpoint, folder, weights, *packages = arguments
        convert(Path(checkpoint), Path(folder), weights, packages)
        return
    folder, threads, *options = arguments
    # Libraries print what they like: the answers have a channel of their own.
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        for name in imports:
            import_module(name)
        begin = time.perf_counter()
        generate = load(folder, int(threads), *options)
        print(json.dumps({"load_seconds": time.perf_counter() - begin}), file=answers)
        for line in sys.stdin:
            print(json.dumps(answer(generate, json.loads(line))), file=answers)


def by_clients(generate: Generate) -> Callable[..., Ids]:
    """The function with `clients`, which send their prompts one by one, each of them a little later than the one before."""

    def generate_by_clients(
        prompts: Ids, new_tokens: int, num_beams: int, clients: int = 0, **options: int
    ) -> Ids:
        if clients == 0:
            return generate(prompts, new_tokens, num_beams, **options)

        def client(number: int) -> Ids:
            time.sleep(number * APART)
            return [generate([prompt], new_tokens, num_beams)[0] for prompt in prompts[number::clients]]

        tokens: Ids = [[] for _ in prompts]
        with ThreadPoolExecutor(clients) as pool:
            for number, answers in enumerate(pool.map(client, range(clients))):
                tokens[number::clients] = answers
        return tokens

    return generate_by_clients


def common_length(prompts: Ids) -> int:
    """How many tokens several prompts begin with alike, of which at least one is left to each."""
    if len(prompts) < 2:
        return 0
    tokens = enumerate(zip(*(prompt[:-1] for prompt in prompts), strict=False))
    return next((i for i, column in tokens if len(set(column)) > 1), min(map(len, prompts)) - 1)


def answer(generate: Generate, request: dict[str, object]) -> dict[str, object]:
    """The tokens and the time of a call, or with `since_first` from its first new token on, or why there are none."""
    first: list[float] = []
    if request.pop("since_first", 0):
        request["on_first"] = first.append
    begin = time.perf_counter()
    try:
        tokens = generate(**request)  # type: ignore[arg-type]
        seconds = time.perf_counter() - (first[0] if "on_first" in request else begin)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"seconds": seconds, "tokens": tokens}
