"""`llama-index-llms-openai-like` against the server, in an environment of its own: it needs an older `openai`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import page
import pytest

pytest.importorskip("llama_index.llms.openai_like", reason="make test-clients has it in .venv-llama-index")

import openai
import rsgen
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, ConfigDict, Field
from serving import Server

PROMPT = "Tell me a story about a cat."
GREEDY = {"max_new_tokens": 16, "do_sample": False}


class Animal(BaseModel):
    """An animal of a story."""

    model_config = ConfigDict(extra="forbid")
    kind: Literal["cat", "dog", "fox"]
    legs: int = Field(ge=0, le=8)


def model(server: Server, **options: Any) -> OpenAILike:
    """As docs/clients.md connects it."""
    fields = {
        "model": "story-3m",
        "is_chat_model": True,
        "temperature": 0,
        "max_tokens": 16,
        "max_retries": 0,
    }
    fields |= {"should_use_structured_outputs": True, "context_window": 512}
    return OpenAILike(api_base=f"{server.url}/v1", api_key="none", **fields | options)


@pytest.fixture(scope="module")
def told(gen: rsgen.Generator) -> str:
    """The library's answer."""
    return gen.chat([{"role": "user", "content": PROMPT}], **GREEDY).text


def test_answers_and_streams_are_those_of_the_library(
    server: Server, gen: rsgen.Generator, told: str
) -> None:
    messages = [ChatMessage(role="user", content=PROMPT)]
    answer = model(server).chat(messages)
    assert answer.message.content == told
    assert answer.raw.usage.completion_tokens == 16
    # So many tokens that they do not come together, as what a client has not read does.
    parts = [chunk.delta or "" for chunk in model(server, max_tokens=100).stream_chat(messages)]
    expected = gen.chat([{"role": "user", "content": PROMPT}], **{**GREEDY, "max_new_tokens": 100})
    assert len(parts) > 5
    assert "".join(parts) == expected.text
    assert model(server).complete(PROMPT).text == told


def test_a_conversation_goes_on(server: Server, gen: rsgen.Generator) -> None:
    turns = [("user", PROMPT), ("assistant", "There was a cat."), ("user", "And then?")]
    answer = model(server).chat([ChatMessage(role=role, content=text) for role, text in turns])
    expected = gen.chat([{"role": role, "content": text} for role, text in turns], **GREEDY)
    assert answer.message.content == expected.text


def test_asynchronous_calls_and_streams_are_the_same(server: Server, told: str) -> None:
    async def ask() -> set[str]:
        llm = model(server)
        whole = await llm.acomplete(PROMPT)
        parts = [chunk.delta or "" async for chunk in await llm.astream_complete(PROMPT)]
        return {whole.text, "".join(parts)}

    assert asyncio.run(ask()) == {told}


def test_completions_are_those_of_the_library(server: Server, gen: rsgen.Generator) -> None:
    llm = model(server, is_chat_model=False)
    text = gen.generate("Once upon a time", **GREEDY).text
    assert llm.complete("Once upon a time").text == text
    assert "".join(chunk.delta for chunk in llm.stream_complete("Once upon a time")) == text


def test_strategies_are_in_additional_kwargs(server: Server, gen: rsgen.Generator) -> None:
    beams = {"num_beams": 4, "do_sample": False}
    out = gen.chat([{"role": "user", "content": PROMPT}], max_new_tokens=16, **beams)
    assert model(server, additional_kwargs={"extra_body": beams}).complete(PROMPT).text == out.text


def test_a_pydantic_type_gives_a_valid_object(server: Server) -> None:
    llm = model(server, max_tokens=100).as_structured_llm(Animal)
    assert isinstance(llm.complete("Describe the cat.").raw, Animal)
    assert isinstance(asyncio.run(llm.acomplete("Describe the fox.")).raw, Animal)


@pytest.mark.parametrize(
    ("options", "prompt", "error", "message"),
    [
        ({"model": "another"}, PROMPT, openai.NotFoundError, "story-3m"),
        ({"additional_kwargs": {"top_p": 7}}, PROMPT, openai.BadRequestError, "top_p"),
        ({}, "a cat " * 1000, openai.BadRequestError, "512"),
    ],
    ids=["another model", "a wrong value", "a prompt beyond the context"],
)
def test_an_error_says_what_is_wrong(
    server: Server, options: dict[str, Any], prompt: str, error: type[openai.APIError], message: str
) -> None:
    with pytest.raises(error, match=message):
        model(server, **options).complete(prompt)
    with pytest.raises(error, match=message):
        list(model(server, **options).stream_complete(prompt))


def test_the_program_of_the_page_tells_a_story(server: Server, tmp_path: Path) -> None:
    assert len(page.run("LlamaIndex", server.url, tmp_path).split()) > 15
