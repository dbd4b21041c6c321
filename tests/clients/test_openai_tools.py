"""Tools through the `openai` client: calls, streams, parsed arguments and a task of two tools, held by the grammar; and the same
through `langchain-openai`."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from conftest import client_of
from langchain_openai import ChatOpenAI
from openai import pydantic_function_tool
from openai.types.chat import ChatCompletionMessageToolCall
from pydantic import BaseModel
from serving import Server

HELLO: list[Any] = [{"role": "user", "content": "Will it rain?"}]


class Weather(BaseModel):
    """Says what the weather will be."""

    city: Literal["Bern", "Rome"]
    days: Literal[1, 2]


class Unit(BaseModel):
    """Says what a thing is measured in."""

    thing: Literal["rain", "heat"]


TOOLS = [pydantic_function_tool(Weather), pydantic_function_tool(Unit)]


def named(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


@pytest.fixture(scope="module")
def client(tool_server: Server) -> openai.OpenAI:
    """Its client."""
    return client_of(tool_server)


def ask(client: openai.OpenAI, messages: list[Any] = HELLO, **fields: Any) -> Any:
    options = {"model": "story-3m", "messages": messages, "max_tokens": 120, "temperature": 0, "tools": TOOLS}
    return client.chat.completions.create(**options | fields)


@pytest.mark.parametrize("choice", ["required", named("Weather"), named("Unit")], ids=str)
def test_a_call_is_typed_and_valid(client: openai.OpenAI, choice: Any) -> None:
    answer = ask(client, tool_choice=choice, parallel_tool_calls=False)
    [chosen] = answer.choices
    assert (chosen.finish_reason, chosen.message.content) == ("tool_calls", None)
    [call] = chosen.message.tool_calls
    assert isinstance(call, ChatCompletionMessageToolCall)
    assert call.type == "function"
    kind = {"Weather": Weather, "Unit": Unit}[call.function.name]
    kind.model_validate_json(call.function.arguments)


def test_parse_gives_values(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(
        model="story-3m",
        messages=HELLO,
        tools=TOOLS,
        tool_choice=named("Weather"),
        max_tokens=120,
        temperature=0,
    )
    [call] = parsed.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather)


def test_the_clients_stream_makes_the_same_call(client: openai.OpenAI) -> None:
    whole = ask(client, tool_choice=named("Weather")).choices[0].message.tool_calls[0].function
    with client.chat.completions.stream(
        model="story-3m",
        messages=HELLO,
        tools=TOOLS,
        tool_choice=named("Weather"),
        max_tokens=120,
        temperature=0,
    ) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    deltas = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    assert len(deltas) > 2
    assert "".join(event.arguments_delta for event in deltas) == whole.arguments
    assert all(event.name == "Weather" for event in deltas)
    [done] = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert done.arguments == whole.arguments
    [choice] = final.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.parsed_arguments == Weather(**json.loads(whole.arguments))


def test_a_task_of_two_tools_ends_with_a_text(client: openai.OpenAI) -> None:
    functions = {
        "Weather": lambda city, days: f"{city}: sun for {days}",
        "Unit": lambda thing: f"{thing} in mm",
    }
    messages, called = list(HELLO), []
    for choice in (named("Weather"), named("Unit"), "none"):
        message = ask(client, messages, tool_choice=choice, max_tokens=120).choices[0].message
        messages.append(message)
        for call in message.tool_calls or []:
            called.append(call.function.name)
            result = functions[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert called == ["Weather", "Unit"]
    assert messages[-1].content


def test_an_answer_may_be_text_where_the_model_chooses(client: openai.OpenAI) -> None:
    for choice in ("auto", "none"):
        message = ask(client, tool_choice=choice, max_tokens=8).choices[0].message
        assert message.tool_calls is None
        assert message.content


def test_what_cannot_be_is_an_error(client: openai.OpenAI) -> None:
    for fields, param in [
        ({"tool_choice": named("Other")}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools"),
    ]:
        with pytest.raises(openai.BadRequestError) as raised:
            ask(client, **fields)
        assert raised.value.param == param


def test_langchain_binds_tools_and_reads_types(tool_server: Server) -> None:
    model = ChatOpenAI(
        base_url=f"{tool_server.url}/v1",
        api_key="none",
        model="story-3m",
        temperature=0,
        max_tokens=120,
        max_retries=0,
    )
    message = model.bind_tools([Weather, Unit], tool_choice="Weather").invoke("Will it rain?")
    [call] = message.tool_calls
    assert call["name"] == "Weather"
    Weather.model_validate(call["args"])
    assert isinstance(model.with_structured_output(Unit, method="function_calling").invoke("In what?"), Unit)
    chunks = list(model.bind_tools([Unit], tool_choice="Unit").stream("In what?"))
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    assert [call["name"] for call in total.tool_calls] == ["Unit"]
