"""Compares chat templates of published models with transformers: those that llama.cpp keeps for its tests.

RSGEN_LLAMA_CPP_MODELS names the folder `models` of llama.cpp's source, which llama-cpp-python's source package has as well.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="live parity needs transformers==5.24.0")

import rsgen

FOLDER = os.environ.get("RSGEN_LLAMA_CPP_MODELS")
TEMPLATES = sorted((Path(FOLDER) / "templates").glob("*.jinja")) if FOLDER else []
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Weather of a "city" & more.',
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2]}},
            "required": ["city"],
        },
    },
}
CALL = {
    "id": "abcdefghi",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 2}},
}
HI, AND = {"role": "user", "content": "Hi é 你好 <b>"}, {"role": "user", "content": "  And? \n"}
#: Messages, tools and variables.
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], list[Any] | None, dict[str, Any]]] = {
    "one message": ([HI], None, {}),
    "system": (
        [{"role": "system", "content": "Be brief."}, HI, {"role": "assistant", "content": "Yo"}, AND],
        None,
        {},
    ),
    "tools": ([HI], [TOOL], {}),
    "calls": (
        [
            HI,
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": '{"t": 20}'},
        ],
        [TOOL],
        {},
    ),
    "thoughts": (
        [HI, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYo"}, AND],
        None,
        {"enable_thinking": False},
    ),
    "reasoning": (
        [HI, {"role": "assistant", "reasoning_content": "hm", "content": "Yo"}, AND],
        None,
        {"enable_thinking": True, "reasoning_effort": "high"},
    ),
}

pytestmark = pytest.mark.skipif(not TEMPLATES, reason="RSGEN_LLAMA_CPP_MODELS names no folder of templates")


@pytest.fixture(scope="module")
def gen() -> rsgen.Generator:
    return rsgen.Generator(num_threads=1)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_published_templates_write_what_transformers_writes(gen: rsgen.Generator, path: Path) -> None:
    from transformers.utils.chat_template_utils import _compile_jinja_template

    template = path.read_text(encoding="utf-8")
    for name, (messages, tools, variables) in CONVERSATIONS.items():
        for asks in (True, False):
            given = {"add_generation_prompt": asks, **variables}
            try:
                special = gen.tokenizer.special_tokens_map
                compiled = _compile_jinja_template(template)
                expected = compiled.render(messages=messages, tools=tools, documents=None, **special, **given)
            except Exception as error:
                # One asks for a list where transformers has a generator.
                if "generator is not JSON serializable" in str(error):
                    continue
                # A conversation that the template refuses.
                with pytest.raises(rsgen.RsgenError):
                    gen.apply_chat_template(
                        messages, tokenize=False, chat_template=template, tools=tools, **given
                    )
                continue
            found = gen.apply_chat_template(
                messages, tokenize=False, chat_template=template, tools=tools, **given
            )
            assert found == expected, name
