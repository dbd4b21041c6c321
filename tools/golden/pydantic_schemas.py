"""Write crates/generation/src/grammar/tests/pydantic.json: what pydantic emits for models of every kind of field.

    pip install pydantic email-validator
    python tools/golden/pydantic_schemas.py

For each model its schema, JSON texts that pydantic makes of it, and texts that pydantic rejects; for a schema
that cannot be followed, the keyword that is refused.
"""

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import re
import typing
import uuid

import pydantic
import typing_extensions
from pydantic import Field, constr

OUT = pathlib.Path(__file__).parents[2] / "crates/generation/src/grammar/tests/pydantic.json"


Item = typing.TypeVar("Item")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Pet(pydantic.BaseModel):
    name: str
    age: int | None = None


class Cat(pydantic.BaseModel):
    kind: typing.Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: typing.Literal["dog"]
    good: bool = True


class Node(pydantic.BaseModel):
    value: int
    children: list["Node"] = []


class Box(pydantic.BaseModel, typing.Generic[Item]):
    item: Item


class Closed(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    first: str = Field(alias="firstName", title="The first name", description="Given", examples=["Ann"])
    old: int = Field(default=0, deprecated=True)


class Point(typing.NamedTuple):
    x: int
    y: int


class Movie(typing_extensions.TypedDict):
    title: str
    year: typing_extensions.NotRequired[int]


@dataclasses.dataclass
class Size:
    width: int
    height: int = 0


def one(kind: typing.Any) -> type[pydantic.BaseModel]:
    return pydantic.create_model("Model", field=(kind, ...))


def field(*values: typing.Any) -> list[dict]:
    return [{"field": value} for value in values]


UTC = datetime.timezone.utc
# A name, a model, values that it takes, and values that it does not.
FOLLOWED = [
    ("text", one(str), field("a", '\n"é'), field(3, None)),
    ("int", one(int), field(-3), field(1.5, "a", None)),
    ("float", one(float), field(1.5), field("a", None)),
    ("bool", one(bool), field(True), field("perhaps", None)),
    ("none", one(None), field(None), field(1)),
    ("optional", one(str | None), field("a", None), field(3)),
    ("union", one(int | list[str] | None), field(3, ["a"], None), field("a", [3])),
    ("literal", one(typing.Literal["a", 1, None]), field("a", 1, None), field("b", 2)),
    ("enum", one(Color), field(Color.RED), field("blue")),
    ("int enum", one(Level), field(Level.HIGH), field(3)),
    ("any", one(typing.Any), field([1, {"a": None}]), [{}]),
    ("nested", one(Pet), field(Pet(name="a"), Pet(name="a", age=3)), field({"age": 3}, {"name": 3})),
    (
        "list",
        one(typing.Annotated[list[int], Field(min_length=1, max_length=2)]),
        field([1], [1, 2]),
        field([], [1, 2, 3], ["a"]),
    ),
    ("tuple", one(tuple[int, str]), field((1, "a")), field([1], ["a", "a"], [1, "a", 2])),
    ("long tuple", one(tuple[int, ...]), field((1, 2)), field(["a"])),
    ("dict", one(dict[str, int]), field({"a": 1, "b": 2}), field({"a": "b"})),
    (
        "dict of literals",
        one(dict[typing.Literal["a", "b"], int]),
        field({"a": 1}, {"a": 1, "b": 2}),
        field({"c": 1}),
    ),
    ("dict of an enum", one(dict[Color, int]), field({Color.RED: 1}), field({"blue": 1})),
    ("dict of a pattern", one(dict[constr(pattern="^[a-c]+$"), int]), field({"abc": 1}), field({"abc": "x"})),
    ("dict of short names", one(dict[constr(max_length=2), int]), field({"ab": 1}), field({"abc": 1})),
    ("pattern", one(constr(pattern=r"^\d{2}-\w$")), field("12-a"), field("12a")),
    ("lengths", one(constr(min_length=2, max_length=3)), field("ab"), field("a", "abcd")),
    ("bounds", one(typing.Annotated[int, Field(gt=0, le=9)]), field(9), field(0, 10)),
    ("float bounds", one(typing.Annotated[float, Field(ge=0.5, lt=2)]), field(0.5), field(0.4, 2.0)),
    ("multiple", one(typing.Annotated[int, Field(multiple_of=5)]), field(10), field(11)),
    ("decimal", one(decimal.Decimal), field(decimal.Decimal("1.50")), field(None)),
    ("date", one(datetime.date), field(datetime.date(2024, 2, 28)), field("2023-02-29", "28.2.2024")),
    ("time", one(datetime.time), field(datetime.time(23, 59, 59, tzinfo=UTC)), field("24:00:00Z")),
    (
        "date and time",
        one(datetime.datetime),
        field(datetime.datetime(2024, 2, 28, 23, 59, 59, tzinfo=UTC)),
        field("2023-02-29T10:00:00Z"),
    ),
    ("duration", one(datetime.timedelta), field(datetime.timedelta(days=3, seconds=5)), field("three days")),
    ("uuid", one(uuid.UUID), field(uuid.UUID(int=5)), field("5")),
    ("email", one(pydantic.EmailStr), field("a@example.com"), field("a")),
    ("url", one(pydantic.AnyUrl), field("https://example.com/a"), field("a b")),
    ("path", one(pathlib.Path), field("a/b"), field(3)),
    ("ipv4", one(ipaddress.IPv4Address), field("127.0.0.1"), field("127.0.0.256")),
    ("ipv6", one(ipaddress.IPv6Address), field("::1"), field("x")),
    ("network", one(ipaddress.IPv4Network), field("10.0.0.0/8"), field(None)),
    ("bytes", one(bytes), field("a"), field(None)),
    ("base64", one(pydantic.Base64Bytes), field("YQ=="), field(None)),
    ("json", one(pydantic.Json[list[int]]), [], field(None)),
    ("secret", one(pydantic.SecretStr), field("a"), field(None)),
    ("regex", one(re.Pattern), field("a+"), field(None)),
    (
        "discriminated",
        one(typing.Annotated[Cat | Dog, Field(discriminator="kind")]),
        field(Cat(kind="cat", lives=9), Dog(kind="dog")),
        field({"kind": "cow"}, {"lives": 9}),
    ),
    (
        "plain union of models",
        one(Cat | Dog),
        field(Cat(kind="cat", lives=9), Dog(kind="dog")),
        field({"kind": "cow"}),
    ),
    (
        "recursive",
        Node,
        [{"value": 1, "children": [{"value": 2, "children": []}]}],
        [{"value": 1, "children": [3]}],
    ),
    ("generic", Box[Box[int]], [{"item": {"item": 3}}], [{"item": 3}]),
    ("closed", Closed, [{"firstName": "a", "old": 3}], [{"firstName": "a", "other": 3}, {"old": 3}]),
    ("list of models", pydantic.RootModel[list[Pet]], [[{"name": "a", "age": None}]], [[{"age": 3}]]),
    ("named tuple", one(Point), field(Point(1, 2)), field([1], [1, 2, 3])),
    ("typed dict", one(Movie), field({"title": "a", "year": 3}), field({"year": 3})),
    ("dataclass", one(Size), field(Size(1, 2)), field({"height": 3})),
    ("nullable list", one(list[Pet | None] | None), field(None, [None, Pet(name="a")]), field([3])),
]
# A name, a model, and the keyword or the reason that the message names.
REFUSED = [
    ("set", one(set[int]), "`uniqueItems`"),
    ("frozenset", one(frozenset[str]), "`uniqueItems`"),
    (
        "look-ahead",
        pydantic.create_model(
            "Model", field=(typing.Annotated[str, Field(json_schema_extra={"pattern": "(?=a)b"})], ...)
        ),
        "look-around",
    ),
]


def followed() -> typing.Iterator[dict]:
    for name, model, valid, invalid in FOLLOWED:
        accepted = [model.model_validate(value).model_dump_json(by_alias=True) for value in valid]
        if name == "json":
            accepted = ['{"field":"[1]"}']
        rejected = [json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in invalid]
        for text in accepted:
            if name not in ("secret", "base64"):
                model.model_validate_json(text)
        for text in rejected:
            try:
                model.model_validate_json(text)
            except pydantic.ValidationError:
                continue
            raise SystemExit(f"{name} accepts {text}")
        yield {"name": name, "schema": model.model_json_schema(), "accepted": accepted, "rejected": rejected}


def main() -> None:
    refused = [
        {"name": name, "schema": model.model_json_schema(), "refused": part} for name, model, part in REFUSED
    ]
    rows = [json.dumps(row, ensure_ascii=False) for row in [*followed(), *refused]]
    OUT.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
    print(f"{len(rows)} models of pydantic {pydantic.VERSION}")


if __name__ == "__main__":
    main()
