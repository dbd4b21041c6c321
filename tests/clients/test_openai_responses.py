"""`/v1/responses` through the `openai` client: whole, as a stream, with values, tools and thinking, gone on with, and refused."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
import rsgen
from conftest import client_of, story_server
from openai import pydantic_function_tool
from pydantic import BaseModel
from serving import Server

STORY = "Tell me a story about a cat."


class Weather(BaseModel):
    """Says what the weather will be."""

    city: Literal["Bern", "Rome"]
    days: Literal[1, 2]


class Unit(BaseModel):
    """Says what a thing is measured in."""

    thing: Literal["rain", "heat"]


def flat(model: type[BaseModel]) -> Any:
    """A tool in the form of this API."""
    function: Any = pydantic_function_tool(model)["function"]
    return {"type": "function", **function}


TOOLS = [flat(Weather), flat(Unit)]


def named(name: str) -> Any:
    return {"type": "function", "name": name}


def options(**fields: Any) -> dict[str, Any]:
    return {"model": "story-3m", "input": STORY, "max_output_tokens": 30, "temperature": 0} | fields


@pytest.fixture(scope="module")
def with_tools(tool_server: Server) -> openai.OpenAI:
    return client_of(tool_server)


@pytest.fixture(scope="module")
def thinks(thinking_server: Server) -> openai.OpenAI:
    return client_of(thinking_server)


def test_a_response_is_typed_and_equals_the_library(client: openai.OpenAI, gen: rsgen.Generator) -> None:
    response = client.responses.create(**options(instructions="Be brief.", metadata={"a": "b"}))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": STORY}]
    assert response.output_text == gen.chat(messages, max_new_tokens=30, do_sample=False).text
    assert (response.object, response.model, response.metadata) == ("response", "story-3m", {"a": "b"})
    assert response.status in ("completed", "incomplete")
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    beams = client.responses.create(**options(temperature=None), extra_body={"rsgen": {"num_beams": 4}})
    expected = gen.chat([messages[1]], max_new_tokens=30, num_beams=4, do_sample=False)
    assert beams.output_text == expected.text


def test_a_stream_has_the_events_of_the_whole_response(client: openai.OpenAI) -> None:
    schema = {"type": "json_schema", "name": "u", "schema": Unit.model_json_schema(), "strict": True}
    fields = options(text={"format": schema}, max_output_tokens=100)
    whole = client.responses.create(**fields)
    raw = list(client.responses.create(stream=True, **fields))
    assert [event.sequence_number for event in raw] == list(range(len(raw)))
    assert [event.type for event in raw[:4]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert [event.type for event in raw[-4:]] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert (
        "".join(event.delta for event in raw if event.type == "response.output_text.delta")
        == whole.output_text
    )
    with client.responses.stream(**fields) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert (snapshots[-1], final.output_text) == (whole.output_text, whole.output_text)
    cut = list(client.responses.create(stream=True, **options(max_output_tokens=2)))
    assert cut[-1].type == "response.incomplete"
    assert cut[-1].response.incomplete_details.reason == "max_output_tokens"


def test_parse_gives_values(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(text_format=Unit, **options(max_output_tokens=100))
    assert isinstance(parsed.output_parsed, Unit)
    with client.responses.stream(text_format=Unit, **options(max_output_tokens=100)) as stream:
        assert stream.get_final_response().output_parsed == parsed.output_parsed


def test_a_call_follows_the_schema_of_its_tool(with_tools: openai.OpenAI) -> None:
    fields = options(tools=TOOLS, tool_choice=named("Weather"), max_output_tokens=120)
    [call] = with_tools.responses.create(**fields).output
    assert (call.type, call.status) == ("function_call", "completed")
    value = Weather.model_validate_json(call.arguments)
    with with_tools.responses.stream(**fields) as stream:
        deltas = [event for event in stream if event.type == "response.function_call_arguments.delta"]
        [same] = stream.get_final_response().output
    assert len(deltas) > 2
    assert deltas[-1].snapshot == same.arguments == call.arguments
    [parsed] = with_tools.responses.parse(**fields).output
    assert parsed.parsed_arguments == value.model_dump()
    required = options(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_output_tokens=120)
    assert [item.type for item in with_tools.responses.create(**required).output] == ["function_call"]


@pytest.mark.parametrize("keeps", [True, False], ids=["by its id", "by its items"])
def test_a_task_of_two_tools_ends_with_a_text(with_tools: openai.OpenAI, keeps: bool) -> None:
    items: list[Any] = [{"role": "user", "content": "Will it rain?"}]
    new, previous, called = list(items), None, []
    for choice in (named("Weather"), named("Unit"), "none"):
        fields = options(tools=TOOLS, tool_choice=choice, max_output_tokens=120, store=keeps)
        if keeps:
            fields |= {"input": new, "previous_response_id": previous}
        else:
            fields["input"] = items
        response = with_tools.responses.create(**fields)
        previous, new = response.id, []
        items += response.output
        for item in response.output:
            if item.type == "function_call":
                called.append(item.name)
                output = json.dumps({"of": json.loads(item.arguments)})
                new.append({"type": "function_call_output", "call_id": item.call_id, "output": output})
        items += new
    assert called == ["Weather", "Unit"]
    assert response.output_text


def test_responses_are_kept_got_listed_and_forgotten(client: openai.OpenAI) -> None:
    first = client.responses.create(**options())
    assert client.responses.retrieve(first.id) == first
    second = client.responses.create(**options(input="And then?", previous_response_id=first.id))
    items = list(client.responses.input_items.list(second.id, limit=1, order="asc"))
    assert [item.type for item in items] == ["message"] * 3
    assert [item.role for item in items] == ["user", "assistant", "user"]
    assert items[1].content[0].text == first.output_text
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(**options(previous_response_id=first.id))
    assert raised.value.code == "previous_response_not_found"
    assert client.responses.create(**options(previous_response_id=second.id)).output
    with story_server("--api-key", "one", "--api-key", "two") as keyed:
        one, two = (client_of(keyed, api_key=key) for key in ("one", "two"))
        kept = one.responses.create(**options(max_output_tokens=2))
        assert one.responses.retrieve(kept.id) == kept
        with pytest.raises(openai.NotFoundError):
            two.responses.retrieve(kept.id)


def test_thinking_is_an_item_of_its_own(thinks: openai.OpenAI) -> None:
    extra = {"thinking_token_budget": 5, "regex": " ?(yes|no)"}
    fields = options(max_output_tokens=60, extra_body=extra, reasoning={"effort": "low", "summary": "auto"})
    response = thinks.responses.create(**fields)
    thought, message = response.output
    assert (thought.type, message.type) == ("reasoning", "message")
    assert response.output_text.strip() in ("yes", "no")
    assert response.usage.output_tokens_details.reasoning_tokens >= 5
    raw = list(thinks.responses.create(stream=True, **fields))
    deltas = [event.delta for event in raw if event.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == thought.content[0].text
    with thinks.responses.stream(**fields) as stream:
        stream.until_done()
        assert stream.get_final_response().output_text == response.output_text
    again = [{"role": "user", "content": STORY}, *response.output, {"role": "user", "content": "Why?"}]
    assert thinks.responses.create(**fields | {"input": again}).output_text.strip() in ("yes", "no")


def test_what_cannot_be_is_an_error(client: openai.OpenAI) -> None:
    image = [{"type": "input_image", "image_url": "data:,", "detail": "auto"}]
    for fields, param in [
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"input": [{"role": "user", "content": image}]}, "input[0].content[0]"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ]:
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(**options(**fields))
        assert raised.value.param == param
