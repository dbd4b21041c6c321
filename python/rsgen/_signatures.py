"""Signatures that name every field of a configuration.

The extension's signatures end with ``**fields``, and notebooks and editors complete what ``inspect.signature`` lists. So each
method with ``**fields`` becomes an object whose signature names the fields. It is made when somebody asks for it: importing
``inspect`` takes longer than importing rsgen.
"""

# Calls of C's partial objects add no frame: warnings name the caller's line. `functools` itself imports more.
from _functools import partial  # pyright: ignore[reportMissingImports]
from types import MethodType

TYPE_CHECKING = False  # `typing` is not imported for its sake

if TYPE_CHECKING:
    from collections.abc import Mapping
    from inspect import Signature
    from typing import Any

_FIELDS = "**fields)"
#: Methods with the parameters of another one. So are those of strategies, with those of ``generate``.
_LIKE = {"submit": "generate", "agenerate": "generate", "achat": "chat", "ascore": "score"}


#: What a strategy needs in an example.
_NEEDED = {
    "assisted_decoding": ", assistant_model=gen",
    "constrained_beam_search": ', force_words=[" moon"]',
}


class _Unset:
    """The default of a field in a signature: it then comes from a configuration."""

    def __repr__(self) -> str:
        return "unset"


class _Method(partial):
    __slots__ = ("_doc", "_like")

    def __get__(self, instance: "Any", owner: "Any" = None) -> "Any":
        return self if instance is None else MethodType(self, instance)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self._doc

    @property
    def __signature__(self) -> "Signature":
        import inspect

        signature = inspect.signature(self._like)
        return _signature(signature) if _takes_fields(self._like) else signature

    def __getattr__(self, name: str) -> "Any":
        return getattr(self.func, name)

    def __repr__(self) -> str:
        return repr(self.func)


class _ClassSignature:
    """The attribute ``__signature__`` of a class whose constructor takes fields."""

    def __get__(self, instance: "Any", owner: "Any" = None) -> "Signature":
        return _signature(None)


def _signature(given: "Signature | None") -> "Signature":
    """A signature with the fields in the place of its last parameter; ``None`` is one of fields alone."""
    from inspect import Parameter, Signature

    from ._rsgen import GenerationConfig

    parameters = [] if given is None else list(given.parameters.values())[:-1]
    fields = (name for name, value in vars(GenerationConfig).items() if isinstance(value, property))
    parameters += (Parameter(name, Parameter.KEYWORD_ONLY, default=_Unset()) for name in fields)
    return Signature(parameters)


def name_fields(cls: type, strategies: "Mapping[str, str]") -> None:
    """Wraps the methods of a class that take fields, or the parameters of another method. ``strategies`` are the docstrings
    of methods that take the arguments of ``generate``.
    """
    functions = dict(vars(cls))
    generate = functions.get("generate")
    arguments = (
        "Args:"
        + ((generate.__doc__ if generate else "") or "").partition("Args:")[2].split("\n\nExample:")[0]
    )
    for name, function in functions.items():
        like = functions.get("generate" if name in strategies else _LIKE.get(name, ""), function)
        if like is function and not _takes_fields(function):
            continue
        method = _Method(function)
        method._like = like
        method._doc = function.__doc__
        if name in strategies:
            call = f'gen.{name}("Once upon a time", max_new_tokens=20{_NEEDED.get(name, "")})'
            method._doc = (
                f"{strategies[name].strip()}\n\nOtherwise as `generate()`.\n\n{arguments}"
                f"\n\nExample:\n    >>> {call}.text"
            )
        is_class_method = type(function).__name__ == "classmethod_descriptor"
        setattr(cls, name, classmethod(method) if is_class_method else method)
    if _takes_fields(cls):
        cls.__signature__ = _ClassSignature()


def _takes_fields(item: object) -> bool:
    return (getattr(item, "__text_signature__", None) or "").endswith(_FIELDS)
