"""An extension of griffe for what this package's stubs and docstrings have."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: griffe shows the prompts of `Examples:` as programs, and those of `Example:` as quotations.
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class Constructors(griffe.Extension):
    """Shows `__new__` as the constructor that it is, overloads as a method, and an example as a program."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Copies the parameters of `__new__`, and adds methods of which a stub has overloads alone."""
        new = cls.members.get("__new__")
        if isinstance(new, griffe.Function) and "__init__" not in cls.members:
            init = griffe.Function(
                "__init__", parameters=griffe.Parameters(*new.parameters), lineno=new.lineno
            )
            cls.set_member("__init__", init)
        for name, overloads in cls.overloads.items():
            if name not in cls.members:
                cls.set_member(name, _method(name, overloads))

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Renames the section of an example."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub("Examples:", obj.docstring.value)


def _method(name: str, overloads: list[griffe.Function]) -> griffe.Function:
    """A method with the signatures and the docstring of its overloads; the last one takes most."""
    widest = overloads[-1]
    method = griffe.Function(
        name,
        parameters=griffe.Parameters(*widest.parameters),
        returns=widest.returns,
        lineno=overloads[0].lineno,
        docstring=next((overload.docstring for overload in overloads if overload.docstring), None),
    )
    method.overloads = overloads
    return method
