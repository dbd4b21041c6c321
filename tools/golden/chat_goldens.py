"""Conversations, and what transformers makes of them with the templates of `chat_templates/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(__file__).parent / "chat_templates"
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def assistant(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def system(content: Any) -> dict[str, Any]:
    return {"role": "system", "content": content}


def call(name: str, arguments: Any, number: int = 1) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def tool(name: str, description: str, parameters: dict[str, Any], **fields: Any) -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": parameters, **fields}
    return {"type": "function", "function": function}


WEATHER = tool(
    "get_weather",
    "The weather at a place.\nIn °C & <plain> words.",
    {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": 'A town, such as "Zürich" '},
            "days": {"type": "integer", "description": "How many", "nullable": True, "default": 1},
            "unit": {"type": "string", "enum": ["°C", "°F"], "description": "What it is\nmeasured in"},
        },
        "required": ["place"],
    },
    **{"return": {"type": "string"}},
)
ROUTE = tool(
    "find_route",
    "The way between places",
    {
        "type": "object",
        "properties": {
            "stops": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            "options": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "who": {"type": ["string", "null"], "description": ""},
            "car": {"type": "object", "properties": {"seats": {"type": "integer", "default": 4}}},
        },
        "required": ["stops"],
    },
)
CLOCK = tool("now", "What time it is", {"type": "object", "properties": {}})

SHORT = [user("What is a llama?")]
LONG = [
    system("You are a patient teacher."),
    user("What is 2 + 2?"),
    assistant("It is 4."),
    user("And 3 + 3?"),
    assistant("It is 6."),
    user("Thank you!"),
]
WHITE = [
    system("  \n told\t "),
    user("\n\n  in front and behind  \n"),
    assistant(" \tan answer \r\n\n\n with lines\u00a0\n"),
    user("\u2003more\x0b"),
]
SIGNS = [
    system('Grüße, 世界 — "quoted" & <b>bold</b> it\'s'),
    user("😀👩‍👩‍👧 e\u0301 \\n {{ not }} {% a %} #}\u2028end"),
    assistant("مرحبا \U0001f999\u200b"),
    user("a\\b\"c'd`e|f"),
]
PARTS = [
    user(
        [{"type": "text", "text": " See this: "}, {"type": "image"}, {"type": "text", "text": "Who is it?"}]
    ),
    assistant([{"type": "text", "text": "A llama."}]),
    user([{"type": "image_url", "image_url": {"url": "x.png"}}, {"type": "text", "text": "Sure?"}]),
]
TOOL_TALK = [
    system("Use tools."),
    user("Weather in Zürich?"),
    assistant("", tool_calls=[call("get_weather", {"place": "Zürich", "days": 2, "unit": None})]),
    {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "sunny, 21.5 °C"},
    assistant("It is sunny."),
    user("And the way there?"),
]
PARALLEL = [
    user("Two things at once."),
    assistant(
        None,
        tool_calls=[
            call("find_route", {"stops": [[1, 2.5], [3e20, -0.0]], "options": {"a": True, "ü": False}}),
            call("now", "{}", 2),
        ],
    ),
    {"role": "tool", "tool_call_id": "call00001", "content": '{"km": 3}'},
    {"role": "tool", "tool_call_id": "call00002", "content": "12:00"},
]
THOUGHTS = [
    user("Think!"),
    assistant("<think>\nfirst, </b>\n</think>\n\nDone."),
    user("Again."),
    assistant("\n\nYes.", reasoning_content="\nhm, hm\n"),
]

#: What a case has besides its messages are the arguments of `apply_chat_template`.
CASES: dict[str, dict[str, Any]] = {
    "short": {"messages": SHORT},
    "short, to reply": {"messages": SHORT, "add_generation_prompt": True},
    "long": {"messages": LONG[:-1]},
    "long, to reply": {"messages": LONG, "add_generation_prompt": True},
    "white space": {"messages": WHITE, "add_generation_prompt": True},
    "signs": {"messages": SIGNS, "add_generation_prompt": True},
    "empty": {"messages": [system(""), user(""), assistant(""), user(" ")], "add_generation_prompt": True},
    "parts": {"messages": PARTS, "add_generation_prompt": True},
    "tools": {"messages": LONG[:2], "tools": [WEATHER, ROUTE, CLOCK], "add_generation_prompt": True},
    "a call": {"messages": TOOL_TALK, "tools": [WEATHER], "add_generation_prompt": True},
    "a call without its tools": {"messages": TOOL_TALK[:4]},
    "calls at once": {"messages": PARALLEL, "tools": [CLOCK, ROUTE], "add_generation_prompt": True},
    "thoughts": {"messages": THOUGHTS},
    "thoughts, off": {"messages": THOUGHTS[:3], "add_generation_prompt": True, "enable_thinking": False},
    "thoughts, on": {
        "messages": [system("Be brief. /no_think"), *THOUGHTS[:1]],
        "add_generation_prompt": True,
        "enable_thinking": True,
        "thinking": True,
        "reasoning_effort": "high",
    },
    "documents": {
        "messages": SHORT,
        "documents": [
            {"title": "Animals", "text": "Llamas live\nin herds.", "score": 0.25},
            {"title": "Ünits", "text": "", "score": 2},
        ],
        "controls": {"citations": True, "length": "short"},
        "add_generation_prompt": True,
    },
    "variables": {
        "messages": TOOL_TALK[1:4],
        "tools": [WEATHER],
        "builtin_tools": ["code_interpreter", "get_weather"],
        "tools_in_user_message": True,
        "date_string": "24 Dec 2025",
        "bos_token": "<begin>",
    },
    "continued": {"messages": [*SHORT, assistant("A llama is ")], "continue_final_message": True},
    "continued parts": {
        "messages": [*SHORT, assistant([{"type": "text", "text": "A llama"}])],
        "continue_final_message": True,
    },
    "continued thoughts": {
        "messages": [*SHORT, assistant("", reasoning_content="well,")],
        "continue_final_message": "reasoning_content",
    },
    "continued, empty": {"messages": [*SHORT, assistant("")], "continue_final_message": True},
    "two questions": {"messages": [user("One."), user("Two.")], "add_generation_prompt": True},
    "an answer first": {"messages": [assistant("Hello."), user("Hi.")]},
    "an unknown role": {
        "messages": [user("Hi."), {"role": "narrator", "content": "Night fell.", "name": "N"}]
    },
}


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of no use but for its special tokens."""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")), **SPECIAL_TOKENS
    )


def rendered(template: str, case: dict[str, Any]) -> dict[str, str]:
    """What transformers gives, or why it gives nothing."""
    arguments = {name: value for name, value in case.items() if name != "messages"}
    try:
        text = tokenizer().apply_chat_template(
            case["messages"], chat_template=template, tokenize=False, **arguments
        )
    except Exception as error:
        # The words of `raise_exception` are the template's; all others are Python's.
        own = type(error).__name__ == "TemplateError"
        return {"error": str(error) if own else ""}
    return {"text": text}


def chat_golden() -> dict[str, Any]:
    """Every template with every case."""
    templates = {path.stem: path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob("*.jinja"))}
    return {
        "special_tokens": SPECIAL_TOKENS,
        "cases": CASES,
        "templates": {
            name: {"source": source, "rendered": [rendered(source, case) for case in CASES.values()]}
            for name, source in templates.items()
        },
    }


def write_chat_golden(path: Path) -> None:
    """Writes the golden, one template on a line."""
    golden = chat_golden()
    lines = [f"{json.dumps(name)}:{dumped(value)}" for name, value in golden["templates"].items()]
    head = f'{{"format":1,\n"special_tokens":{dumped(golden["special_tokens"])},"cases":{dumped(golden["cases"])},"templates":{{\n'
    path.write_text(head + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
