"""`langchain-openai`: `ChatOpenAI` and `OpenAI` against the server, with the library's texts, streams, and errors as a user sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
import rsgen
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field
from serving import Server

PROMPT = "Tell me a story about a cat."
GREEDY = {"max_new_tokens": 16, "do_sample": False}


class Animal(BaseModel):
    """An animal of a story."""

    kind: Literal["cat", "dog", "fox"]
    legs: int = Field(ge=0, le=8)
    is_happy: bool


def chat_model(server: Server, **options: Any) -> ChatOpenAI:
    """As docs/clients.md connects it."""
    options = {"model": "story-3m", "temperature": 0, "max_tokens": 16, "max_retries": 0} | options
    return ChatOpenAI(base_url=f"{server.url}/v1", api_key="none", **options)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """One for all tests: langchain-openai keeps its connections in the process, and they belong to their loop."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def expected(gen: rsgen.Generator) -> rsgen.GenerationOutput:
    """What the library answers."""
    return gen.chat([{"role": "user", "content": PROMPT}], **GREEDY)


def test_an_answer_is_that_of_the_library(server: Server, expected: rsgen.GenerationOutput) -> None:
    message = chat_model(server).invoke(PROMPT)
    assert message.text == expected.text
    assert message.response_metadata["finish_reason"] == "length"
    assert message.response_metadata["model_name"] == "story-3m"
    assert message.usage_metadata is not None
    assert message.usage_metadata["output_tokens"] == 16
    assert message.usage_metadata["input_tokens"] == expected.usage.prompt_tokens


def test_a_conversation_goes_on(server: Server, gen: rsgen.Generator) -> None:
    messages = [("user", PROMPT), ("assistant", "There was a cat."), ("user", "And then?")]
    told = [{"role": role, "content": text} for role, text in messages]
    assert chat_model(server).invoke(messages).text == gen.chat(told, **GREEDY).text


def test_a_stream_joins_to_the_answer_and_counts_tokens(server: Server, gen: rsgen.Generator) -> None:
    # So many that they do not come together, as what a client has not read does.
    chunks = list(chat_model(server, stream_usage=True, max_tokens=100).stream(PROMPT))
    expected = gen.chat([{"role": "user", "content": PROMPT}], **{**GREEDY, "max_new_tokens": 100})
    assert len(chunks) > 5
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.text == expected.text
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == expected.usage.generated_tokens > 16


def test_asynchronous_calls_batches_and_streams_are_the_same(
    server: Server, expected: rsgen.GenerationOutput, loop: asyncio.AbstractEventLoop
) -> None:
    async def ask() -> list[str]:
        model = chat_model(server)
        first = await model.ainvoke(PROMPT)
        parts = [chunk.text async for chunk in model.astream(PROMPT)]
        both = await model.abatch([PROMPT, PROMPT])
        return [first.text, "".join(parts), *(message.text for message in both)]

    assert set(loop.run_until_complete(ask())) == {expected.text}
    assert [message.text for message in chat_model(server).batch([PROMPT] * 4)] == [expected.text] * 4


def test_strategies_are_in_extra_body(server: Server, gen: rsgen.Generator) -> None:
    beams = {"num_beams": 4, "do_sample": False}
    text = chat_model(server, extra_body=beams).invoke(PROMPT).text
    out = gen.chat([{"role": "user", "content": PROMPT}], max_new_tokens=16, **beams)
    assert text == out.text


def test_a_pydantic_type_gives_a_valid_object(server: Server, loop: asyncio.AbstractEventLoop) -> None:
    model = chat_model(server, max_tokens=100).with_structured_output(Animal)
    assert isinstance(model.invoke("Describe the cat."), Animal)

    async def ask() -> Any:
        return await model.ainvoke("Describe the fox.")

    assert isinstance(loop.run_until_complete(ask()), Animal)
    assert isinstance(list(model.stream("Describe the dog."))[-1], Animal)


def test_json_mode_gives_json(server: Server) -> None:
    model = chat_model(server, max_tokens=200, temperature=1, seed=3)
    found = model.with_structured_output(Animal, method="json_mode", include_raw=True).invoke(
        "A cat as JSON."
    )
    # The model does not know what is wanted: JSON it is in any case, or it has come to the end of its tokens.
    raw = found["raw"]
    assert raw.text.startswith("{")
    assert raw.response_metadata["finish_reason"] in ("stop", "length")


def test_logprobs_arrive(server: Server, expected: rsgen.GenerationOutput) -> None:
    message = chat_model(server, logprobs=True, top_logprobs=2).invoke(PROMPT)
    content = message.response_metadata["logprobs"]["content"]
    assert [token["logprob"] for token in content] == pytest.approx(list(map(float, expected.logprobs[0])))


def test_completions_are_those_of_the_library(server: Server, gen: rsgen.Generator) -> None:
    model = OpenAI(
        model="story-3m",
        base_url=f"{server.url}/v1",
        api_key="none",
        temperature=0,
        max_tokens=16,
        max_retries=0,
    )
    text = gen.generate("Once upon a time", **GREEDY).text
    assert model.invoke("Once upon a time") == text
    assert "".join(model.stream("Once upon a time")) == text
    assert model.batch(["Once upon a time", "One day"])[1] == gen.generate("One day", **GREEDY).text


@pytest.mark.parametrize(
    ("options", "prompt", "error", "message"),
    [
        ({"model": "another"}, PROMPT, openai.NotFoundError, "story-3m"),
        ({"temperature": -1}, PROMPT, openai.BadRequestError, "temperature"),
        ({"extra_body": {"num_beams": 0}}, PROMPT, openai.BadRequestError, "num_beams"),
        ({}, "a cat " * 1000, openai.BadRequestError, "512"),
    ],
    ids=["another model", "a wrong value", "a wrong field", "a prompt beyond the context"],
)
def test_an_error_says_what_is_wrong(
    server: Server, options: dict[str, Any], prompt: str, error: type[openai.APIError], message: str
) -> None:
    with pytest.raises(error, match=message):
        chat_model(server, **options).invoke(prompt)
    with pytest.raises(error, match=message):
        list(chat_model(server, **options).stream(prompt))
