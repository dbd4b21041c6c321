"""Tool calls of a conversation: as messages, and run, until the model makes none."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._results import ToolCall

#: The calls of a reply as the extension finds them: id, name, and the arguments as they were written.
Calls = Sequence[tuple[str, str, str]]


def tool_calls(calls: Calls) -> list[ToolCall]:
    """The calls with their arguments as values."""
    return [ToolCall(name, _arguments(text), text, call_id) for call_id, name, text in calls]


def message(text: str, calls: Calls, reasoning: str = "") -> dict[str, Any]:
    """The message of a reply, as templates take it."""
    written: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning:
        written["reasoning_content"] = reasoning
    if calls:
        written["tool_calls"] = [_written(call) for call in tool_calls(calls)]
    return written


def run(
    generator: Any,
    messages: Sequence[Mapping[str, Any]],
    generation_config: Any,
    keywords: dict[str, Any],
    max_tool_rounds: int,
) -> tuple[Any, list[dict[str, Any]]]:
    """Replies, runs the tools that the reply calls, and goes on with their results. Returns the last reply, and the messages
    of all of it."""
    functions = _functions(keywords.get("tools"))
    if any(not isinstance(message, Mapping) for message in messages):
        raise TypeError("`run_tools` takes one conversation, a list of messages, got a list of conversations")
    added: list[dict[str, Any]] = []
    rounds = 0
    while True:
        out = generator.chat([*messages, *added], generation_config, **keywords)
        added += out.messages
        calls = out.tool_calls
        if not calls or rounds == max_tool_rounds or out.finish_reasons[0] in ("length", "time"):
            return out, added
        added += [_result(call, functions) for call in calls]
        rounds += 1
        # What had to be called was called.
        keywords.pop("tool_choice", None)


def _functions(tools: Any) -> dict[str, Callable[..., Any]]:
    functions: dict[str, Callable[..., Any]] = {}
    for tool in tools or ():
        if not callable(tool):
            raise TypeError(
                f"`run_tools` needs functions as `tools`, got {tool!r:.60}; leave out `run_tools`"
            )
        if inspect.iscoroutinefunction(tool):
            raise TypeError(f"`run_tools` calls functions, got the coroutine function {tool!r:.60}")
        functions[getattr(tool, "__name__", "operation")] = tool
    if not functions:
        raise TypeError("`run_tools` needs `tools` to run; give functions, or leave it out")
    return functions


def _result(call: ToolCall, functions: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """The message with the result of a call. What goes wrong is a result too, so that the model can mend it."""
    function = functions.get(call.name)
    if function is None:
        content = f"Error: there is no tool {call.name!r}, but {', '.join(functions)}"
    elif call.arguments is None:
        content = f"Error: the arguments are no JSON object: {call.text}"
    else:
        try:
            result = function(**call.arguments)
            content = (
                result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
            )
        except Exception as error:
            content = f"Error: {type(error).__name__}: {error}"
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        arguments = json.loads(text)
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


def _written(call: ToolCall) -> dict[str, Any]:
    # Templates write the arguments themselves; a text of them is what was no JSON.
    arguments = call.text if call.arguments is None else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
