"""The `ollama` client: chats, prompts, streams, formats, tools, vectors, models, errors, and streams that are left."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import numpy as np
import ollama
import openai
import pytest
import rsgen
from serving import Server

HELLO: list[Any] = [{"role": "user", "content": "Tell me a story about a cat."}]
GREEDY = {"temperature": 0, "num_predict": 30}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Says what the weather will be.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Bern"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
#: The model makes no call by itself, so a grammar makes it.
CALL = """start: "<tool_call>\\n{\\"name\\": \\"weather\\", \\"arguments\\": {\\"city\\": \\"Bern\\"}}\\n</tool_call>\""""


@pytest.fixture(scope="module")
def llama(server: Server) -> ollama.Client:
    return ollama.Client(host=server.url)


@pytest.fixture(scope="module")
def with_tools(tool_server: Server) -> ollama.Client:
    return ollama.Client(host=tool_server.url)


def test_a_chat_equals_the_library_whole_and_streamed(llama: ollama.Client, gen: rsgen.Generator) -> None:
    expected = gen.chat(HELLO, max_new_tokens=30, do_sample=False)
    whole = llama.chat("story-3m", HELLO, options=GREEDY)
    assert whole.message.content == expected.text
    assert (whole.message.role, whole.done, whole.model) == ("assistant", True, "story-3m")
    assert whole.done_reason in ("stop", "length")
    assert whole.eval_count
    assert whole.total_duration
    parts = list(llama.chat("story-3m:latest", HELLO, options=GREEDY, stream=True))
    assert len(parts) > 2
    assert "".join(part.message.content or "" for part in parts) == expected.text
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count
    beams = llama.chat("story-3m", HELLO, options={"num_beams": 4, "num_predict": 30})
    assert beams.message.content == gen.chat(HELLO, max_new_tokens=30, num_beams=4, do_sample=False).text


def test_samples_have_the_defaults_of_ollama(llama: ollama.Client, gen: rsgen.Generator) -> None:
    options = ollama.Options(seed=5, num_predict=20, num_ctx=2048, num_thread=2, low_vram=False)
    found = llama.chat("story-3m", HELLO, options=options).message.content
    expected = gen.chat(
        HELLO, max_new_tokens=20, do_sample=True, seed=5, temperature=0.8, top_k=40, top_p=0.9
    )
    assert found == expected.text


def test_a_prompt_is_answered_as_it_is_or_through_the_template(
    llama: ollama.Client, gen: rsgen.Generator
) -> None:
    raw = llama.generate("story-3m", "Once upon a time", raw=True, options=GREEDY)
    assert raw.response == gen.generate("Once upon a time", max_new_tokens=30, do_sample=False).text
    story = "Tell me a story about a cat."
    parts = llama.generate("story-3m", story, system="Be brief.", options=GREEDY, stream=True)
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    expected = gen.chat(messages, max_new_tokens=30, do_sample=False)
    assert "".join(part.response for part in parts) == expected.text
    assert llama.generate("story-3m", keep_alive=0).done_reason == "unload"


def test_formats_hold_an_answer(llama: ollama.Client) -> None:
    schema = WEATHER["function"]["parameters"]
    answer = llama.chat("story-3m", HELLO, format=schema, options=GREEDY | {"num_predict": 60})
    assert json.loads(answer.message.content or "") == {"city": "Bern"}


def test_calls_of_tools_are_parsed_and_answered(with_tools: ollama.Client) -> None:
    options = {"temperature": 0, "num_predict": 120, "grammar": CALL}
    answer = with_tools.chat("story-3m", HELLO, tools=[WEATHER], options=options)
    [call] = answer.message.tool_calls or []
    assert (call.function.name, dict(call.function.arguments)) == ("weather", {"city": "Bern"})
    parts = list(with_tools.chat("story-3m", HELLO, tools=[WEATHER], options=options, stream=True))
    streamed = [call for part in parts for call in part.message.tool_calls or []]
    assert [dict(call.function.arguments) for call in streamed] == [{"city": "Bern"}]
    result = {"role": "tool", "tool_name": "weather", "content": "sun"}
    again = with_tools.chat("story-3m", [*HELLO, answer.message, result], tools=[WEATHER], options=GREEDY)
    assert again.message.content


def test_thinking_is_beside_what_is_said(thinking_server: Server, llama: ollama.Client) -> None:
    thinks = ollama.Client(host=thinking_server.url)
    options: Any = GREEDY | {"num_predict": 60, "thinking_token_budget": 5, "regex": " ?(yes|no)"}
    whole = thinks.chat("story-3m", HELLO, think=True, options=options)
    assert whole.message.thinking
    assert (whole.message.content or "").strip() in ("yes", "no")
    parts = list(thinks.chat("story-3m", HELLO, think="low", options=options, stream=True))
    assert any(part.message.thinking for part in parts)
    prompt = thinks.generate("story-3m", "Will it rain?", think=True, options=options)
    assert prompt.thinking
    assert prompt.response.strip() in ("yes", "no")
    assert thinks.chat("story-3m", HELLO, think=False, options=options).message.thinking is None
    again = [*HELLO, whole.message, {"role": "user", "content": "Why?"}]
    assert thinks.chat("story-3m", again, think=True, options=options).message.thinking
    assert "thinking" in (thinks.show("story-3m").capabilities or [])
    with pytest.raises(ollama.ResponseError, match="`think` asks for thinking, but the model's"):
        llama.chat("story-3m", HELLO, think=True)


def test_vectors_are_those_of_the_library(llama: ollama.Client, gen: rsgen.Generator) -> None:
    texts = ["Tom had a dog.", "It rained all day."]
    found = llama.embed("story-3m", texts)
    assert np.array_equal(np.array(found.embeddings, np.float32), gen.embed(texts, pooling="mean"))
    assert np.shape(llama.embed("story-3m", texts[0], dimensions=5).embeddings) == (1, 5)
    with pytest.raises(ollama.ResponseError, match="the context holds 512; shorten it, or set `truncate`"):
        llama.embed("story-3m", "word " * 600, truncate=False)


def test_models_are_listed_and_shown(llama: ollama.Client) -> None:
    [model] = llama.list().models
    assert model.model == "story-3m"
    assert model.size
    shown = llama.show("story-3m")
    assert shown.capabilities == ["completion", "embedding"]
    assert 512 in (shown.modelinfo or {}).values()


def test_errors_name_what_is_wrong(llama: ollama.Client) -> None:
    for words, call in [
        (
            "`options.mirostat` is not supported",
            lambda: llama.chat("story-3m", HELLO, options={"mirostat": 2}),
        ),
        ("`options.temperature` must be", lambda: llama.chat("story-3m", HELLO, options={"temperature": -1})),
        ("is not served here", lambda: llama.chat("other", HELLO)),
        (
            "holds images",
            lambda: llama.chat("story-3m", [{"role": "user", "content": "a", "images": [b"\x89PNG"]}]),
        ),
        ("there is no path /api/pull", lambda: llama.pull("other")),
    ]:
        with pytest.raises(ollama.ResponseError, match=words) as raised:
            call()
        assert raised.value.status_code in (400, 404)


def test_a_stream_that_is_left_ends_and_many_at_once_are_answered(
    server: Server, llama: ollama.Client, client: openai.OpenAI
) -> None:
    endless = llama.chat("story-3m", HELLO, options={"eos_token_id": [], "num_predict": 400}, stream=True)
    next(iter(endless))
    endless.close()

    async def all_at_once() -> list[ollama.ChatResponse]:
        many = ollama.AsyncClient(host=server.url)
        options = GREEDY | {"num_predict": 12}
        return await asyncio.gather(*(many.chat("story-3m", HELLO, options=options) for _ in range(24)))

    assert len({answer.message.content for answer in asyncio.run(all_at_once())}) == 1
    deadline = time.monotonic() + 10
    while client._client.get(f"{server.url}/health").json()["running"] > 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
