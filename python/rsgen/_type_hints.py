"""Type hints of Python's own as JSON schemas, and JSON's values as values of those types.

What has to do with pydantic is not read here: :class:`OfPydantic` says so.
"""

from __future__ import annotations

import collections.abc as abc
import inspect
import json
import re
from collections import deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin
from uuid import UUID

from ._class_fields import MARKS, fields_of, filled, has_fields, hints_of, marks_of, special

Schema = dict[str, Any]
Convert = Callable[[Any], Any]


def moment(read: Callable[[str], Any]) -> Convert:
    """Reads a text as Python 3.10 cannot: with "Z", and with a fraction of any length."""
    fraction = re.compile(r"(\.\d{1,6})\d*")
    return lambda text: read(fraction.sub(lambda f: f[1].ljust(7, "0"), text.upper().replace("Z", "+00:00")))


#: The name of each type that JSON has.
NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}
#: What JSON has as texts: the keyword that says so, and what makes a value of a text.
TEXTS: dict[Any, tuple[Schema, Convert]] = {
    date: ({"format": "date"}, date.fromisoformat),
    datetime: ({"format": "date-time"}, moment(datetime.fromisoformat)),
    time: ({"format": "time"}, moment(time.fromisoformat)),
    UUID: ({"format": "uuid"}, UUID),
    Decimal: ({"pattern": r"^-?(0|[1-9]\d*)(\.\d+)?$"}, Decimal),
}
#: What a list becomes.
LISTS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((set, abc.Set, abc.MutableSet), set),
    frozenset: frozenset,
    deque: deque,
}
OBJECTS = (dict, abc.Mapping, abc.MutableMapping)
#: What an object in ``Annotated`` says by its attributes, as those of annotated_types do.
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
BOUNDS |= {"multiple_of": "multipleOf", "min_length": "minLength", "max_length": "maxLength"}
REMEDY = (
    "use a dataclass, TypedDict, NamedTuple, Enum, Literal, list, tuple, dict, str, int, float, bool, None, a union of "
    "those, or a model of pydantic's"
)


class OfPydantic(Exception):
    """A type has to do with pydantic."""


class Wrong(ValueError):
    """A value that a type does not have, and its place in the whole."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.path: list[str | int] = []


def read(hint: Any) -> tuple[Schema, Convert]:
    """The schema of a type hint, and what makes its values of JSON's. Raises ``TypeError`` for one without a form in JSON."""
    hints = _Hints()
    schema, convert = hints.read(hint, "")
    if schema.keys() == {"$ref"} and json.dumps(schema)[1:-1] not in json.dumps(hints.schemas):
        schema = hints.schemas.pop(schema["$ref"].rpartition("/")[2])
    return {**schema, "$defs": hints.schemas} if hints.schemas else schema, convert


def shown(hint: Any) -> str:
    """A hint as it is written."""
    is_class = isinstance(hint, type) and not get_args(hint)
    return hint.__name__ if is_class else repr(hint).replace("typing.", "")


class _Hints:
    """Reads hints. Classes become definitions, which may refer to themselves."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.schemas: dict[str, Schema] = {}
        self.converts: dict[str, Convert] = {}

    def read(self, hint: Any, place: str) -> tuple[Schema, Convert]:
        origin, arguments = get_origin(hint) or hint, get_args(hint)
        if hasattr(hint, "__get_pydantic_core_schema__") or hasattr(hint, "__pydantic_core_schema__"):
            raise OfPydantic
        if hasattr(hint, "__metadata__"):
            return self.annotated(arguments[0], hint.__metadata__, place)
        if type(hint).__hash__ is None:
            raise _unreadable(hint, place)
        if hint is Any or hint is object:
            return {}, lambda value: value
        if hint is None or hint in NAMES:
            return _plain(hint or NoneType)
        if hint in TEXTS:
            keywords, make = TEXTS[hint]
            return {"type": "string", **keywords}, lambda value: make(_of(str, "string", value))
        if hasattr(hint, "__supertype__"):
            return self.read(hint.__supertype__, place)
        if hasattr(origin, "__value__"):  # `type Name = …`
            return self.define(hint, lambda: self.read(filled(origin.__value__, hint), place))
        if isinstance(hint, TypeVar):
            return self.read(hint.__bound__ or Any, place)
        if special(origin) in MARKS:
            return self.read(arguments[0], place)
        if origin is Literal:
            return _choice([(getattr(value, "value", value), value) for value in arguments], hint, place)
        if origin in (Union, UnionType):
            return _union([self.read(argument, place) for argument in arguments])
        if origin in LISTS:
            return _list(LISTS[origin], self.read(arguments[0] if arguments else Any, place))
        if hint is tuple or (origin is tuple and arguments[-1:] == (...,)):
            return _list(tuple, self.read(arguments[0] if arguments else Any, place))
        if origin is tuple:
            return _tuple([self.read(argument, place) for argument in arguments if argument != ()])
        if origin in OBJECTS:
            key, value = arguments or (str, Any)
            if key is not str:
                raise _unreadable(key, place, "the keys of an object must be str")
            return _dict(self.read(value, place))
        if isinstance(origin, type) and issubclass(origin, Enum):
            return _choice([(member.value, member) for member in origin], hint, place)
        if isinstance(origin, type) and has_fields(origin):
            return self.define(hint, lambda: self.fields(hint, origin))
        raise _unreadable(hint, place)

    def define(self, hint: Any, make: Callable[[], tuple[Schema, Convert]]) -> tuple[Schema, Convert]:
        if hint not in self.names:
            name = (get_origin(hint) or hint).__name__
            while name in self.schemas:
                name += "_"
            self.names[hint], self.schemas[name] = name, {}
            self.schemas[name], self.converts[name] = make()
        name = self.names[hint]
        return {"$ref": f"#/$defs/{name}"}, lambda value: self.converts[name](value)

    def fields(self, hint: Any, cls: Any) -> tuple[Schema, Convert]:
        properties: dict[str, Schema] = {}
        converts: dict[str, Convert] = {}
        required: list[str] = []
        hints = hints_of(cls)
        for name, is_required, description in fields_of(cls, hints):
            field = filled(hints.get(name, Any), hint)
            properties[name], converts[name] = self.read(field, f"{cls.__name__}.{name}")
            if description:
                properties[name] = {**properties[name], "description": description}
            marks = set(marks_of(field))
            if (is_required or "Required" in marks) and "NotRequired" not in marks:
                required.append(name)
        schema: Schema = {"type": "object"}
        doc = vars(cls).get("__doc__") or ""
        if doc and not doc.startswith(f"{cls.__name__}("):
            schema["description"] = inspect.cleandoc(doc)
        schema |= {"properties": properties, "required": required, "additionalProperties": False}

        def convert(value: Any) -> Any:
            items = _of(dict, "object", value)
            for name in required:
                if name not in items:
                    raise Wrong(f"must have {name!r}")
            for name in items:
                if name not in converts:
                    raise Wrong(f"must have no {name!r}")
            made = {name: _inside(name, converts[name], item) for name, item in items.items()}
            return made if issubclass(cls, dict) else cls(**made)

        return schema, convert

    def annotated(self, hint: Any, metadata: Iterable[Any], place: str) -> tuple[Schema, Convert]:
        schema, convert = self.read(hint, place)
        schema = dict(schema)
        for item in metadata:
            if type(item).__module__.partition(".")[0] == "pydantic":
                raise OfPydantic
            description = item if isinstance(item, str) else getattr(item, "documentation", None)
            if isinstance(description, str):
                schema["description"] = description
            for name, keyword in BOUNDS.items():
                bound = getattr(item, name, None)
                if isinstance(bound, int | float):
                    is_list = schema.get("type") == "array"
                    schema[keyword.replace("Length", "Items") if is_list else keyword] = bound
        return schema, convert


def _unreadable(hint: Any, place: str, remedy: str = REMEDY) -> TypeError:
    return TypeError(f"`output_type`: {place and place + ': '}{shown(hint)} has no form in JSON; {remedy}")


def _inside(key: str | int | None, convert: Convert, value: Any) -> Any:
    """A value within another. What is wrong with it says where it is."""
    try:
        return convert(value)
    except Exception as error:
        wrong = error if isinstance(error, Wrong) else Wrong(str(error) or type(error).__name__)
        wrong.path[:0] = [] if key is None else [key]
        if wrong is error:
            raise
        raise wrong from error


def _of(kind: type, name: str, value: Any) -> Any:
    if type(value) is not kind:
        raise Wrong(f"must be of type {name}, got {value!r:.80}")
    return value


def _plain(kind: Any) -> tuple[Schema, Convert]:
    def convert(value: Any) -> Any:
        if kind is float and type(value) is int:
            return float(value)
        if kind is int and type(value) is float and value.is_integer():
            return int(value)
        return _of(kind, NAMES[kind], value)

    return {"type": NAMES[kind]}, convert


def _choice(options: list[tuple[Any, Any]], hint: Any, place: str) -> tuple[Schema, Convert]:
    values = [value for value, _ in options]
    if not values or any(type(value) not in NAMES for value in values):
        raise _unreadable(hint, place, "its values must be str, int, float, bool or None, and at least one")

    def convert(value: Any) -> Any:
        for option, result in options:
            if value == option and isinstance(value, bool) == isinstance(option, bool):
                return result
        raise Wrong(f"must be one of {values}, got {value!r:.80}")

    return {"enum": values}, convert


def _union(members: list[tuple[Schema, Convert]]) -> tuple[Schema, Convert]:
    def convert(value: Any) -> Any:
        wrongs: list[Wrong] = []
        for _, member in members:
            try:
                return _inside(None, member, value)
            except Wrong as wrong:
                wrongs.append(wrong)
        raise max(wrongs, key=lambda wrong: len(wrong.path))

    return {"anyOf": [schema for schema, _ in members]}, convert


def _list(make: Callable[[Iterable[Any]], Any], item: tuple[Schema, Convert]) -> tuple[Schema, Convert]:
    def convert(value: Any) -> Any:
        items = enumerate(_of(list, "array", value))
        return make([_inside(index, item[1], each) for index, each in items])

    return {"type": "array", "items": item[0]}, convert


def _tuple(members: list[tuple[Schema, Convert]]) -> tuple[Schema, Convert]:
    def convert(value: Any) -> Any:
        if len(_of(list, "array", value)) != len(members):
            raise Wrong(f"must have {len(members)} items, got {len(value)}")
        items = enumerate(zip(members, value, strict=True))
        return tuple(_inside(index, member[1], each) for index, (member, each) in items)

    schema = {"type": "array", "minItems": len(members), "maxItems": len(members)}
    # JSON Schema allows no empty list of them.
    items = {"prefixItems": [schema for schema, _ in members]} if members else {}
    return schema | items, convert


def _dict(item: tuple[Schema, Convert]) -> tuple[Schema, Convert]:
    def convert(value: Any) -> Any:
        items = _of(dict, "object", value).items()
        return {name: _inside(name, item[1], each) for name, each in items}

    return {"type": "object", "additionalProperties": item[0]}, convert
