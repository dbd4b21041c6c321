"""Many requests at once: how threads, asynchronous streams and clients of the server fare against one list.

python benches/serve.py target/peers/models/S            # a folder; the peers' benchmark writes it
python benches/serve.py MODEL --task shared --rounds 9

It needs the Python package, with the command `rsgen serve`. What is compared takes turns in one run, and every call has
prompts of its own, so that none is remembered. Figures are medians over the rounds; the first ones do not count: a KV cache is
full by then and takes no new memory, as in a server that runs for long.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import rsgen
from serving import Server, events

Ids = list[list[int]]
REQUESTS, NEW_TOKENS = 16, 64
SHORTEST, LONGEST = 32, 512
KV_CACHE_BYTES, FIRST_ROUNDS = 1 << 30, 3
# Of the prompt that requests share, and of each of their ends.
SHARED, END = 1000, 8


class Run:
    """A model in this process, and the same in a server."""

    def __init__(self, gen: rsgen.Generator, server: Server, rounds: int) -> None:
        self.gen, self.server, self.rounds = gen, server, rounds
        self.choose = random.Random(0)

    def ids(self, length: int) -> list[int]:
        """A prompt that was not used before."""
        top = min(7000, self.gen.config["vocab_size"] - 1)
        return [self.choose.randint(10, top) for _ in range(length)]

    def prompts(self) -> Ids:
        """Prompts for all requests; their lengths are the same every time."""
        lengths = random.Random(0)
        return [self.ids(lengths.randint(SHORTEST, LONGEST)) for _ in range(REQUESTS)]

    def in_turns(self, ways: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
        """What each way measures in each round."""
        measured: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(self.rounds + FIRST_ROUNDS):
            for name, way in ways.items():
                value = way()
                if turn >= FIRST_ROUNDS:
                    measured[name].append(value)
        return measured


def exactly(tokens: int) -> dict[str, object]:
    """Greedy decoding of so many tokens, whatever they are."""
    return {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}


def at_once(run: Run) -> None:
    """Tokens a second of 16 requests: one list, and each request on its own at the same time."""
    gen, fields = run.gen, exactly(NEW_TOKENS)

    def tokens_a_second(work: Callable[[Ids], list[int]]) -> float:
        prompts = run.prompts()
        begin = time.perf_counter()
        counts = work(prompts)
        seconds = time.perf_counter() - begin
        assert counts == [NEW_TOKENS] * REQUESTS, counts
        return sum(counts) / seconds

    def one_list(prompts: Ids) -> list[int]:
        return list(map(len, gen.generate(prompts, **fields).token_ids))

    def threads(prompts: Ids) -> list[int]:
        with ThreadPoolExecutor(REQUESTS) as pool:
            return list(pool.map(lambda prompt: len(gen.generate(prompt, **fields).token_ids[0]), prompts))

    def streams(prompts: Ids) -> list[int]:
        async def count(prompt: list[int]) -> int:
            async with gen.astream(prompt, **fields) as stream:
                return sum([1 async for _ in stream])

        async def all_of_them() -> list[int]:
            return list(await asyncio.gather(*map(count, prompts)))

        return asyncio.run(all_of_them())

    def clients(prompts: Ids) -> list[int]:
        with ThreadPoolExecutor(REQUESTS) as pool:
            return list(
                pool.map(lambda prompt: len(list(token_times(run.server, prompt, NEW_TOKENS))), prompts)
            )

    ways = {"list": one_list, "threads": threads, "async streams": streams, "clients": clients}
    measured = run.in_turns({name: lambda way=way: tokens_a_second(way) for name, way in ways.items()})
    print(f"{REQUESTS} requests of {SHORTEST} to {LONGEST} tokens, {NEW_TOKENS} new ones each, all at once")
    for name, figures in measured.items():
        ratio = median_ratio(figures, measured["list"])
        print(f"  {name:16} {statistics.median(figures):10.1f} tok/s {ratio:8.2f} of the list's")


def token_times(server: Server, prompt: list[int], new_tokens: int) -> Iterator[float]:
    """When each token of a request arrives."""
    body = {
        "prompt": prompt,
        "max_tokens": new_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": True,
    }
    for event in events(server, "/v1/completions", body):
        for choice in event["choices"]:
            for _ in choice.get("token_ids") or []:
                yield time.perf_counter()


def between_tokens(run: Run) -> None:
    """The time between the tokens of one request: through HTTP, and in the library."""
    tokens = 128

    def library() -> float:
        with run.gen.stream(run.ids(SHORTEST), **exactly(tokens)) as stream:
            return median_gap([time.perf_counter() for _ in stream])

    def http() -> float:
        return median_gap(list(token_times(run.server, run.ids(SHORTEST), tokens)))

    measured = run.in_turns({"library": library, "HTTP": http})
    print(f"one request of {SHORTEST} tokens, {tokens} new ones: the median time between two tokens")
    for name, figures in measured.items():
        ratio = median_ratio(figures, measured["library"])
        print(f"  {name:16} {1e3 * statistics.median(figures):10.3f} ms {ratio:8.3f} of the library's")


def shared(run: Run) -> None:
    """A long prompt with different ends: a call for each end at once, and as if it were computed once."""
    gen, fields = run.gen, exactly(1)
    computed: list[int] = []

    def once() -> float:
        begin = time.perf_counter()
        gen.generate(run.ids(SHARED + REQUESTS * END), **fields)
        return time.perf_counter() - begin

    def each() -> float:
        start = run.ids(SHARED)
        prompts = [start + run.ids(END) for _ in range(REQUESTS)]
        begin = time.perf_counter()
        with ThreadPoolExecutor(REQUESTS) as pool:
            usages = [
                output.usage for output in pool.map(lambda prompt: gen.generate(prompt, **fields), prompts)
            ]
        seconds = time.perf_counter() - begin
        computed.append(sum(usage.prompt_tokens - usage.cached_prompt_tokens for usage in usages))
        return seconds

    measured = run.in_turns({"once": once, "each": each})
    print(f"{REQUESTS} requests at once that share {SHARED} tokens and end in {END} of their own")
    least = SHARED + REQUESTS * END
    print(
        f"  computed tokens of prompts {max(computed)}, {max(computed) / least:.3f} of the {least} different ones"
    )
    ratio = median_ratio(measured["each"], measured["once"])
    print(
        f"  seconds {statistics.median(measured['each']):.3f}, {ratio:.3f} of those of one prompt of {least} tokens"
    )


def arrival(run: Run) -> None:
    """What a long prompt does to the time between the tokens of running streams."""
    length, streams, tokens = 1900, 8, 100

    def longest_gap() -> float:
        times: Ids = [[] for _ in range(streams)]

        def read(index: int) -> None:
            with run.gen.stream(run.ids(SHORTEST), **exactly(tokens)) as stream:
                times[index].extend(time.perf_counter() for _ in stream)

        with ThreadPoolExecutor(streams) as pool:
            readers = [pool.submit(read, index) for index in range(streams)]
            while min(map(len, times)) < tokens // 4:
                time.sleep(0.001)
            run.gen.generate(run.ids(length), **exactly(1))
            for reader in readers:
                reader.result()
        gaps = [end - begin for row in times for begin, end in pairwise(row)]
        return max(gaps) / statistics.median(gaps)

    ratio = statistics.median(run.in_turns({"": longest_gap})[""])
    print(f"a prompt of {length} tokens arrives while {streams} streams run")
    print(f"  the longest time between two tokens is {ratio:.2f} of the median")


def median_gap(times: list[float]) -> float:
    """Between two that follow each other."""
    return statistics.median(end - begin for begin, end in pairwise(times))


def median_ratio(above: list[float], below: list[float]) -> float:
    """Of what was measured in the same round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


TASKS = {"at_once": at_once, "between_tokens": between_tokens, "shared": shared, "arrival": arrival}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--task", action="append", choices=list(TASKS), help="all of them if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compute-dtype", default="bfloat16")
    arguments = parser.parse_args()
    options = {
        "num_threads": arguments.threads,
        "compute_dtype": arguments.compute_dtype,
        "kv_cache_bytes": KV_CACHE_BYTES,
    }
    gen = rsgen.Generator(arguments.model, **options)
    flags = [text for name, value in options.items() for text in ("--" + name.replace("_", "-"), str(value))]
    with Server([arguments.model, *flags]) as server:
        run = Run(gen, server, arguments.rounds)
        for name in arguments.task or TASKS:
            TASKS[name](run)


if __name__ == "__main__":
    main()
