"""Python functions as the JSON schemas that chat templates show to a model.

Signature, type hints and a docstring in Google's form give the schema that transformers' ``get_json_schema`` gives.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import types
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

#: The JSON name of each type that a hint may name. ``Any`` has none.
NAMES: dict[Any, str | None] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    type(None): "null",
    list: "array",
    tuple: "array",
    dict: "object",
    Any: None,
}
SCALARS = (int, float, str, bool, type(None))
SECTIONS = r"(?:Args:|Returns:|Raises:|\Z)"


def json_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """The schema of a function. Raises ``TypeError`` for a hint that JSON has no type for, ``ValueError`` where the
    docstring is silent."""
    name = getattr(function, "__name__", "operation")
    docstring = (inspect.getdoc(function) or "").strip()
    if not docstring:
        raise ValueError(
            f"the tool {name} must have a docstring that says what it does; or pass its JSON schema"
        )
    described = parameter_descriptions(docstring)
    parameters, returned = parameter_schemas(function, name)
    for parameter, schema in parameters["properties"].items():
        if parameter not in described:
            raise ValueError(f"the docstring of the tool {name} must describe `{parameter}` under `Args:`")
        text = described[parameter]
        choices = re.search(r"\(choices:\s*(.*?)\)\s*$", text, flags=re.IGNORECASE)
        if choices:
            values = json.loads(choices.group(1))
            schema["enum"] = [value.strip() if isinstance(value, str) else value for value in values]
            text = text[: choices.start()].strip()
        schema["description"] = text
    description = re.split(rf"[\n\s]*{SECTIONS}", docstring, maxsplit=1)[0].strip()
    schema = {"name": name, "description": description, "parameters": parameters}
    if returned is not None:
        result = re.search(r"\n\s*Returns:\n\s*(.*?)[\n\s]*(?:Raises:|\Z)", docstring, flags=re.DOTALL)
        if result:
            returned["description"] = result.group(1).strip()
        schema["return"] = returned
    return {"type": "function", "function": schema}


def parameter_descriptions(docstring: str) -> dict[str, str]:
    """What the docstring says about each parameter, each on one line."""
    block = re.search(rf"\n\s*Args:\n(.*?)[\n\s]*{SECTIONS}", docstring, flags=re.DOTALL)
    described: dict[str, str] = {}
    name, depth = None, 0
    for line in block.group(1).split("\n") if block else []:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip(" \t"))
        begins = re.match(r"[ \t]*(\w+)(?:[ \t]*\([^()\n]*\))?:\s*(.*)", line)
        # A line that is indented deeper goes on with the description above it, whatever it looks like.
        if begins and (name is None or indent <= depth):
            name, depth = begins.group(1), indent
            described[name] = begins.group(2).strip()
        elif name is not None:
            described[name] = f"{described[name]} {line.strip()}".strip()
    return described


def parameter_schemas(
    function: Callable[..., Any], name: str
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The schema of the parameters, without descriptions, and that of the result, if its hint has one."""
    hints = get_type_hints(function)
    required: list[str] = []
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.annotation is inspect.Parameter.empty:
            if position == 0 and parameter.name in ("self", "cls"):
                continue
            raise TypeError(f"the parameter `{parameter.name}` of the tool {name} must have a type hint")
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    returned = None
    if "return" in hints:
        # A model never writes the result, so a hint without a form in JSON does no harm.
        with contextlib.suppress(TypeError):
            returned = hint_schema(hints.pop("return"))
    properties = {parameter: hint_schema(hint) for parameter, hint in hints.items() if parameter != "return"}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema, returned


def hint_schema(hint: Any) -> dict[str, Any]:
    """The schema of a type hint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        if isinstance(hint, type) and issubclass(hint, Enum):
            return enum_schema([member.value for member in hint], hint)
        if hint not in NAMES:
            raise TypeError(
                f"the type hint {hint!r} of a tool has no form in JSON; use int, float, str, bool, None, list, tuple, dict, "
                "Literal, an Enum or a Union of those, or pass the JSON schema of the tool"
            )
        return {} if NAMES[hint] is None else {"type": NAMES[hint]}
    if origin is Literal:
        return enum_schema(arguments, hint)
    if origin in (Union, types.UnionType):
        return union_schema(arguments)
    if origin is list and arguments:
        return {"type": "array", "items": hint_schema(arguments[0])}
    if origin is tuple and arguments:
        if len(arguments) == 1 or ... in arguments:
            raise TypeError(
                f"the type hint {hint!r} of a tool must name each of several items; use list instead"
            )
        return {"type": "array", "prefixItems": [hint_schema(argument) for argument in arguments]}
    if origin in (list, tuple):
        return {"type": "array"}
    if origin is dict:
        values = {"additionalProperties": hint_schema(arguments[1])} if len(arguments) == 2 else {}
        return {"type": "object", **values}
    raise TypeError(f"the type hint {hint!r} of a tool has no form in JSON")


def union_schema(arguments: tuple[Any, ...]) -> dict[str, Any]:
    """One of several types: their names, unless one of them says more than its name."""
    schemas = [hint_schema(argument) for argument in arguments if argument is not type(None)]
    schema: dict[str, Any]
    if len(schemas) == 1:
        schema = schemas[0]
    elif all(schema.keys() == {"type"} and isinstance(schema["type"], str) for schema in schemas):
        schema = {"type": one_or_all(sorted({schema["type"] for schema in schemas}))}
    else:
        schema = {"anyOf": schemas}
    if type(None) in arguments:
        schema["nullable"] = True
    return schema


def enum_schema(values: Iterable[Any], hint: Any) -> dict[str, Any]:
    """Given values, with the names of their types in the order in which they come."""
    values = list(values)
    if not values or any(type(value) not in SCALARS for value in values):
        raise TypeError(
            f"the values of the type hint {hint!r} of a tool must be int, float, str, bool or None"
        )
    return {"type": one_or_all(list(dict.fromkeys(NAMES[type(value)] for value in values))), "enum": values}


def one_or_all(names: list[Any]) -> Any:
    """A list of one name as that name."""
    return names[0] if len(names) == 1 else names
