"""Makes the classes of processors, criteria, constraints and watermarks of the extension's tables."""

from inspect import Parameter, Signature
from typing import Any

from . import _interpreter  # noqa: F401  (before the extension)
from ._rsgen import _tables


def classes(table: str, module: str, bases: tuple[type, ...], **further: Any) -> dict[str, type]:
    """A class for each entry of a table. ``further`` is what all of them have besides."""
    return {entry["class"]: _class(entry, module, bases, further) for entry in _tables()[table]}


def _class(entry: dict[str, Any], module: str, bases: tuple[type, ...], further: dict[str, Any]) -> type:
    made = {
        "__module__": module,
        "__doc__": entry["doc"],
        "__signature__": _signature(entry),
        "_entry": entry["name"],
    }
    attributes = {
        argument["name"]: _attribute(argument) for argument in entry["arguments"] if argument["doc"]
    }
    return type(entry["class"], bases, made | attributes | further)


def _signature(entry: dict[str, Any]) -> Signature:
    """The constructor's signature: transformers' arguments; that of a processor takes ``compat`` besides."""
    parameters = [
        Parameter(
            argument["name"],
            Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.get("default", Parameter.empty),
        )
        for argument in entry["arguments"]
    ]
    if entry.get("has_device"):
        parameters.append(Parameter("device", Parameter.POSITIONAL_OR_KEYWORD, default="cpu"))
    if "switch" in entry:
        parameters.append(Parameter("compat", Parameter.KEYWORD_ONLY, default=None))
    return Signature(parameters)


def _attribute(argument: dict[str, Any]) -> property:
    """What an object was made from, under the name of the argument."""
    name, default = argument["name"], argument.get("default")
    doc = f"{argument['type']}: {argument['doc']}"
    return property(lambda self: self.__getnewargs_ex__()[1].get(name, default), doc=doc)
