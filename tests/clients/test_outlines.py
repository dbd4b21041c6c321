"""`outlines`: its models for vLLM's server and for OpenAI's against `rsgen serve`; what it promises of types must hold."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Literal

import openai
import outlines
import pytest
import rsgen
from outlines.inputs import Chat
from outlines.types import CFG, JsonSchema, Regex
from pydantic import BaseModel, ConfigDict, Field
from serving import Server

PROMPT = "Tell me a story about a cat."


class Animal(BaseModel):
    """An animal of a story. Without `forbid` a schema allows further fields, and a small model invents them."""

    model_config = ConfigDict(extra="forbid")
    kind: Literal["cat", "dog", "fox"]
    name: str = Field(max_length=12)
    legs: int = Field(ge=0, le=8)
    friends: list[Literal["cat", "dog", "fox"]] = Field(max_length=2)


@pytest.fixture(scope="module")
def vllm(client: openai.OpenAI) -> Any:
    """As docs/clients.md connects it."""
    return outlines.from_vllm(client, "story-3m")


@pytest.fixture(scope="module")
def like_openai(client: openai.OpenAI) -> Any:
    """The model for OpenAI's own server."""
    return outlines.from_openai(client, "story-3m")


def test_a_text_is_that_of_the_library(vllm: Any, gen: rsgen.Generator) -> None:
    expected = gen.chat([{"role": "user", "content": PROMPT}], max_new_tokens=16, do_sample=False).text
    assert vllm(PROMPT, max_tokens=16, temperature=0) == expected
    assert vllm(Chat([{"role": "user", "content": PROMPT}]), max_tokens=16, temperature=0) == expected
    assert "".join(vllm.stream(PROMPT, max_tokens=16, temperature=0)) == expected


@pytest.mark.parametrize("model", ["vllm", "like_openai"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_pydantic_type_gives_a_valid_object(request: pytest.FixtureRequest, model: str, seed: int) -> None:
    ask = request.getfixturevalue(model)
    text = ask(PROMPT, Animal, max_tokens=150, seed=seed)
    assert Animal.model_validate_json(text).kind in ("cat", "dog", "fox")
    assert "".join(ask.stream(PROMPT, Animal, max_tokens=150, seed=seed)) == text


def test_other_types_hold(vllm: Any) -> None:
    assert vllm("Yes or no?", Literal["yes", "no"]) in ("yes", "no")
    assert isinstance(int(vllm("How many?", int, max_tokens=20)), int)
    assert re.fullmatch(r"[a-c]{3}-\d{2}", vllm("A code", Regex(r"[a-c]{3}-\d{2}")))
    assert vllm("Sum", CFG('start: NUMBER "+" NUMBER\nNUMBER: /[0-9]/')).count("+") == 1
    schema = JsonSchema('{"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}')
    assert re.fullmatch(r"\[\s*(true|false),\s*(true|false)\s*\]", vllm("Two", schema, max_tokens=60))


def test_several_answers_are_valid_each(vllm: Any) -> None:
    texts = vllm(PROMPT, Animal, n=3, max_tokens=150, seed=1)
    assert len(texts) == 3
    for text in texts:
        Animal.model_validate_json(text)


def test_asynchronous_calls_and_streams_are_the_same(server: Server, vllm: Any) -> None:
    async def ask() -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            model = outlines.from_vllm(client, "story-3m")
            fields = {"max_tokens": 150, "seed": 4}
            whole = await model(PROMPT, Animal, **fields)
            return whole, "".join([part async for part in model.stream(PROMPT, Animal, **fields)])

    whole, streamed = asyncio.run(ask())
    assert whole == streamed == vllm(PROMPT, Animal, max_tokens=150, seed=4)


@pytest.mark.parametrize(
    ("arguments", "fields", "message"),
    [
        ((PROMPT,), {"model": "another"}, "story-3m"),
        ((PROMPT,), {"temperature": -1}, "temperature"),
        (("a cat " * 1000,), {}, "512"),
        ((PROMPT, Regex(r"(?<=a)b")), {}, "look-behind|look-around|lookbehind|regex"),
    ],
    ids=["another model", "a wrong value", "a prompt beyond the context", "a type that cannot be"],
)
def test_an_error_says_what_is_wrong(
    vllm: Any, arguments: tuple[Any, ...], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(outlines.exceptions.OutlinesError, match=message):
        vllm(*arguments, **fields)
