"""An extension of griffe for what this package's stubs and docstrings have."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: griffe shows the prompts of `Examples:` as programs, and those of `Example:` as quotations.
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class Constructors(griffe.Extension):
    """Shows `__new__` as the constructor that it is, and an example as a program."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Copies the parameters of `__new__` where there is no `__init__`."""
        new = cls.members.get("__new__")
        if isinstance(new, griffe.Function) and "__init__" not in cls.members:
            parameters = griffe.Parameters(*new.parameters)
            init = griffe.Function(
                "__init__", parameters=parameters, lineno=new.lineno, endlineno=new.endlineno
            )
            init.overloads = new.overloads
            cls.set_member("__init__", init)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Renames the section of an example."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub("Examples:", obj.docstring.value)
