"""What the ``output_type`` of a call means: the JSON schema of a type, and values of that type from texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ._errors import ParseError
from ._partial_json import NOTHING, beginning, missing
from ._type_hints import OfPydantic, Schema, read, shown

REMEDIES = {
    "length": "raise `max_new_tokens`",
    "time": "raise `max_time`",
    "stop": "leave out what stops it",
    "cancelled": "read the stream to its end",
}


class OutputType:
    """A type: its schema, and its values. The extension makes it."""

    def __init__(self, hint: Any) -> None:
        if isinstance(hint, dict | str):
            raise TypeError(
                f"`output_type` must be a type, got {hint!r:.60}; `json_schema` takes a schema, and `regex` a pattern"
            )
        self.hint = hint
        #: Makes a value of a text and of its JSON value.
        self._read: Callable[[str, Any], Any]
        try:
            if hasattr(hint, "validate_json"):
                raise OfPydantic
            schema, convert = read(hint)
            self._read = lambda _, value: convert(value)
        except OfPydantic:
            adapter = _adapter(hint)
            schema = adapter.json_schema()
            self._read = lambda text, _: adapter.validate_json(text)
        self.schema: Schema = _closed(schema)

    def __reduce__(self) -> tuple[type[OutputType], tuple[Any]]:
        return OutputType, (self.hint,)

    def description(self) -> str:
        """What tells a model what to write."""
        return f"Answer with JSON that follows this schema:\n{json.dumps(self.schema, ensure_ascii=False)}"

    def partial(self, text: str) -> Any:
        """What a text has of its value so far, as JSON has it. None before there is any."""
        value, _ = beginning(text)
        return None if value is NOTHING else value

    def parse_all(self, texts: Sequence[str], reasons: Sequence[str], prompts: Sequence[int]) -> list[Any]:
        """The values of the texts of all rows, with an error in place of each that has none."""
        parsed: list[Any] = []
        for row, (text, reason, prompt) in enumerate(zip(texts, reasons, prompts, strict=True)):
            try:
                parsed.append(self._parse(text, reason))
            except ParseError as error:
                if len(texts) > 1:
                    error.args, error.prompt_index = (f"row {row}: {error}",), prompt
                parsed.append(error.with_traceback(None))
        return parsed

    def _parse(self, text: str, reason: str) -> Any:
        try:
            value = json.loads(text)
            # Only its end tells that a number is whole.
            if type(value) in (int, float) and reason not in ("eos", "stop"):
                raise self._cut(text, reason)
            return self._read(text, value)
        except ParseError:
            raise
        except json.JSONDecodeError:
            raise self._cut(text, reason) from None
        except Exception as error:
            place = _place(getattr(error, "path", []))
            message = f"the text is no value of {shown(self.hint)}: {place and f'`{place}` '}{error}"
            raise _error(message, text=text, finish_reason=reason) from error

    def _cut(self, text: str, reason: str) -> ParseError:
        value, path = beginning(text)
        paths = [path or [], *missing(self.schema, value, self.schema.get("$defs", {}))]
        places = list(dict.fromkeys(_place(path) for path in paths if path))
        lacks = f"the whole of {', '.join(f'`{place}`' for place in places)}" if places else "its end"
        return _error(
            f"the text is cut off and lacks {lacks}, for a value of {shown(self.hint)}: it ended with the reason "
            f'"{reason}"; {REMEDIES.get(reason, "check the text")}',
            text=text,
            finish_reason=reason,
            missing=places,
            partial=self.partial(text),
        )


def first(parsed: list[Any]) -> Any:
    """The first of the values, or its error raised."""
    if isinstance(parsed[0], ParseError):
        raise parsed[0].with_traceback(None)
    return parsed[0]


def _adapter(hint: Any) -> Any:
    """A ``TypeAdapter``, of what has to do with pydantic."""
    if hasattr(hint, "validate_json"):
        return hint
    from pydantic import TypeAdapter

    return TypeAdapter(hint)


def _error(message: str, **attributes: Any) -> ParseError:
    error = ParseError(message)
    error.__dict__.update(attributes)
    return error


def _place(path: list[str | int]) -> str:
    """A path as Python and JavaScript write it: `people[2].name`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def _closed(schema: Any) -> Any:
    """A schema whose objects have the listed properties alone, unless it says otherwise.

    Lists may repeat their items, which grammars cannot forbid: a set has each once.
    """
    if not isinstance(schema, dict):
        return schema
    closed = {name: value for name, value in schema.items() if name != "uniqueItems"}
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    for name in closed.keys() & {"properties", "patternProperties", "$defs"}:
        closed[name] = {each: _closed(value) for each, value in closed[name].items()}
    for name in closed.keys() & {"anyOf", "oneOf", "allOf", "prefixItems"}:
        closed[name] = [_closed(value) for value in closed[name]]
    for name in closed.keys() & {"items", "additionalProperties"}:
        closed[name] = _closed(closed[name])
    return closed
