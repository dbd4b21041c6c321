"""JSON texts that are cut off: what they have so far, and what they lack."""

from __future__ import annotations

import json
import re
from typing import Any

#: The value of a text in which none has begun that can be told: a number may go on.
NOTHING: Any = type("Nothing", (), {"__repr__": lambda _: "nothing"})()

_SPACE = re.compile(r"[ \t\n\r]*")
#: A string up to its end or that of the text, without half an escape.
_STRING = re.compile(r'"(?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*')
_AFTER_NUMBERS = set(",]} \t\n\r")
_HALF_OF_A_PAIR = re.compile("[\ud800-\udbff]$")
_decode = json.JSONDecoder().raw_decode


def beginning(text: str) -> tuple[Any, list[str | int] | None]:
    """The value so far, and the path to where it is cut off: None if it is whole."""
    value, _, path = _value(text, 0)
    return value, path


def _value(text: str, at: int) -> tuple[Any, int, list[str | int] | None]:
    """The value that begins here, where it ends, and where it is cut off."""
    at = _after_space(text, at)
    try:
        value, end = _decode(text, at)
        goes_on = type(value) in (int, float) and text[end : end + 1] not in _AFTER_NUMBERS
        return (NOTHING, len(text), []) if goes_on else (value, end, None)
    except ValueError:
        pass
    match text[at : at + 1]:
        case '"':
            string = json.loads(_STRING.match(text, at)[0] + '"', strict=False)  # type: ignore[index]
            return _HALF_OF_A_PAIR.sub("", string), len(text), []
        case "{":
            return _object(text, at + 1)
        case "[":
            return _array(text, at + 1)
    return NOTHING, len(text), []


def _object(text: str, at: int) -> tuple[dict[str, Any], int, list[str | int]]:
    made: dict[str, Any] = {}
    while True:
        name, at, path = _value(text, at)
        if path is not None:
            return made, at, []
        at = _after_space(text, at)
        if text[at : at + 1] != ":":
            return made, at, [name]
        value, at, path = _value(text, at + 1)
        if value is not NOTHING:
            made[name] = value
        if path is not None:
            return made, at, [name, *path]
        at = _after_space(text, at)
        if text[at : at + 1] != ",":
            return made, at, []
        at += 1


def _array(text: str, at: int) -> tuple[list[Any], int, list[str | int]]:
    made: list[Any] = []
    while True:
        value, at, path = _value(text, at)
        if value is not NOTHING:
            made.append(value)
        if path is not None:
            return made, at, [] if value is NOTHING else [len(made) - 1, *path]
        at = _after_space(text, at)
        if text[at : at + 1] != ",":
            return made, at, []
        at += 1


def _after_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def missing(
    schema: Any, value: Any, definitions: dict[str, Any], path: tuple[str | int, ...] = ()
) -> list[list[str | int]]:
    """The paths of the properties that a schema requires and a value lacks."""
    while isinstance(schema, dict) and ("$ref" in schema or "anyOf" in schema):
        if "$ref" in schema:
            schema = definitions.get(schema["$ref"].rpartition("/")[2])
        else:
            others = [other for other in schema["anyOf"] if other != {"type": "null"}]
            schema = others[0] if len(others) == 1 else None
    if not isinstance(schema, dict):
        return []
    found: list[list[str | int]] = []
    if isinstance(value, dict):
        for name, property_schema in schema.get("properties", {}).items():
            if name in value:
                found += missing(property_schema, value[name], definitions, (*path, name))
            elif name in schema.get("required", ()):
                found.append([*path, name])
    elif isinstance(value, list) and value:
        found += missing(schema.get("items"), value[-1], definitions, (*path, len(value) - 1))
    return found
