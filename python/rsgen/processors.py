"""transformers' logits processors: functions of numpy arrays, and entries of ``logits_processor`` lists.

>>> import numpy as np, rsgen
>>> warper = rsgen.processors.TopKLogitsWarper(top_k=2)
>>> warper(np.zeros((1, 0), dtype=np.int64), np.array([[1.0, 3.0, 2.0]], dtype=np.float32))
array([[-inf,   3.,   2.]], dtype=float32)

Names, arguments and defaults are those of transformers. In the list of a call they run without Python. The fields of a
call switch them on as well, and are the shorter way; a processor in the list takes the place of the one that a field asks
for. :class:`LogitsProcessor` is the base of all, also of those that you write as classes.
"""

from inspect import Parameter, Signature
from typing import Any

from ._rsgen import BuiltInLogitsProcessor, LogitsProcessor, _tables


def _signature(entry: dict[str, Any]) -> Signature:
    """The constructor's signature: transformers' arguments, and ``compat``."""
    parameters = [
        Parameter(
            argument["name"],
            Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.get("default", Parameter.empty),
        )
        for argument in entry["arguments"]
    ]
    if entry["has_device"]:
        parameters.append(Parameter("device", Parameter.POSITIONAL_OR_KEYWORD, default="cpu"))
    parameters.append(Parameter("compat", Parameter.KEYWORD_ONLY, default=None))
    return Signature(parameters)


def _attributes(entry: dict[str, Any]) -> dict[str, property]:
    """What an object was made from, under the names of the arguments."""

    def attribute(argument: dict[str, Any]) -> property:
        name, default = argument["name"], argument.get("default")
        doc = f"{argument['type']}: The argument `{name}` that it was made from."
        return property(lambda self: self.__getnewargs_ex__()[1].get(name, default), doc=doc)

    return {argument["name"]: attribute(argument) for argument in entry["arguments"]}


_CLASSES = {
    entry["class"]: type(
        entry["class"],
        (BuiltInLogitsProcessor,),
        {
            "__module__": __name__,
            "__doc__": entry["doc"],
            "__signature__": _signature(entry),
            "_entry": entry["name"],
            **_attributes(entry),
        },
    )
    for entry in _tables()["processors"]
}

globals().update(_CLASSES)

__all__ = ["LogitsProcessor", *_CLASSES]


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
