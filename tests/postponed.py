"""Types whose annotations are texts, for test_output_type.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field
from typing_extensions import NotRequired, Required, TypedDict


@dataclass
class Node:
    """A tree."""

    name: Annotated[str, "what it is called"]
    children: list[Node] = field(default_factory=list)
    parent_name: str | None = None


class Half(TypedDict, total=False):
    left: Required[int]
    right: int


class Whole(Half):
    middle: NotRequired[Point]
    end: bool


class Point(NamedTuple):
    x: int
    y: int = 0


class Tree(BaseModel):
    label: str = Field(max_length=10)
    branches: list[Tree] = []


@dataclass
class Lost:
    nowhere: Missing  # noqa: F821


@dataclass
class Outer:
    inner: Inner | None = None


@dataclass
class Inner:
    outer: Outer | None = None
    count: int = 0
