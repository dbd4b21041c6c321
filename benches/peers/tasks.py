"""The tasks: what is timed, and in which unit it is told."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Ids = list[list[int]]
# A call of a worker: from prompts, new tokens and beams to its seconds; with `clients` if the task has any.
Call = Callable[..., float]
# Of the tokens of a model whose text is known, those below the first number come again after `PERIOD` of them; from there
# to the second, each is followed by the next.
REPEATING, NAMED, PERIOD = 16000, 32000, 32


@dataclass(frozen=True)
class Task:
    """What is timed: a call, or, for `decoding`, what each new token but the first adds to it."""

    prompt_len: int
    # Prompts of different lengths: `prompt_len` is the shortest, this the longest.
    longest_prompt: int | None = None
    num_prompts: int = 1
    new_tokens: int = 1
    num_beams: int = 1
    decoding: bool = False
    # Whether the time counts from before the model is loaded.
    loading: bool = False
    # Whether the model's files are on the disk alone, and not in the page cache.
    cold: bool = False
    # The tokens that the figure counts per second; None if the figure is the seconds themselves.
    counted: int | None = None
    # Whether the prompts are sources, for models with an encoder.
    of_sources: bool = False
    # The tokens that all prompts begin with, which a peer may compute once for all of them.
    shared_len: int = 0
    # Callers that send the prompts one by one, each of them a little later than the one before; 0 for a single call.
    clients: int = 0
    # Whether the time counts from the first new token on, which the worker tells: the time of a long prompt differs by more
    # from one call to the next than the tokens behind it take.
    since_first: bool = False
    # The candidates of prompt lookup for each token; 0 without it.
    lookup: int = 0
    # Whether what is looked up is always wrong, instead of right once the text repeats itself.
    misleads: bool = False

    def prompt_lens(self) -> list[int]:
        """The tokens of each prompt behind those that all share: the same in every run."""
        choose = random.Random(0)
        return [
            choose.randint(self.prompt_len, self.longest_prompt or self.prompt_len)
            for _ in range(self.num_prompts)
        ]

    def context(self) -> int:
        """The tokens of its longest text."""
        return self.shared_len + (self.longest_prompt or self.prompt_len) + self.new_tokens

    def options(self) -> dict[str, int]:
        """What a call is asked for besides the new tokens and the beams."""
        options = {"clients": self.clients, "lookup": self.lookup, "since_first": int(self.since_first)}
        return {name: value for name, value in options.items() if value}

    def seconds(self, call: Call, prompts: Callable[[], Ids]) -> float:
        """Runs the task once. Every call has prompts of its own, lest they are remembered."""
        options = self.options()
        if not self.decoding:
            return call(prompts(), self.new_tokens, self.num_beams, **options)
        if self.since_first:
            return call(prompts(), 1 + self.new_tokens, 1, **options) / self.new_tokens
        first = call(prompts(), 1, 1, **options)
        return (call(prompts(), 1 + self.new_tokens, 1, **options) - first) / self.new_tokens

    @property
    def unit(self) -> str:
        """The unit of `figure`."""
        return "s" if self.counted is None else "tok/s"

    def figure(self, seconds: float) -> float:
        """What a peer's reference figure is held against."""
        return seconds if self.counted is None else self.counted / seconds


def of_clients(count: int) -> Task:
    """Requests at once, with a system prompt of 1,000 tokens that all share."""
    return Task(32, longest_prompt=128, num_prompts=count, new_tokens=64, counted=count * 64, shared_len=1000)


def of_lookup(
    prompt_len: int = 32, num_prompts: int = 1, new_tokens: int = 128, misleads: bool = False
) -> Task:
    """A token with prompt lookup, of a text that repeats itself or of one that misleads."""
    return Task(
        prompt_len,
        num_prompts=num_prompts,
        new_tokens=new_tokens,
        decoding=True,
        counted=num_prompts,
        lookup=10,
        misleads=misleads,
    )


def behind(prompt_len: int) -> Task:
    """A token of one text, behind a long prompt."""
    return Task(prompt_len, new_tokens=64, decoding=True, counted=1, since_first=True)


TASKS = {
    "first_token": Task(32, loading=True),
    "first_token_cold": Task(32, loading=True, cold=True),
    "prefill512": Task(512, counted=512),
    "prefill2048": Task(2048, counted=2048),
    "prefill8k": Task(8192, counted=8192),
    "decode_b1": Task(32, new_tokens=64, decoding=True, counted=1),
    "decode_512": behind(512),
    "decode_2k": behind(2048),
    "decode_8k": behind(8192),
    "decode_16k": behind(16384),
    "decode_b8": Task(32, num_prompts=8, new_tokens=32, decoding=True, counted=8),
    "beam4": Task(128, new_tokens=64, num_beams=4),
    "beam8": Task(512, new_tokens=32, num_beams=8),
    "beam4_4k": Task(4096, new_tokens=32, num_beams=4),
    "serve16": Task(32, longest_prompt=512, num_prompts=16, new_tokens=64, counted=16 * 64),
    **{f"serve{count}_1k": of_clients(count) for count in (1, 4, 16, 64)},
    "sentence": Task(30, new_tokens=30, num_beams=4, of_sources=True),
    "sentences64": Task(8, 60, 64, new_tokens=30, num_beams=4, counted=64 * 30, of_sources=True),
    "clients8": Task(8, 60, 32, new_tokens=30, num_beams=4, counted=32 * 30, of_sources=True, clients=8),
    "documents16": Task(600, num_prompts=16, new_tokens=80, num_beams=4, counted=16 * 80, of_sources=True),
    "lookup": of_lookup(),
    "lookup_b8": of_lookup(num_prompts=8, new_tokens=64),
    "lookup_wrong": of_lookup(prompt_len=129, misleads=True),
    "lookup_wrong_b8": of_lookup(prompt_len=129, num_prompts=8, new_tokens=64, misleads=True),
}
# Requests of a service: only workers that batch prompts of different lengths run it.
SERVING = tuple(name for name in TASKS if name.startswith("serve"))
# What counts loading: a packed model differs in nothing else.
LOADING = tuple(name for name, task in TASKS.items() if task.loading)
# What models with an encoder are measured on.
SOURCES = tuple(name for name, task in TASKS.items() if task.of_sources)
# What has prompt lookup, on a model whose text is known.
LOOKUPS = tuple(name for name, task in TASKS.items() if task.lookup)
# What is one call of a library on a model without an encoder.
CALLS = tuple(name for name in TASKS if name not in SERVING + SOURCES + LOOKUPS)
