"""Tools of conversations: calls that a grammar holds, since the bundled model would make none by itself."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Literal

import pytest
import rsgen

#: Shows tools, calls and results, in Hermes' form.
TEMPLATE = """{{ bos_token }}{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages -%}
{{ '<|assistant|>' if m.role == 'assistant' else '<|user|>' }}{{ m.content }}
{%- for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
STORY = Path(rsgen.__file__).parent / "models" / "story-3m"
HELLO = [{"role": "user", "content": "Will it rain?"}]
OPTIONS = {"chat_template": TEMPLATE, "max_new_tokens": 90}

ran: list[tuple[str, object]] = []


def weather(city: Literal["Bern", "Rome"], days: Literal[1, 2] = 1) -> str:
    """Says what the weather will be.

    Args:
        city: The name of the city.
        days: For how many days.
    """
    ran.append(("weather", (city, days)))
    return f"{city}: sun"


def broken() -> str:
    """Fails."""
    ran.append(("broken", None))
    raise ValueError("no power")


def numbers() -> dict:
    """Gives numbers."""
    ran.append(("numbers", None))
    return {"a": [1, 2], "ü": None}


SCHEMA = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "",
        "parameters": {"type": "object", "properties": {"x": {"enum": [1, 2, 3]}}, "required": ["x"]},
    },
}


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


def test_a_call_that_is_asked_for_follows_the_schema(gen: rsgen.Generator) -> None:
    out = gen.chat(HELLO, tools=[weather, SCHEMA], tool_choice="weather", **OPTIONS)
    of_openai = {"type": "function", "function": {"name": "weather"}}
    same = gen.chat(HELLO, tools=[weather, SCHEMA], tool_choice=of_openai, **OPTIONS)
    assert same.text == out.text
    with pytest.raises(TypeError, match="`tool_choice` must be a text"):
        gen.chat(HELLO, tools=[weather], tool_choice={"type": "function"}, **OPTIONS)
    [call] = out.tool_calls
    assert isinstance(call, rsgen.ToolCall)
    assert (call.name, json.loads(call.text)) == ("weather", call.arguments)
    assert call.arguments is not None
    assert set(call.arguments) <= {"city", "days"}
    assert call.arguments["city"] in ("Bern", "Rome")
    assert call.arguments.get("days", 1) in (1, 2)
    assert len(call.id) == 9
    assert out.text.startswith('<tool_call>\n{"name": "weather", "arguments": ')
    assert out.messages == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": "weather", "arguments": call.arguments},
                }
            ],
        }
    ]
    assert ran == []
    copy = pickle.loads(pickle.dumps(out))
    assert (copy.tool_calls, copy.messages) == (out.tool_calls, out.messages)
    required = gen.chat(HELLO, tools=[SCHEMA], tool_choice="required", parallel_tool_calls=False, **OPTIONS)
    assert [(call.name, call.arguments["x"] in (1, 2, 3)) for call in required.tool_calls] == [("f", True)]


def test_replies_without_calls_are_messages_too(gen: rsgen.Generator) -> None:
    plain = gen.chat(HELLO, max_new_tokens=5)
    assert plain.tool_calls == []
    assert plain.messages == [{"role": "assistant", "content": plain.text}]
    none = gen.chat(HELLO, tools=[weather], tool_choice="none", max_new_tokens=5)
    assert none.text == plain.text
    auto = gen.chat(HELLO, tools=[weather], chat_template=TEMPLATE, max_new_tokens=5)
    assert auto.tool_calls == []
    assert auto.messages == [{"role": "assistant", "content": auto.text}]


def test_a_stream_and_a_list_have_their_calls(gen: rsgen.Generator) -> None:
    options = {"tools": [SCHEMA], "tool_choice": "f", **OPTIONS}
    whole = gen.chat(HELLO, **options)
    with gen.stream_chat(HELLO, **options) as stream:
        assert "".join(token.text for token in stream) == whole.text
    assert [call.arguments for call in stream.output.tool_calls] == [whole.tool_calls[0].arguments]
    beams = gen.chat(HELLO, num_beams=3, **options)
    assert beams.tool_calls[0].name == "f"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("mistral", "[TOOL_CALLS]["),
        ("llama3_json", '{"name": '),
        ("qwen3_coder", "<tool_call>\n<function=f>"),
    ],
)
def test_the_form_can_be_named(gen: rsgen.Generator, form: str, text: str) -> None:
    out = gen.chat(HELLO, tools=[SCHEMA], tool_choice="f", tool_parser=form, **OPTIONS)
    assert out.text.startswith(text)
    assert [(call.name, set(call.arguments)) for call in out.tool_calls] == [("f", {"x"})]


@pytest.fixture(scope="module")
def special(tmp_path_factory: pytest.TempPathFactory) -> rsgen.Generator:
    """The story model, whose special tokens are marks of calls."""
    folder = tmp_path_factory.mktemp("special") / "model"
    shutil.copytree(STORY, folder)
    for file in folder.glob("*.json"):
        text = file.read_text(encoding="utf-8")
        file.write_text(
            text.replace("<|user|>", "[TOOL_CALLS]").replace("<|assistant|>", "[ARGS]"), encoding="utf-8"
        )
    (folder / "chat_template.jinja").write_text("{{ tools }}[TOOL_CALLS]{{ messages[0].content }}[ARGS]")
    return rsgen.Generator(folder, num_threads=2)


@pytest.mark.parametrize("form", [None, "mistral"])
def test_marks_may_be_special_tokens(special: rsgen.Generator, form: str | None) -> None:
    marks = [special.tokenizer.convert_tokens_to_ids(mark) for mark in ("[TOOL_CALLS]", "[ARGS]")]
    options = {"tools": [SCHEMA], "tool_parser": form, "max_new_tokens": 60}
    out = special.chat(HELLO, tool_choice="f", **options)
    assert out.token_ids[0][0] == marks[0]
    assert (marks[1] in out.token_ids[0]) is (form is None)
    assert "[TOOL_CALLS]" not in out.text
    assert [(call.name, set(call.arguments)) for call in out.tool_calls] == [("f", {"x"})]
    assert out.messages[0]["content"] == ""
    # What the model begins by itself is held from its mark on; without one it writes what it would write anyway.
    begin = [marks[0]]

    def begins(_, ids):
        return begin if ids[-1] == marks[1] else list(range(2048))

    begun = special.chat(HELLO, prefix_allowed_tokens_fn=begins, parallel_tool_calls=False, **options)
    [call] = begun.tool_calls
    assert (call.name, call.arguments["x"] in (1, 2, 3)) == ("f", True)


def test_a_grammar_of_calls_leaves_other_text_as_it_is(
    gen: rsgen.Generator, special: rsgen.Generator
) -> None:
    for model, options in ((gen, {"chat_template": TEMPLATE}), (special, {})):
        prompt = model.apply_chat_template(HELLO, tools=[SCHEMA], add_generation_prompt=True, **options)
        for sampling in ({}, {"do_sample": True, "seed": 5, "top_k": 0, "temperature": 1.3}):
            free = model.generate(prompt, max_new_tokens=60, **sampling)
            held = model.chat(HELLO, tools=[SCHEMA], max_new_tokens=60, **sampling, **options)
            assert held.text == free.text
            assert held.tool_calls == []


def test_every_name_of_a_form_is_in_the_types(gen: rsgen.Generator) -> None:
    from typing import get_args

    from rsgen import types

    with pytest.raises(rsgen.InputError) as raised:
        gen.chat(HELLO, tools=[SCHEMA], tool_parser="other", chat_template=TEMPLATE)
    names = str(raised.value).split("one of ")[1].split(", but")[0].split(", ")
    assert sorted(names) == sorted(get_args(types.ToolParser))


def test_tools_run_until_a_reply_calls_none(gen: rsgen.Generator) -> None:
    out = gen.chat(
        HELLO, tools=[weather], tool_choice="required", parallel_tool_calls=False, run_tools=True, **OPTIONS
    )
    assert [name for name, _ in ran] == ["weather"]
    assert [message["role"] for message in out.messages] == ["assistant", "tool", "assistant"]
    [called, result, last] = out.messages
    assert result["content"].endswith(": sun")
    assert result["tool_call_id"] == called["tool_calls"][0]["id"]
    assert (out.tool_calls, last["content"]) == ([], out.text)
    # What was said is what the conversation goes on with.
    again = gen.chat([*HELLO, *out.messages[:2]], tools=[weather], **OPTIONS)
    assert again.text == out.text
    copy = pickle.loads(pickle.dumps(out))
    assert copy.messages == out.messages


@pytest.mark.parametrize(
    ("tool", "content"),
    [(broken, "Error: ValueError: no power"), (numbers, '{"a": [1, 2], "ü": null}')],
)
def test_results_and_exceptions_go_back_to_the_model(gen: rsgen.Generator, tool, content: str) -> None:
    out = gen.chat(
        HELLO, tools=[tool], tool_choice="required", parallel_tool_calls=False, run_tools=True, **OPTIONS
    )
    assert out.messages[1]["content"] == content
    assert ran == [(tool.__name__, None)]


@pytest.mark.parametrize("method", ["generate", "stream"])
def test_other_methods_point_to_chat(gen: rsgen.Generator, method: str) -> None:
    for name in ("tools", "messages", "run_tools"):
        with pytest.raises(TypeError, match=f"`{name}` is an argument of `chat`"):
            getattr(gen, method)("Hi", **{name: [weather]})


class Scripted:
    """A generator whose replies are given, for what the bundled model would not say."""

    def __init__(self, *replies: tuple[str, list[tuple[str, str, str]]]) -> None:
        self.replies, self.asked = list(replies), []

    def chat(self, messages, generation_config=None, **keywords):
        from types import SimpleNamespace

        from rsgen import _tool_calls

        self.asked.append((list(messages), keywords))
        text, calls = self.replies.pop(0)
        return SimpleNamespace(
            tool_calls=_tool_calls.tool_calls(calls),
            messages=[_tool_calls.message(text, calls)],
            finish_reasons=["eos"],
        )


def test_the_model_is_told_what_was_wrong_with_its_calls() -> None:
    from rsgen import _tool_calls

    calls = [
        ("1", "nothing", "{}"),
        ("2", "weather", '{"city": '),
        ("3", "weather", '{"town": "Bern"}'),
        ("4", "weather", '{"city": "Rome", "days": 2}'),
    ]
    scripted = Scripted(("Let me see.", calls), ("Sun.", []))
    out, messages = _tool_calls.run(
        scripted, HELLO, None, {"tools": [weather, broken], "tool_choice": "required"}, 3
    )
    assert out.tool_calls == []
    assert [message["content"] for message in messages if message["role"] == "tool"] == [
        "Error: there is no tool 'nothing', but weather, broken",
        'Error: the arguments are no JSON object: {"city": ',
        "Error: TypeError: weather() got an unexpected keyword argument 'town'",
        "Rome: sun",
    ]
    # A text of arguments stays one.
    assert [call["function"]["arguments"] for call in messages[0]["tool_calls"]][1:] == [
        '{"city": ',
        {"town": "Bern"},
        {"city": "Rome", "days": 2},
    ]
    assert [keywords.get("tool_choice") for _, keywords in scripted.asked] == ["required", None]
    assert scripted.asked[1][0] == [*HELLO, *messages[:-1]]


def test_rounds_have_a_bound() -> None:
    from rsgen import _tool_calls

    call = ("a", "numbers", "{}")
    for rounds in range(3):
        ran.clear()
        scripted = Scripted(*[("", [call])] * 4)
        out, messages = _tool_calls.run(scripted, HELLO, None, {"tools": [numbers]}, rounds)
        assert (len(ran), len(scripted.asked), len(messages)) == (rounds, rounds + 1, 2 * rounds + 1)
        assert [call.name for call in out.tool_calls] == ["numbers"], "they are left to the caller"


def test_an_interrupt_of_a_tool_ends_the_call(gen: rsgen.Generator) -> None:
    def stop() -> str:
        """Stops."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gen.chat(HELLO, tools=[stop], tool_choice="stop", run_tools=True, **OPTIONS)


async def waits() -> str:
    """Waits."""
    return ""


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tools": [SCHEMA], "run_tools": True}, TypeError, "`run_tools` needs functions as `tools`"),
        ({"tools": [waits], "run_tools": True}, TypeError, "coroutine function"),
        ({"run_tools": True}, TypeError, "`run_tools` needs `tools`"),
        ({"tools": [weather], "run_tools": 3}, TypeError, "`run_tools` must be True or False"),
        (
            {"tools": [weather], "run_tools": True, "max_tool_rounds": -1},
            rsgen.ConfigError,
            "`max_tool_rounds`",
        ),
        ({"tools": [weather], "tool_choice": 3}, TypeError, "`tool_choice` must be a text"),
        ({"tools": [weather], "tool_choice": "rain"}, rsgen.InputError, "must name one of the tools weather"),
        ({"tool_choice": "required"}, rsgen.InputError, "there are no `tools`"),
        ({"tools": [weather], "tool_parser": "x"}, rsgen.InputError, "`tool_parser` must be one of"),
        ({"tools": [weather], "parallel_tool_calls": "no"}, TypeError, "`parallel_tool_calls` must be True"),
        ({"tools": [weather, weather]}, rsgen.InputError, "must have a name of its own"),
        ({"tools": [{"type": "function"}]}, rsgen.InputError, "`tools`: tool 0 must have a `name`"),
        (
            {"tools": [weather], "tool_choice": "required", "output_type": int},
            rsgen.ConfigError,
            "`output_type`",
        ),
        ({"tools": [weather], "tool_choice": "required", "regex": "a"}, rsgen.ConfigError, "`regex`"),
    ],
    ids=str,
)
def test_what_cannot_be_says_why(gen: rsgen.Generator, options, error, words: str) -> None:
    with pytest.raises(error) as raised:
        gen.chat(HELLO, **{**OPTIONS, **options})
    assert words in str(raised.value)


def test_a_template_that_shows_no_tools_is_an_error(gen: rsgen.Generator) -> None:
    silent = "{# tools #}{{ messages[0].content }}"
    for options in ({}, {"chat_template": silent}):
        for call in (gen.chat, gen.stream_chat):
            with pytest.raises(rsgen.InputError, match="`tools`: the chat template does not show"):
                call(HELLO, tools=[weather], **options)
    # The prompt alone is as transformers gives it.
    assert (
        gen.apply_chat_template(HELLO, tools=[weather], chat_template=silent, tokenize=False)
        == "Will it rain?"
    )
    with pytest.raises(TypeError, match="one conversation"):
        gen.chat([HELLO], tools=[weather], run_tools=True, **OPTIONS)
