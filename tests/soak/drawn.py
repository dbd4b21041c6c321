"""Requests that the soak draws, for every protocol of the server, and what of an answer must be the same each time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Body = dict[str, Any]

PROMPTS = ["Once upon a time", "One day", "Tom and Sue went to the lake", "The red boat"]
#: As long as the context of the story models lets it be.
LONGEST = "the little fox and the red boat " * 48
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
#: Ways to find text, in the names of transformers.
WAYS: list[Body] = [
    *[{"temperature": 0}] * 3,
    *[{"temperature": 0.8, "seed": 5}] * 3,
    {"num_beams": 3, "temperature": 0},
    {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "temperature": 0},
    {"prompt_lookup_num_tokens": 4, "temperature": 0},
    {"penalty_alpha": 0.6, "top_k": 4, "temperature": 0},
    {"temperature": 0, "repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
]


class Case(NamedTuple):
    """A request, and whether its answer is a stream."""

    path: str
    body: Body
    is_stream: bool = False

    @property
    def name(self) -> str:
        return f"{self.path} {json.dumps(self.body, sort_keys=True)}"


def cases(rng: random.Random, models: list[str], translator: str) -> list[Case]:
    """A few hundred requests; each draws its prompt, its way and its model."""
    return [case for _ in range(20) for case in of_each_route(rng, models, translator)]


def of_each_route(rng: random.Random, models: list[str], translator: str) -> Iterator[Case]:
    def some(most: int = 40) -> int:
        return rng.choice([1, 3, 10, most])

    for is_stream in (False, True):
        chat = [{"role": "user", "content": rng.choice(PROMPTS)}]
        model, way, stream = rng.choice(models), rng.choice(WAYS), {"stream": is_stream}
        common = {"model": model, **stream, **way}
        prompt = rng.choice([*PROMPTS, LONGEST])
        yield Case("/v1/completions", common | {"prompt": prompt, "max_tokens": some()}, is_stream)
        yield Case("/v1/chat/completions", common | {"messages": chat, "max_tokens": some()}, is_stream)
        greedy = {"model": model, **stream, "temperature": 0}
        yield Case("/v1/responses", greedy | {"input": chat, "max_output_tokens": some()}, is_stream)
        yield Case("/v1/messages", greedy | {"messages": chat, "max_tokens": some()}, is_stream)
        options = {"num_predict": some(), "temperature": 0.7, "seed": rng.randrange(3)}
        yield Case("/api/chat", {"model": model, **stream, "messages": chat, "options": options}, is_stream)
        raw = {"model": model, **stream, "prompt": prompt, "raw": True, "options": options}
        yield Case("/api/generate", raw, is_stream)
    many = {"prompt": [*PROMPTS, LONGEST], "n": 2, "logprobs": 3, "max_tokens": some(), "temperature": 0}
    yield Case("/v1/completions", {"model": rng.choice(models), **many})
    held = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    yield Case(
        "/v1/chat/completions",
        {"model": rng.choice(models), "messages": chat, "response_format": held, "temperature": 0},
    )
    texts = {"model": rng.choice(models), "input": rng.sample([*PROMPTS, LONGEST], 3)}
    yield Case("/v1/embeddings", texts)
    yield Case("/api/embed", texts)
    yield Case("/v1/rerank", {"model": rng.choice(models), "query": "a boat", "documents": PROMPTS})
    yield Case("/v1/score", {"model": rng.choice(models), "text_1": "a boat", "text_2": PROMPTS})
    yield Case("/tokenize", {"model": rng.choice(models), "prompt": LONGEST})
    source = rng.choice(["The house is small.", "I like tea. The garden is green."])
    yield Case(
        "/rsgen/v1/translate", {"model": translator, "texts": source, "max_new_tokens": 6, "stream": False}
    )
    yield Case("/translate", {"model": translator, "q": source, "source": "eng", "target": "deu"})


#: Bodies that are refused, whatever the path.
WRONG: list[bytes] = [
    b"",
    b"{",
    b"[" * 100_000,
    b'{"prompt": "a", "prompt": "b"}',
    b'{"prompt": "\\ud800"}',
    b'{"model": "nobody", "prompt": "a", "messages": [], "input": "a"}',
    b'{"prompt": 1e999, "messages": 3, "input": {}, "q": 4}',
    b'{"prompt": "' + b"a" * 2_100_000 + b'"}',
]

#: What the text of a piece of a stream is, and what its last line has in it.
PIECES: dict[str, tuple[Callable[[Body], str], tuple[str, ...]]] = {
    "/v1/completions": (lambda piece: "".join(c["text"] for c in piece["choices"]), ("[DONE]",)),
    "/v1/chat/completions": (
        lambda piece: "".join(c["delta"].get("content") or "" for c in piece["choices"]),
        ("[DONE]",),
    ),
    "/v1/responses": (
        lambda piece: piece["delta"] if piece["type"] == "response.output_text.delta" else "",
        ('"response.completed"', '"response.incomplete"'),
    ),
    "/v1/messages": (lambda piece: piece.get("delta", {}).get("text", ""), ('"message_stop"',)),
    "/api/chat": (lambda piece: piece["message"]["content"], ('"done":true',)),
    "/api/generate": (lambda piece: piece["response"], ('"done":true',)),
}

#: What differs from answer to answer: ids, times, and how much of a prompt was cached, which `input_tokens` leaves out.
VOLATILE = {
    *("id", "item_id", "created", "created_at", "completed_at", "timings"),
    *("cached_tokens", "cached_prompt_tokens", "cache_read_input_tokens", "input_tokens"),
}


def steady(value: Any) -> Any:
    """An answer without what differs each time."""
    if isinstance(value, list):
        return [steady(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: steady(one)
        for name, one in value.items()
        if name not in VOLATILE and not name.endswith("_duration")
    }


def told(case: Case, answer: bytes) -> str:
    """What an answer says, which is the same for the same request.

    Raises `ValueError` where it ends in an error or before its end.
    """
    text = answer.decode()
    if not case.is_stream:
        return json.dumps(steady(json.loads(text)), sort_keys=True)
    piece, ends = PIECES[case.path]
    lines = text.splitlines() if case.path.startswith("/api") else data_of(text)
    if not lines or not any(end in lines[-1] for end in ends):
        raise ValueError(f"the stream has no end: {text[-300:]!r}")
    return "".join(piece(json.loads(line)) for line in lines if line != "[DONE]")


def data_of(text: str) -> list[str]:
    """The data of the events of a stream."""
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def difference(text: str, first: str) -> str:
    """Where two answers differ."""
    at = next(
        (at for at, (a, b) in enumerate(zip(text, first, strict=False)) if a != b), min(len(text), len(first))
    )
    begin = max(0, at - 60)
    return f"{text[begin : at + 60]!r} instead of {first[begin : at + 60]!r}"
