"""`huggingface_hub.InferenceClient`: its chat and its text generation, with the library's texts, and errors as a user sees them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import rsgen
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from serving import Server

MESSAGES = [{"role": "user", "content": "Tell me a story about a cat."}]
FIELDS = {"model": "story-3m", "messages": MESSAGES, "max_tokens": 16, "temperature": 0}


@pytest.fixture(scope="module")
def hub(server: Server) -> InferenceClient:
    """As docs/clients.md connects it."""
    return InferenceClient(base_url=f"{server.url}/v1", api_key="none")


@pytest.fixture(scope="module")
def expected(gen: rsgen.Generator) -> rsgen.GenerationOutput:
    """What the library answers."""
    return gen.chat(MESSAGES, max_new_tokens=16, do_sample=False)


def test_an_answer_is_that_of_the_library(hub: InferenceClient, expected: rsgen.GenerationOutput) -> None:
    answer = hub.chat_completion(**FIELDS)
    assert answer.choices[0].message.content == expected.text
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 16
    assert hub.chat.completions.create(**FIELDS).choices[0].message.content == expected.text


def test_a_stream_joins_to_the_answer(hub: InferenceClient, expected: rsgen.GenerationOutput) -> None:
    options = {"include_usage": True}
    *chunks, last = hub.chat_completion(**FIELDS, stream=True, stream_options=options)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == expected.text
    assert last.usage.completion_tokens == 16


def test_asynchronous_calls_and_streams_are_the_same(
    server: Server, expected: rsgen.GenerationOutput
) -> None:
    async def ask() -> tuple[str, str]:
        async with AsyncInferenceClient(base_url=f"{server.url}/v1", api_key="none") as hub:
            whole = await hub.chat_completion(**FIELDS)
            chunks = await hub.chat_completion(**FIELDS, stream=True)
            parts = [chunk.choices[0].delta.content or "" async for chunk in chunks]
        return whole.choices[0].message.content, "".join(parts)

    assert asyncio.run(ask()) == (expected.text, expected.text)


def test_strategies_are_in_extra_body(hub: InferenceClient, gen: rsgen.Generator) -> None:
    beams = {"num_beams": 4, "do_sample": False}
    answer = hub.chat_completion(**FIELDS, extra_body=beams)
    expected = gen.chat(MESSAGES, max_new_tokens=16, **beams)
    assert answer.choices[0].message.content == expected.text


def test_a_schema_gives_a_valid_object(hub: InferenceClient) -> None:
    properties = {"kind": {"enum": ["cat", "dog"]}, "legs": {"type": "integer", "minimum": 0, "maximum": 8}}
    schema = {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "Animal", "schema": schema, "strict": True}}
    found = json.loads(
        hub.chat_completion(**FIELDS | {"max_tokens": 100}, response_format=wanted).choices[0].message.content
    )
    assert found["kind"] in ("cat", "dog")
    assert 0 <= found["legs"] <= 8


def test_logprobs_arrive(hub: InferenceClient, expected: rsgen.GenerationOutput) -> None:
    answer = hub.chat_completion(**FIELDS, logprobs=True, top_logprobs=2)
    content = answer.choices[0].logprobs.content
    assert [token.logprob for token in content] == pytest.approx(list(map(float, expected.logprobs[0])))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"model": "another"}, 404, "story-3m"),
        ({"temperature": -1}, 400, "temperature"),
        ({"messages": [{"role": "user", "content": "a cat " * 1000}]}, 400, "512"),
    ],
    ids=["another model", "a wrong value", "a prompt beyond the context"],
)
def test_an_error_says_what_is_wrong(
    hub: InferenceClient, fields: dict[str, Any], status: int, message: str, stream: bool
) -> None:
    with pytest.raises(HfHubHTTPError) as error:
        list(hub.chat_completion(**{**FIELDS, **fields}, stream=stream))
    assert error.value.response.status_code == status
    assert message in str(error.value)
