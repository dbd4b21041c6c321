"""Answers with types that are cut off, refused, or still being written."""

import asyncio
import json
import pickle
import random
import re
from dataclasses import dataclass
from typing import Annotated, Any

import annotated_types
import pytest
import rsgen
from pydantic import BaseModel, Field
from rsgen._output_type import OutputType
from rsgen._partial_json import NOTHING, beginning
from test_output_type import PROMPT, Home, Pet


def test_an_answer_that_is_cut_off_says_what_is_missing(gen):
    whole = gen.sample(PROMPT, output_type=Home, seed=1, top_k=0, max_new_tokens=200)
    tokens = whole.usage.generated_tokens
    assert whole.parsed.pets
    seen = set()
    for limit in range(1, tokens):
        out = gen.sample(PROMPT, output_type=Home, seed=1, top_k=0, max_new_tokens=limit)
        if limit == tokens - 1:
            assert out.parsed == whole.parsed, "only the end-of-sequence token is left out"
            continue
        with pytest.raises(rsgen.ParseError) as raised:
            assert out.parsed
        error = raised.value
        assert error is out.parsed_all[0]
        assert error.finish_reason == "length"
        assert error.text == out.text
        assert f"cut off and lacks {'the whole of `' if error.missing else 'its end'}" in str(error)
        assert 'it ended with the reason "length"; raise `max_new_tokens`' in str(error)
        assert error.partial is None or error.partial.keys() <= {"pets", "level", "oldest"}
        again = pickle.loads(pickle.dumps(error))
        assert (again.args, again.missing, again.partial) == (error.args, error.missing, error.partial)
        seen.add(tuple(error.missing))
    assert ("pets", "level") in seen
    assert any("pets[0].name" in missing and "pets[0].kind" in missing for missing in seen)
    assert ("level",) in seen


def test_a_number_that_may_go_on_is_cut_off(gen):
    out = gen.generate(PROMPT, output_type=int, seed=1, do_sample=True, top_k=0, max_new_tokens=1)
    assert out.finish_reasons == ["length"]
    assert re.fullmatch(r"-?\d*", out.text)
    with pytest.raises(rsgen.ParseError, match="lacks its end"):
        assert out.parsed


@dataclass
class Refused:
    low: Annotated[int, annotated_types.Interval(ge=0, le=9)]

    def __post_init__(self) -> None:
        raise KeyError("nothing is good enough")


class RefusedModel(BaseModel):
    low: Annotated[int, Field(ge=0, le=9)]

    def model_post_init(self, context: object) -> None:
        raise ValueError("nothing is good enough")


@pytest.mark.parametrize(
    ("hint", "place"),
    [(Annotated[list[Refused], annotated_types.Len(1, 1)], r"`\[0\]` "), (RefusedModel, "")],
)
def test_what_a_class_refuses_is_an_error_that_says_so(gen, hint, place):
    options = {"seed": 1, "top_k": 0, "max_new_tokens": 90}
    with pytest.raises(
        rsgen.ParseError, match=f"(?s)the text is no value of .*: {place}.*nothing is good"
    ) as raised:
        assert gen.sample(PROMPT, output_type=hint, **options).parsed
    assert raised.value.__cause__ is not None
    assert raised.value.missing == []


def test_values_that_a_grammar_would_not_let_through_are_refused():
    """A callback may change what the grammar leaves."""
    wrong = {
        '{"name": "a"}': "`` must have 'kind'",
        '{"name": "a", "kind": "cat", "x": 1}': "`` must have no 'x'",
        '{"name": 5, "kind": "cat"}': "`name` must be of type string, got 5",
        '{"name": "a", "kind": "cow"}': "`kind` must be one of ['cat', 'dog'], got 'cow'",
        '{"name": "a", "kind": "cat", "age": true}': "`age` must be of type integer, got True",
        '{"name": "a", "kind": "cat", "tags": ["red", "x"]}': "`tags[1]` must be one of",
        "[]": "`` must be of type object, got []",
    }
    for text, message in wrong.items():
        (error,) = OutputType(Pet).parse_all([text], ["eos"], [0])
        assert isinstance(error, rsgen.ParseError), text
        assert message.removeprefix("`` ") in str(error)
    assert OutputType(Pet).parse_all(['{"name": "a", "kind": "cat", "age": 2.0}'], ["eos"], [0])[0].age == 2
    (error,) = OutputType(bool | None).parse_all(["1"], ["eos"], [0])
    assert isinstance(error, rsgen.ParseError)
    (error,) = OutputType(int).parse_all(["9" * 5000], ["eos"], [0])
    assert "no value of int: Exceeds the limit" in str(error)
    (error,) = OutputType(list).parse_all(["[" * 100_000], ["eos"], [0])
    assert isinstance(error, rsgen.ParseError)


def begins(part: Any, whole: Any) -> bool:
    """Whether a value is a beginning of another."""
    if isinstance(part, dict) and isinstance(whole, dict):
        names = list(part)
        last = names[-1:]
        return names == list(whole)[: len(names)] and all(
            begins(part[name], whole[name]) if name in last else part[name] == whole[name] for name in names
        )
    if isinstance(part, list) and isinstance(whole, list):
        return (
            len(part) <= len(whole)
            and part[:-1] == whole[: max(len(part) - 1, 0)]
            and (not part or begins(part[-1], whole[len(part) - 1]))
        )
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    return part == whole and type(part) is type(whole)


def drawn(chance: random.Random, depth: int) -> Any:
    kinds = [
        lambda: chance.choice(["", "a", 'q"\\/\b\n', "😀é", "\u2028", "x" * 9]),
        lambda: chance.choice([0, -1, 12, 2.5, -1e30, 10**20]),
        lambda: chance.choice([True, False, None]),
    ]
    if depth:
        count = chance.randint(0, 3)
        kinds += [lambda: [drawn(chance, depth - 1) for _ in range(count)]] * 2
        kinds += [lambda: {f"k{i}": drawn(chance, depth - 1) for i in range(count)}] * 2
    return chance.choice(kinds)()


@pytest.mark.parametrize("seed", range(60))
def test_every_beginning_of_a_text_has_a_beginning_of_its_value(seed):
    chance = random.Random(seed)
    value = drawn(chance, 3)
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 1]))
    for end in range(len(text) + 1):
        part, path = beginning(text[:end])
        assert part is NOTHING or begins(part, value), text[:end]
        if end < len(text):
            assert path is not None
    whole, path = beginning(text + " ")
    assert (whole, path) == (value, None)


def test_a_stream_shows_what_is_there_so_far(gen):
    options = {"output_type": Home, "do_sample": True, "seed": 1, "top_k": 0, "max_new_tokens": 200}
    stream = gen.stream(PROMPT, **options)
    assert stream.partial is None
    whole = json.loads(gen.generate(PROMPT, **options).text)
    parts = []
    for _ in stream:
        parts.append(stream.partial)
        assert begins(parts[-1], whole) or parts[-1] is None
    assert parts[-1] == whole
    assert len({json.dumps(part) for part in parts}) > 5
    assert stream.output.parsed == gen.generate(PROMPT, **options).parsed

    async def on_a_loop() -> list[object]:
        async with gen.astream(PROMPT, **options) as stream:
            shown = [stream.partial async for _ in stream]
        assert stream.output.parsed == gen.generate(PROMPT, **options).parsed
        return shown

    assert asyncio.run(on_a_loop()) == parts


def test_a_stream_that_is_closed_has_no_value(gen):
    with gen.stream(PROMPT, output_type=Pet, max_new_tokens=50) as stream:
        next(stream)
    with pytest.raises(rsgen.ParseError, match='the reason "cancelled"; read the stream to its end'):
        assert stream.output.parsed
