"""Compares the schemas of tools with those of transformers' `get_json_schema`: what a function gives, or that it is refused."""

# ruff: noqa: UP007, UP045  (the older forms of hints are what is compared)
from __future__ import annotations

import datetime
import enum
from typing import Any, Literal, Optional, TypedDict, Union

import pytest

pytest.importorskip("transformers", reason="live parity needs transformers==5.24.0")
pytest.importorskip("torch", reason="get_json_schema reads types of torch")

from rsgen._tools import json_schema
from transformers.utils import get_json_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Point(TypedDict):
    x: int


DESCRIBED = """Does it.

    Args:
        a: The first.
        b: The second one,
            which goes on (here): and there.

    Returns:
        What it gives.
    """

#: The hints and the default of `b`, for functions of this docstring.
NOTHING = object()
HINTS: list[tuple[Any, Any, Any]] = [
    (int, str, NOTHING),
    (int, str, "x"),
    (int | None, Optional[str], None),
    (Union[int, str], float | str | None, 1.5),
    (Union[int, list[str]], dict[str, int] | None, NOTHING),
    (list[int], list[list[str]], NOTHING),
    (list, dict, NOTHING),
    (list[dict[str, list[float]]], dict[str, dict[str, bool]], NOTHING),
    (tuple[int, str], tuple, NOTHING),
    (tuple[int, ...], str, NOTHING),
    (tuple[int], str, NOTHING),
    (Literal["a", "b"], Literal[1, "x", None], "x"),
    (Literal[True, False], Literal[1.5], 1.5),
    (Optional[Literal["a"]], list[Literal["x", "y"]], NOTHING),
    (Any, bool, True),
    (list[Any], dict[str, Any], NOTHING),
    (Colour, Colour, Colour.RED),
    (type(None), bool, False),
    (Point, int, NOTHING),
    (datetime.date, int, NOTHING),
    (set[int], int, NOTHING),
    (bytes, int, NOTHING),
    ("int", "list[str]", NOTHING),
    (Optional[Union[int, str]], list[Union[int, None]], NOTHING),
    (int | str | bool, Optional[list[int]], None),
]


def function(hint_a: Any, hint_b: Any, default: Any, docstring: str | None = DESCRIBED) -> Any:
    def tool(a, b=default):
        raise NotImplementedError

    if default is NOTHING:
        tool.__defaults__ = None
    tool.__doc__ = docstring
    tool.__annotations__ = {"a": hint_a, "b": hint_b, "return": dict[str, Any]}
    return tool


def schema_or_refusal(make: Any, tool: Any) -> Any:
    try:
        return make(tool)
    except Exception:
        # The classes and the words are each library's own.
        return "refused"


def check(tool: Any) -> Any:
    expected = schema_or_refusal(get_json_schema, tool)
    found = schema_or_refusal(json_schema, tool)
    assert found == expected
    # Models see the order of the keys.
    assert list(str(found)) == list(str(expected))
    return found


@pytest.mark.parametrize(("hint_a", "hint_b", "default"), HINTS, ids=str)
def test_hints_and_defaults_give_the_same_schema(hint_a: Any, hint_b: Any, default: Any) -> None:
    check(function(hint_a, hint_b, default))


DOCSTRINGS = {
    "none": None,
    "empty": "",
    "no arguments": "Does it.",
    "one missing": "Does it.\n\n    Args:\n        a: The first.\n    ",
    "types": "Does it.\n\n    Args:\n        a (int): The first.\n        b (str, optional): The second.\n    ",
    "choices": 'Does it.\n\n    Args:\n        a: One (choices: [1, 2])\n        b: Two (choices: ["x ", "y"])\n    ',
    "raises": "Does it.\n\n    More of it.\n\n    Args:\n        a: A.\n        b: B.\n\n    Raises:\n        ValueError: If so.\n    ",
    "returns only": "Does it.\n\n    Returns:\n        A thing.\n\n    Args:\n        a: A.\n        b: B.\n    ",
    "blank lines": "Does it.\n\n    Args:\n\n        a: A.\n\n        b: B\n          goes on.\n    ",
    "one line": "Does it. Args: a: A. b: B.",
    "unicode": "Tut es – schön.\n\n    Args:\n        a: Die Größe.\n        b: 二番目\n    ",
}


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_docstrings_give_the_same_descriptions(name: str) -> None:
    check(function(int, str, NOTHING, DOCSTRINGS[name]))


def test_missing_hints_and_no_parameters_are_the_same() -> None:
    def nothing() -> None:
        """Does nothing."""

    def hintless(a):
        """Does it.

        Args:
            a: A.
        """

    class Thing:
        def method(self, a: int) -> str:
            """Does it.

            Args:
                a: A.
            """
            raise NotImplementedError

    assert check(nothing)["function"]["parameters"] == {"type": "object", "properties": {}}
    assert check(hintless) == "refused"
    check(Thing().method)
    check(Thing.method)
