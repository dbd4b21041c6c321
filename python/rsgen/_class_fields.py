"""The fields of dataclasses, TypedDicts and NamedTuples, with the types that they have in the class at hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

#: A field: its name, whether it must be there, and what it is for.
Field = tuple[str, bool, "str | None"]
#: The special forms around the type of a field.
MARKS = {"Required", "NotRequired", "ReadOnly", "Final"}


def has_fields(cls: type) -> bool:
    """Whether it is one of these classes."""
    is_named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    is_typed_dict = issubclass(cls, dict) and hasattr(cls, "__required_keys__")
    return dataclasses.is_dataclass(cls) or is_named_tuple or is_typed_dict


def fields_of(cls: Any, hints: dict[str, Any]) -> Iterator[Field]:
    """The fields of a class with these hints. Raises ``TypeError`` for one that no constructor takes from JSON."""
    if hasattr(cls, "__required_keys__"):
        yield from ((name, name in cls.__required_keys__, None) for name in hints)
    elif hasattr(cls, "_field_defaults"):
        yield from ((name, name not in cls._field_defaults, None) for name in cls._fields)
    else:
        for name, hint in hints.items():
            if isinstance(hint, dataclasses.InitVar):
                raise TypeError(
                    f"`output_type`: {cls.__name__}.{name}: {hint!r} has no form in JSON; make it a field"
                )
        for field in dataclasses.fields(cls):
            if field.init:
                defaults = (field.default, field.default_factory)
                is_required = all(default is dataclasses.MISSING for default in defaults)
                yield field.name, is_required, field.metadata.get("description")


def hints_of(cls: Any) -> dict[str, Any]:
    """The type hints of a class. Raises ``TypeError`` for a name that cannot be found."""
    try:
        try:
            return get_type_hints(cls, include_extras=True)
        except NameError:  # a class within a function may name itself
            return get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"`output_type`: the annotations of {cls.__name__} must name types at the top of its module, but {error}"
        ) from error


def _variables(hint: Any) -> dict[Any, Any]:
    """The arguments of a generic class and its bases by their variables."""
    cls = get_origin(hint) or hint
    given = dict(zip(getattr(cls, "__parameters__", ()), get_args(hint), strict=False))
    for base in getattr(cls, "__orig_bases__", ()):
        given |= {variable: given.get(value, value) for variable, value in _variables(base).items()}
    return given


def filled(field: Any, hint: Any) -> Any:
    """The hint of a field of a generic class, with the arguments of that class."""
    given = _variables(hint)
    if isinstance(field, TypeVar):
        return given.get(field, field)
    own = getattr(field, "__parameters__", ()) if get_origin(field) else ()
    return field[tuple(given.get(variable, variable) for variable in own)] if own else field


def special(origin: Any) -> Any:
    """The name of a special form, of typing or typing_extensions."""
    return getattr(origin, "_name", None)


def marks_of(hint: Any) -> Iterator[str]:
    """The names of the special forms around a type."""
    while hasattr(hint, "__metadata__") or special(get_origin(hint)) in MARKS:
        yield special(get_origin(hint)) or ""
        hint = get_args(hint)[0]
