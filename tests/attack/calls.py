"""Draws calls of every public method with arguments that no sensible caller gives."""

from __future__ import annotations

import inspect
import itertools
import random
import reprlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import rsgen
from hostile import Folder

from attack.children import Step
from attack.values import LARGE_SIZES, UNUSUAL, json_value, number, text

FIELDS = [name for name, value in vars(rsgen.GenerationConfig).items() if isinstance(value, property)]
OPTIONS = [name for name in inspect.signature(rsgen.Generator).parameters if name != "model"]
CLASSES = [
    value
    for module in (rsgen.processors, rsgen.constraints, rsgen.stopping_criteria)
    for value in vars(module).values()
    if inspect.isclass(value)
]
SEARCHES = [
    *("generate", "greedy_search", "sample", "beam_search", "beam_sample", "group_beam_search"),
    *("constrained_beam_search", "contrastive_search", "dola", "stream"),
]
#: Values with which a search goes beyond the checks of its arguments.
USUAL: dict[str, list[object]] = {
    "max_new_tokens": [1, 3, 10, 60],
    "num_beams": [1, 2, 4, 50],
    "num_beam_groups": [1, 2],
    "num_return_sequences": [1, 2, 5, 400],
    "do_sample": [True, False],
    "output_scores": [True],
    "output_logits": [True],
    "output_hidden_states": [True],
    "output_attentions": [True],
    "output_events": [True],
    "top_logprobs": [1, 5, 64],
    "top_k": [1, 5, 50],
    "top_p": [0.5, 0.9],
    "temperature": [0.7, 1.5],
    "penalty_alpha": [0.6],
    "repetition_penalty": [1.3],
    "diversity_penalty": [0.5],
    "stop_strings": ["a", ["b", "the"]],
    "bad_words_ids": [[[5]], [[6, 7]]],
    "force_words_ids": [[[5]], [[[6], [7, 8]]]],
    "eos_token_id": [1, [1, 2]],
    "seed": [0, 5],
    "json_schema": [
        {"type": "object"},
        {"enum": ["a", 1]},
        '{"type": "array", "maxItems": 2}',
        {"not": {}},
        True,
    ],
    "regex": ["[a-z]{3,9}", "a|b*", "(", "x{1,1000000}"],
    "grammar": ['start: "a"+', "start: /[a-z]+/ start?", "start: start", "a"],
}


def awkward(rng: random.Random) -> object:
    """Something that no argument is."""
    kind = rng.random()
    if kind < 0.25:
        return number(rng)
    if kind < 0.3:
        return rng.choice(UNUSUAL)
    if kind < 0.4:
        return text(rng, LARGE_SIZES)
    if kind < 0.7:
        return json_value(rng)
    if kind < 0.8:
        shape = rng.choice([(0,), (3,), (2, 3), (1, 1, 1), (0, 5), (1000, 2)])
        return np.full(shape, rng.choice([1, 70, -1])).astype(
            rng.choice(["int64", "float32", "bool", "uint8", "U1", "O"])
        )
    values: list[Callable[[], object]] = [
        lambda: rng.choice(
            [None, True, False, b"x", 1j, object(), int, len, ..., range(10), {1, 2}, "\ud800"]
        ),
        lambda: range(10**10),
        lambda: itertools.count(),
        lambda: (index for index in range(5)),
        lambda: lambda *_: rng.choice([None, 5, [1], "x", np.zeros(3)]),
        lambda: rng.choice(CLASSES),
        lambda: Path("/nowhere\udcff"),
    ]
    return rng.choice(values)()


def prompt(rng: random.Random) -> object:
    """A prompt, usually one that can be used."""
    if rng.random() < 0.3:
        return awkward(rng)
    ids = [rng.randrange(64) for _ in range(rng.choice([1, 2, 5, 30, 64, 100]))]
    return rng.choice(
        [
            ids,
            [ids] * rng.choice([1, 3, 400]),
            np.array([ids]),
            text(rng, LARGE_SIZES),
            [text(rng)] * rng.choice([1, 2, 50]),
        ]
    )


def fields(rng: random.Random) -> dict[str, object]:
    """Fields of a call, most of them possible."""
    given: dict[str, object] = {
        name: rng.choice(values) for name, values in USUAL.items() if rng.random() < 0.2
    }
    for name in rng.sample(FIELDS, rng.choice([0, 0, 1, 1, 2])):
        given[name] = awkward(rng)
    return {"max_new_tokens": 4} | given


def case(seed: int, count: int, path: Path) -> Iterator[Step]:
    """Some calls on one model."""
    rng = random.Random(seed)
    path.mkdir()
    folder = Folder(path)
    folder.tokenizer()
    gen = rsgen.Generator(path, num_threads=1, kv_cache_bytes=1 << rng.choice([16, 20, 24]))
    short = reprlib.Repr()
    short.maxother = short.maxstring = 60
    for index in range(count):
        name, call, args, keywords = draw(rng, gen, path)
        shown = ", ".join(
            [*map(short.repr, args), *(f"{key}={short.repr(value)}" for key, value in keywords.items())]
        )
        yield (
            f"call {seed}.{index}: {name}({shown})",
            lambda call=call, args=args, keywords=keywords: call(*args, **keywords),
        )
    yield "the model afterwards", lambda: check(gen)


def draw(
    rng: random.Random, gen: rsgen.Generator, path: Path
) -> tuple[str, Callable[..., object], list, dict]:
    """The name of a call, what is called, and its arguments."""
    kind = rng.randrange(14)
    if kind < 6:
        name, steps = rng.choice(SEARCHES), rng.choice([0, 2, 100])

        def search(*args: object, **keywords: object) -> object:
            result = getattr(gen, name)(*args, **keywords)
            return (
                list(itertools.islice(result, steps))
                if isinstance(result, rsgen.TokenStream)
                else repr(result)
            )

        return name, search, [prompt(rng)], fields(rng)
    if kind < 8:
        name = rng.choice(
            [
                "encode",
                "decode",
                "batch_decode",
                "tokenize",
                "convert_ids_to_tokens",
                "convert_tokens_to_ids",
                "__call__",
            ]
        )
        return name, getattr(gen.tokenizer, name), [rng.choice([prompt, awkward])(rng)], {}
    if kind < 10:
        made = rng.choice(CLASSES)
        step = [
            rng.choice([np.array([[1, 2]]), awkward(rng)]),
            rng.choice([np.zeros((1, 64), "float32"), awkward(rng)]),
        ]

        def build(*args: object) -> object:
            value = made(*args)
            return value(*step) if callable(value) else repr(value)

        return made.__name__, build, [awkward(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))], {}
    if kind == 10:
        if rng.random() < 0.5:
            return "score", gen.score, [prompt(rng)], {"top_logprobs": rng.choice([None, 1, awkward(rng)])}
        return "forward", gen.forward, [prompt(rng)], {}
    if kind == 11:
        messages = rng.choice(
            [[{"role": "user", "content": text(rng, LARGE_SIZES)}], [awkward(rng)], awkward(rng)]
        )
        keywords = {"max_new_tokens": 2, "chat_template": "{{ messages[0].content }}"}
        return (
            "chat",
            gen.chat,
            [messages],
            keywords | ({"tools": awkward(rng)} if rng.random() < 0.2 else {}),
        )
    if kind == 12:
        values = {name: awkward(rng) for name in rng.sample(FIELDS, 2)}
        return "GenerationConfig", lambda **given: rsgen.GenerationConfig(**given).to_dict(), [], values
    keywords = {"num_threads": 1, rng.choice(OPTIONS): awkward(rng)}
    return "Generator", rsgen.Generator, [rng.choice([path, path, awkward(rng)])], keywords


def check(gen: rsgen.Generator) -> None:
    """All blocks are free, and the model answers."""
    stats = gen.stats()
    if (stats.blocks_used, stats.blocks_reserved) != (0, 0):
        raise SystemExit(f"blocks are left: {stats}")
    if stats.blocks_total > 4:
        gen.generate([1, 2, 3], max_new_tokens=2)
