"""The `anthropic` client: messages, streams, tools, counts, errors, and streams that are left."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import anthropic
import openai
import pytest
import rsgen
from anthropic.types import Message, TextBlock, ToolUseBlock
from conftest import anthropic_client_of, story_server
from serving import Server

HELLO: list[Any] = [{"role": "user", "content": "Tell me a story about a cat."}]
TOOLS: list[Any] = [
    {
        "name": "weather",
        "description": "Says what the weather will be.",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"enum": ["Bern", "Rome"]}, "days": {"enum": [1, 2]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
    {
        "name": "unit",
        "description": "Says what a thing is measured in.",
        "input_schema": {
            "type": "object",
            "properties": {"thing": {"enum": ["rain", "heat"]}},
            "required": ["thing"],
            "additionalProperties": False,
        },
    },
]
#: Fields that the client has no argument for.
GREEDY = {"temperature": 0}


@pytest.fixture(scope="module")
def claude(server: Server) -> anthropic.Anthropic:
    return anthropic_client_of(server)


@pytest.fixture(scope="module")
def with_tools(tool_server: Server) -> anthropic.Anthropic:
    return anthropic_client_of(tool_server)


def ask(client: anthropic.Anthropic, messages: list[Any] = HELLO, **fields: Any) -> Message:
    options = {"model": "story-3m", "messages": messages, "max_tokens": 30, "extra_body": GREEDY}
    return client.messages.create(**options | fields)


def test_a_message_is_typed_and_equals_the_library(claude: anthropic.Anthropic, gen: rsgen.Generator) -> None:
    message = ask(claude, system="Be brief.")
    expected = gen.chat(
        [{"role": "system", "content": "Be brief."}, *HELLO], max_new_tokens=30, do_sample=False
    )
    [block] = message.content
    assert isinstance(block, TextBlock)
    assert block.text == expected.text
    assert (message.role, message.type, message.model) == ("assistant", "message", "story-3m")
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message.usage.output_tokens > 0
    beams = ask(claude, extra_body={"rsgen": {"num_beams": 4}})
    assert beams.content[0].text == gen.chat(HELLO, max_new_tokens=30, num_beams=4, do_sample=False).text


def test_a_stream_has_the_events_of_the_whole_message(claude: anthropic.Anthropic) -> None:
    whole = ask(claude)
    options = {"model": "story-3m", "messages": HELLO, "max_tokens": 30, "extra_body": GREEDY}
    with claude.messages.stream(**options) as stream:
        events = list(stream)
        final = stream.get_final_message()
    assert "".join(event.text for event in events if event.type == "text") == whole.content[0].text
    assert final.content[0].text == whole.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    raw = [event.type for event in claude.messages.create(stream=True, **options)]
    assert raw[:2] == ["message_start", "content_block_start"]
    assert raw[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_stop_sequences_end_a_message(claude: anthropic.Anthropic) -> None:
    text = ask(claude).content[0].text
    stop = text[10:13]
    message = ask(claude, stop_sequences=[stop])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    assert message.content[0].text == text[: text.index(stop)]


def test_a_message_goes_on_with_what_it_has_begun(claude: anthropic.Anthropic, gen: rsgen.Generator) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "There was a"}]
    expected = gen.chat(begun, max_new_tokens=30, do_sample=False, continue_final_message=True)
    assert ask(claude, begun).content[0].text == expected.text


def test_the_count_is_that_of_the_message(claude: anthropic.Anthropic) -> None:
    counted = claude.messages.count_tokens(model="story-3m", messages=HELLO, system="Be brief.")
    usage = ask(claude, system="Be brief.").usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "unit"}], ids=str)
def test_a_call_follows_the_schema_of_its_tool(with_tools: anthropic.Anthropic, choice: Any) -> None:
    choice = choice | {"disable_parallel_tool_use": True}
    options = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 120}
    message = ask(with_tools, **options)
    assert message.stop_reason == "tool_use"
    [call] = message.content
    assert isinstance(call, ToolUseBlock)
    assert call.name in ("weather", "unit")
    assert set(call.input) == ({"city", "days"} if call.name == "weather" else {"thing"})
    with with_tools.messages.stream(model="story-3m", messages=HELLO, extra_body=GREEDY, **options) as stream:
        deltas = [event for event in stream if event.type == "input_json"]
        [same] = stream.get_final_message().content
    assert len(deltas) > 2
    assert (same.name, same.input) == (call.name, call.input)


def test_a_task_of_two_tools_ends_with_a_text(with_tools: anthropic.Anthropic) -> None:
    messages, called = list(HELLO), []
    for choice in ({"type": "tool", "name": "weather"}, {"type": "tool", "name": "unit"}, {"type": "none"}):
        message = ask(with_tools, messages, tools=TOOLS, tool_choice=choice, max_tokens=120)
        messages.append({"role": "assistant", "content": message.content})
        results = []
        for block in message.content:
            if block.type == "tool_use":
                called.append(block.name)
                results.append({"type": "tool_result", "tool_use_id": block.id, "content": "rain in mm"})
        if results:
            messages.append({"role": "user", "content": results})
    assert called == ["weather", "unit"]
    assert messages[-1]["content"][0].type == "text"


def test_json_of_a_schema(claude: anthropic.Anthropic) -> None:
    schema = TOOLS[1]["input_schema"]
    message = ask(claude, output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=60)
    assert json.loads(message.content[0].text)["thing"] in ("rain", "heat")


def test_thinking_is_a_block_that_is_given_back(thinking_server: Server, claude: anthropic.Anthropic) -> None:
    thinks = anthropic_client_of(thinking_server)
    thinking: Any = {"type": "enabled", "budget_tokens": 5}
    fields = {"thinking": thinking, "extra_body": GREEDY | {"regex": " ?(yes|no)"}, "max_tokens": 60}
    message = ask(thinks, **fields)
    thought, answer = message.content
    assert (thought.type, answer.type) == ("thinking", "text")
    assert thought.thinking
    assert thought.signature
    with thinks.messages.stream(model="story-3m", messages=HELLO, **fields) as stream:
        events = list(stream)
        final = stream.get_final_message()
    assert "".join(event.thinking for event in events if event.type == "thinking") == thought.thinking
    assert [event.signature for event in events if event.type == "signature"] == [thought.signature]
    assert [block.to_dict() for block in final.content] == [block.to_dict() for block in message.content]
    again = [*HELLO, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Why?"}]
    assert ask(thinks, again, **fields).content[0].type == "thinking"
    assert [block.type for block in ask(thinks, **fields | {"thinking": {"type": "disabled"}}).content] == [
        "text"
    ]
    with pytest.raises(anthropic.BadRequestError, match="`thinking` asks for thinking, but the model's"):
        ask(claude, thinking=thinking)


def test_errors_have_their_types(claude: anthropic.Anthropic) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    with pytest.raises(
        anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\]` is a block of the type"
    ) as raised:
        ask(claude, [{"role": "user", "content": [image]}])
    assert raised.value.body["error"]["type"] == "invalid_request_error"
    assert raised.value.request_id
    with pytest.raises(anthropic.NotFoundError):
        ask(claude, model="other")
    with pytest.raises(anthropic.BadRequestError, match="`mirostat` is not supported"):
        ask(claude, extra_body={"mirostat": 2})
    with story_server("--api-key", "canary") as keyed:
        assert ask(anthropic_client_of(keyed, api_key="canary"), max_tokens=2).content
        assert ask(anthropic_client_of(keyed, api_key=None, auth_token="canary"), max_tokens=2).content
        with pytest.raises(anthropic.AuthenticationError):
            ask(anthropic_client_of(keyed, api_key="wrong"))


def test_a_stream_that_is_left_ends_and_many_at_once_are_answered(
    server: Server, claude: anthropic.Anthropic, client: openai.OpenAI
) -> None:
    with claude.messages.stream(
        model="story-3m", messages=HELLO, max_tokens=400, extra_body={"eos_token_id": []}
    ) as stream:
        next(iter(stream.text_stream))

    async def all_at_once() -> list[Message]:
        many = anthropic.AsyncAnthropic(base_url=server.url, api_key="none")
        ask = many.messages.create
        options = {"model": "story-3m", "messages": HELLO, "max_tokens": 12, "extra_body": GREEDY}
        return await asyncio.gather(*(ask(**options) for _ in range(24)))

    texts = {message.content[0].text for message in asyncio.run(all_at_once())}
    assert len(texts) == 1
    deadline = time.monotonic() + 10
    while client._client.get(f"{server.url}/health").json()["running"] > 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
