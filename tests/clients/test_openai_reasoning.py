"""Thinking through the `openai` client: whole and as a stream, with values, with tools, and in a conversation that goes on."""

from __future__ import annotations

from typing import Any, Literal

import openai
import pytest
from conftest import client_of
from openai import pydantic_function_tool
from pydantic import BaseModel
from serving import Server

HELLO: list[Any] = [{"role": "user", "content": "Will it rain?"}]


class Weather(BaseModel):
    """Says what the weather will be."""

    city: Literal["Bern", "Rome"]


class Unit(BaseModel):
    """Says what a thing is measured in."""

    thing: Literal["rain", "heat"]


TOOLS = [pydantic_function_tool(Weather), pydantic_function_tool(Unit)]


@pytest.fixture(scope="module")
def client(thinking_server: Server) -> openai.OpenAI:
    """The client of a server whose model thinks."""
    return client_of(thinking_server)


def options(**fields: Any) -> dict[str, Any]:
    extra = {"thinking_token_budget": 5, **fields.pop("extra_body", {})}
    return {
        "model": "story-3m",
        "messages": HELLO,
        "max_tokens": 120,
        "temperature": 0,
        "extra_body": extra,
    } | fields


YES = {"structured_outputs": {"choice": ["yes", "no"]}}


def test_a_message_has_its_thinking_apart(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**options(extra_body=YES))
    message = answer.choices[0].message
    assert message.content in ("yes", "no")
    assert message.reasoning_content == message.reasoning != ""
    details = answer.usage.completion_tokens_details
    assert 5 <= details.reasoning_tokens < answer.usage.completion_tokens
    silent = client.chat.completions.create(
        **options(extra_body=YES | {"chat_template_kwargs": {"enable_thinking": False}})
    )
    assert silent.choices[0].message.content in ("yes", "no")
    assert not hasattr(silent.choices[0].message, "reasoning_content")


def test_a_stream_has_the_thinking_first(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**options(extra_body=YES)).choices[0].message
    thought, answer = "", ""
    for chunk in client.chat.completions.create(stream=True, **options(extra_body=YES)):
        delta = chunk.choices[0].delta
        if more := getattr(delta, "reasoning_content", None):
            assert not answer
            assert not delta.content
            thought += more
        answer += delta.content or ""
    assert (thought, answer) == (whole.reasoning_content, whole.content)


def test_effort_goes_to_the_template(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(**options(extra_body=YES)).usage
    high = client.chat.completions.create(**options(extra_body=YES), reasoning_effort="high").usage
    assert high.prompt_tokens > plain.prompt_tokens


def test_parse_gives_values_after_the_thinking(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(response_format=Weather, **options())
    message = parsed.choices[0].message
    assert isinstance(message.parsed, Weather)
    assert message.reasoning_content
    with client.chat.completions.stream(response_format=Weather, **options()) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == message.parsed


def test_a_task_of_two_tools_thinks_at_each_step(client: openai.OpenAI) -> None:
    results = {"Weather": "sun", "Unit": "mm"}
    messages, thoughts = list(HELLO), []
    for choice in ("Weather", "Unit", "none"):
        named: Any = choice
        if choice != "none":
            named = {"type": "function", "function": {"name": choice}}
        fields = options(messages=messages, tools=TOOLS, tool_choice=named)
        if choice == "none":
            fields["extra_body"] |= YES
        message = client.chat.completions.create(**fields).choices[0].message
        thoughts.append(message.reasoning_content)
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            assert call.function.name == choice
            messages.append({"role": "tool", "tool_call_id": call.id, "content": results[choice]})
    assert len(thoughts) == 3
    assert all(thoughts)
    assert messages[-1]["content"] in ("yes", "no")
