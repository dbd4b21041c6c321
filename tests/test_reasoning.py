"""Thinking of conversations: a budget ends it, since the bundled model would not, and a grammar says the answer."""

import pickle
import shutil
from pathlib import Path
from typing import Literal, get_args

import pytest
import rsgen
from rsgen import types

STORY = Path(rsgen.__file__).parent / "models" / "story-3m"
#: Its prompt begins the thinking unless it is told not to, as that of Qwen3.
TEMPLATE = """{{ bos_token }}{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages -%}
{{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endfor %}
{%- if add_generation_prompt %}<|assistant|><think>
{% if enable_thinking is false %}
</think>

{% endif %}{% endif %}"""
HELLO = [{"role": "user", "content": "Two and two?"}]
OPTIONS = {"chat_template": TEMPLATE, "thinking_token_budget": 5, "regex": "Four[.]", "max_new_tokens": 60}


def move(to: Literal["a1", "b2"]) -> str:
    """Moves.

    Args:
        to: Where.
    """
    return to


def test_thinking_is_told_from_the_answer(gen: rsgen.Generator) -> None:
    out = gen.chat(HELLO, **OPTIONS)
    thought, answer = out.text.split("</think>")
    assert answer == "Four."
    assert out.reasoning == thought.strip() != ""
    assert out.messages == [{"role": "assistant", "content": "Four.", "reasoning_content": out.reasoning}]
    # What was thought goes back to the template.
    again = gen.apply_chat_template([*HELLO, *out.messages], chat_template=TEMPLATE, tokenize=False)
    assert again.endswith(f"assistant: <think>{out.reasoning}</think>Four.")
    copy = pickle.loads(pickle.dumps(out))
    assert (copy.reasoning, copy.messages) == (out.reasoning, out.messages)


def test_a_budget_counts_the_tokens_of_thinking(gen: rsgen.Generator) -> None:
    end = gen.tokenizer.encode("</think>", add_special_tokens=False)
    for budget in (0, 1, 7):
        ids = list(gen.chat(HELLO, **{**OPTIONS, "thinking_token_budget": budget}).token_ids[0])
        assert ids[budget : budget + len(end)] == end
    free = gen.chat(HELLO, chat_template=TEMPLATE, max_new_tokens=30)
    held = gen.chat(HELLO, chat_template=TEMPLATE, max_new_tokens=30, thinking_token_budget=10)
    assert list(held.token_ids[0][:10]) == list(free.token_ids[0][:10])
    # A call that asks for neither a budget nor a grammar is as it was.
    assert free.reasoning == free.text.strip()
    assert free.messages[0]["content"] == ""


def test_a_template_may_end_the_thinking_itself(gen: rsgen.Generator) -> None:
    out = gen.chat(HELLO, chat_template_kwargs={"enable_thinking": False}, **OPTIONS)
    assert (out.text, out.reasoning) == ("Four.", "")
    assert out.messages == [{"role": "assistant", "content": "Four."}]


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "seed": 3}], ids=str)
def test_a_stream_tells_thinking_from_the_answer(gen: rsgen.Generator, options: dict) -> None:
    whole = gen.chat(HELLO, **OPTIONS, **options)
    parts = {True: "", False: ""}
    with gen.stream_chat(HELLO, **OPTIONS, **options) as stream:
        assert stream.is_reasoning is False, "no token was read"
        for token in stream:
            parts[stream.is_reasoning] += token.text
    assert parts[False] == "Four."
    assert parts[True] == whole.text.removesuffix("Four.")
    assert stream.output.reasoning == whole.reasoning
    with gen.stream("Once", max_new_tokens=3) as plain:
        assert [plain.is_reasoning for _ in plain] == [False] * 3


def test_values_are_read_from_the_answer(gen: rsgen.Generator) -> None:
    options = {**OPTIONS, "regex": None, "output_type": Literal["yes", "no"], "num_return_sequences": 2}
    options |= {"do_sample": True, "seed": 1}
    for conversations in (HELLO, [HELLO, HELLO]):
        out = gen.chat(conversations, **options)
        assert out.reasoning
        assert out.parsed in ("yes", "no")
        assert all(value in ("yes", "no") for value in out.parsed_all)
        assert pickle.loads(pickle.dumps(out)).parsed_all == out.parsed_all
    with gen.stream_chat(HELLO, **{**options, "num_return_sequences": 1}) as stream:
        values = [stream.partial for _ in stream]
    assert (values[0], values[-1]) == (None, stream.output.parsed)
    assert stream.output.parsed in ("yes", "no")


def test_calls_come_after_the_thinking(gen: rsgen.Generator) -> None:
    options = {"chat_template": TEMPLATE, "thinking_token_budget": 4, "max_new_tokens": 150}
    out = gen.chat(HELLO, tools=[move], tool_choice="move", **options)
    [call] = out.tool_calls
    assert call.arguments["to"] in ("a1", "b2")
    assert out.reasoning
    assert out.messages[0]["content"] == ""
    assert out.messages[0]["reasoning_content"] == out.reasoning
    ran = gen.chat(HELLO, tools=[move], tool_choice="move", run_tools=True, max_tool_rounds=1, **options)
    assert ran.messages[0]["reasoning_content"] == out.reasoning
    assert ran.messages[1]["content"] in ("a1", "b2")


@pytest.fixture(scope="module")
def special(tmp_path_factory: pytest.TempPathFactory) -> rsgen.Generator:
    """The story model, whose special tokens are the marks of thinking."""
    folder = tmp_path_factory.mktemp("special") / "model"
    shutil.copytree(STORY, folder)
    for file in folder.glob("*.json"):
        text = file.read_text(encoding="utf-8")
        file.write_text(
            text.replace("<|user|>", "[THINK]").replace("<|assistant|>", "[/THINK]"), encoding="utf-8"
        )
    (folder / "chat_template.jinja").write_text("{# [THINK] #}{{ messages[0].content }}")
    return rsgen.Generator(folder, num_threads=2)


def test_marks_may_be_special_tokens(special: rsgen.Generator) -> None:
    begin, end = special.tokenizer.convert_tokens_to_ids(["[THINK]", "[/THINK]"])

    def begins(_, ids):
        return [begin] if begin not in ids else list(range(2048))

    options = {**OPTIONS, "prefix_allowed_tokens_fn": begins}
    del options["chat_template"]
    out = special.chat(HELLO, **options)
    ids = list(out.token_ids[0])
    assert (ids[0], ids.index(end)) == (begin, 6)
    assert "THINK" not in out.text
    assert out.text == out.reasoning + "Four." or out.text.replace(" ", "").endswith("Four.")
    assert out.messages[0]["content"] == "Four."
    with special.stream_chat(HELLO, **options) as stream:
        kinds = [stream.is_reasoning for _ in stream]
    assert kinds == [True] * 7 + [False] * (len(kinds) - 7)
    # Where a model may think, it may answer at once, too.
    del options["prefix_allowed_tokens_fn"]
    direct = special.chat(HELLO, **{**options, "thinking_token_budget": 0})
    assert (direct.text, direct.reasoning) == ("Four.", "")


def test_the_form_can_be_named(gen: rsgen.Generator) -> None:
    plain = {**OPTIONS, "chat_template": "{{ messages[0].content }}"}
    out = gen.chat(HELLO, reasoning_parser="deepseek_r1", **plain)
    assert (out.messages[0]["content"], bool(out.reasoning)) == ("Four.", True)
    harmony = gen.chat(
        HELLO, reasoning_parser="openai_gptoss", **{**plain, "thinking_token_budget": 0, "max_new_tokens": 90}
    )
    assert harmony.text == "<|channel|>final<|message|>Four."
    assert harmony.messages[0]["content"] == "Four."
    none = gen.chat(HELLO, reasoning_parser="none", **{**OPTIONS, "thinking_token_budget": None})
    assert (none.text, none.reasoning) == ("Four.", "")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"reasoning_parser": "other"}, rsgen.InputError, "`reasoning_parser` must be one of"),
        ({"reasoning_parser": 3}, TypeError, "`reasoning_parser` must be a text"),
        (
            {"reasoning_parser": "none"},
            rsgen.ConfigError,
            "`thinking_token_budget` needs the tokens that end",
        ),
        ({"thinking_token_budget": -1}, rsgen.ConfigError, "`thinking_token_budget`"),
        ({"chat_template": "{{ messages }}"}, rsgen.ConfigError, "`thinking_token_budget` needs the tokens"),
    ],
    ids=str,
)
def test_what_cannot_be_says_why(gen: rsgen.Generator, options, error, words: str) -> None:
    for call in (gen.chat, gen.stream_chat):
        with pytest.raises(error) as raised:
            call(HELLO, **{**OPTIONS, **options})
        assert words in str(raised.value)


def test_every_name_of_a_form_is_in_the_types(gen: rsgen.Generator) -> None:
    with pytest.raises(rsgen.InputError) as raised:
        gen.chat(HELLO, reasoning_parser="other", chat_template=TEMPLATE)
    names = str(raised.value).split("one of ")[1].split(", but")[0].split(", ")
    assert sorted(names) == sorted(get_args(types.ReasoningParser))


def test_generate_takes_the_tokens_themselves(gen: rsgen.Generator) -> None:
    end = gen.tokenizer.encode("END", add_special_tokens=False)
    options = {"think_end_token_ids": end, "thinking_token_budget": 3, "regex": " ok", "max_new_tokens": 40}
    ids = list(gen.generate("Once upon", **options).token_ids[0])
    assert ids[3 : 3 + len(end)] == end
    assert gen.tokenizer.decode(ids[3 + len(end) :], skip_special_tokens=True) == " ok"
