"""Answers with types: the grammar comes from a type, and what is parsed is a value of it."""

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import gc
import json
import pickle
import subprocess
import sys
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union

import annotated_types
import jsonschema
import postponed
import pytest
import rsgen
from pydantic import BaseModel, Field, TypeAdapter
from rsgen._output_type import OutputType
from test_structured import DRAFT, SEARCHES
from typing_extensions import Doc, TypeAliasType, TypedDict

PROMPT = "Once upon a time"
CHAT = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Pet:
    """An animal."""

    name: Annotated[str, "its name", annotated_types.MaxLen(8)]
    kind: Literal["cat", "dog"]
    age: Annotated[int, Doc("in years"), annotated_types.Ge(0), annotated_types.Lt(30)] = 1
    tags: Annotated[list[Color], annotated_types.Len(0, 2)] = field(
        default_factory=list, metadata={"description": "how it looks"}
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    pets: Annotated[tuple[Pet, ...], annotated_types.Len(1, 2)]
    level: Level
    oldest: Optional["Pet"] = None


class Movie(TypedDict, total=False):
    title: Annotated[str, annotated_types.MaxLen(9)]
    year: int


class Score(NamedTuple):
    value: Annotated[int, annotated_types.Interval(ge=-9, le=9)]
    sure: bool = True


@dataclass
class Box(Generic[T]):
    content: T
    more: Annotated[list[T], annotated_types.MaxLen(2)]


@dataclass
class Boxes(Box[Box[Level]]):
    count: Level


UserId = NewType("UserId", int)
Pair = TypeAliasType("Pair", tuple[T, T], type_params=(T,))

#: Types of Python's own, whose values pydantic makes as well.
TYPES = [
    *(Pet, Home, Movie, Box[Pet], Color, Level, UserId, Pair[Level], postponed.Node, postponed.Whole),
    *(str, int, float, bool, type(None), Any, object),
    *(Literal["a", 1, None, True], Annotated[int, annotated_types.Ge(5)]),
    *(list[Color], Sequence[bool], set[Level], frozenset[Literal["x", "y"]], collections.deque[bool], list),
    *(tuple[int, str], tuple[Level, ...], tuple[()], tuple),
    *(dict[str, Level], Mapping[str, bool], dict, dict[str, list[Level]]),
    *(int | None, Optional[Pet], Union[int, Literal["auto"]], bool | Level | Literal["x"] | None, Pet | Home),  # noqa: UP007, UP045
    *(datetime.date, datetime.datetime, datetime.time, uuid.UUID, decimal.Decimal),
]


def shown(hint: object) -> str:
    return getattr(hint, "__name__", repr(hint)) if isinstance(hint, type) else repr(hint)


@pytest.mark.parametrize("hint", TYPES, ids=shown)
def test_a_type_gives_a_grammar_and_values(gen, hint):
    schema, adapter = OutputType(hint).schema, TypeAdapter(hint)
    values = []
    for seed in range(4):
        out = gen.sample(PROMPT, output_type=hint, seed=seed, top_k=0, max_new_tokens=200)
        same = gen.sample(PROMPT, json_schema=schema, seed=seed, top_k=0, max_new_tokens=200)
        assert out.texts == same.texts
        if out.finish_reasons == ["eos"]:
            jsonschema.validate(json.loads(out.text), schema)
            values.append(out.parsed)
            # Another reader of the same types agrees.
            theirs = adapter.validate_json(out.text)
            is_moment = isinstance(theirs, datetime.datetime | datetime.time)
            assert values[-1] == theirs if is_moment else repr(values[-1]) == repr(theirs)
    assert values, "no text has ended"


def test_a_named_tuple_has_the_names_of_its_fields(gen):
    out = gen.sample(PROMPT, output_type=list[Score], seed=1, top_k=0, max_new_tokens=300)
    assert out.parsed == [Score(**item) for item in json.loads(out.text)] != []
    assert OutputType(postponed.Point).schema["required"] == ["x"]


def test_members_of_an_enum_in_a_literal_are_members(gen):
    outs = [
        gen.sample(PROMPT, output_type=Literal[Color.RED, "blue"], seed=seed, top_k=0, max_new_tokens=9)
        for seed in range(9)
    ]
    assert {out.parsed for out in outs} == {Color.RED, "blue"}


def test_a_class_of_a_generic_one_has_its_types(gen):
    boxes = gen.sample(PROMPT, output_type=Boxes, seed=1, top_k=0, max_new_tokens=200).parsed
    assert isinstance(boxes, Boxes)
    assert isinstance(boxes.content, Box)
    assert isinstance(boxes.content.content, Level)


def test_the_schema_says_what_the_type_says():
    schema = OutputType(Pet).schema
    assert schema == {
        "type": "object",
        "description": "An animal.",
        "properties": {
            "name": {"type": "string", "description": "its name", "maxLength": 8},
            "kind": {"enum": ["cat", "dog"]},
            "age": {"type": "integer", "description": "in years", "minimum": 0, "exclusiveMaximum": 30},
            "tags": {
                "type": "array",
                "items": {"enum": ["red", "blue"]},
                "minItems": 0,
                "maxItems": 2,
                "description": "how it looks",
            },
        },
        "required": ["name", "kind"],
        "additionalProperties": False,
    }
    node = OutputType(postponed.Node).schema
    assert node["$ref"] == "#/$defs/Node", "a class within itself is a definition"
    assert node["$defs"]["Node"]["description"] == "A tree."
    whole = OutputType(postponed.Whole).schema
    assert list(whole["properties"]) == ["left", "right", "middle", "end"]
    assert whole["required"] == ["left", "end"]
    assert OutputType(postponed.Outer).schema["$defs"].keys() == {"Outer", "Inner"}


class Address(BaseModel):
    city: str = Field(max_length=8, description="where it is")
    code: str | None = Field(None, pattern=r"^\d{2}$")


class Person(BaseModel):
    """Somebody."""

    full_name: str = Field(alias="fullName", max_length=8)
    age: Annotated[int, Field(ge=0, le=120)]
    born: datetime.date | None = None
    id: uuid.UUID
    level: Level = Level.LOW
    address: Address
    pair: tuple[bool, Level] = (True, Level.LOW)
    seen: set[Level] = set()


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"]
    bones: Level


class Page(BaseModel, Generic[T]):
    items: list[T] = Field(max_length=2)


@dataclass
class Mixed:
    cat: Cat
    count: Annotated[int, Field(ge=0, le=3)]


PYDANTIC = [
    *(Person, Address, postponed.Tree, Page[Cat], Mixed, list[Cat], dict[str, Cat], Cat | None),
    *(Annotated[Cat | Dog, Field(discriminator="kind")], TypeAdapter(list[Level]), TypeAdapter(Person)),
    *(Annotated[int, Field(ge=0, le=5)], Cat | Dog | None),
]


@pytest.mark.parametrize("hint", PYDANTIC, ids=shown)
def test_models_of_pydantic_are_its_own(gen, hint):
    adapter = hint if isinstance(hint, TypeAdapter) else TypeAdapter(hint)
    values = []
    for seed in range(4):
        out = gen.sample(PROMPT, output_type=hint, seed=seed, top_k=0, max_new_tokens=300)
        if out.finish_reasons == ["eos"]:
            values.append(out.parsed)
            assert values[-1] == adapter.validate_json(out.text)
            assert type(values[-1]) is type(adapter.validate_json(out.text))
    assert values, "no text has ended"


class Local:
    def __init__(self, name: str) -> None:
        self.name = name


@dataclass
class Owner:
    pet: Local


@dataclass
class Given:
    name: str
    other: dataclasses.InitVar[int]


@dataclass
class Deep:
    owners: dict[str, list[Owner]]


class Odd(enum.Enum):
    PAIR = (1, 2)


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (Local, "`output_type`: Local has no form in JSON; use a dataclass, TypedDict, NamedTuple, Enum"),
        (Deep, "`output_type`: Owner.pet: Local has no form in JSON; use a dataclass"),
        (Pet("a", "cat"), r"`output_type`: Pet\(name='a'.* has no form in JSON"),
        (
            Given,
            r"`output_type`: Given.other: dataclasses.InitVar\[int\] has no form in JSON; make it a field",
        ),
        (dict[int, str], "`output_type`: int has no form in JSON; the keys of an object must be str"),
        (Odd, "`output_type`: Odd has no form in JSON; its values must be str, int, float, bool or None"),
        (Literal[b"a"], "has no form in JSON; its values must be str"),
        (enum.Enum("Empty", []), "Empty has no form in JSON; its values must be .* at least one"),
        (
            postponed.Lost,
            "the annotations of Lost must name types at the top of its module, but name 'Missing'",
        ),
        (list["Pet"], "`output_type`: 'Pet' has no form in JSON"),
        ({"type": "object"}, "`output_type` must be a type, got .*; `json_schema` takes a schema"),
        ("Pet", "`output_type` must be a type, got 'Pet'"),
        (5, "`output_type`: 5 has no form in JSON"),
        (bytes, "`output_type`: bytes has no form in JSON"),
        (lambda: None, "has no form in JSON"),
    ],
)
def test_what_has_no_form_in_json_is_refused(gen, hint, message):
    with pytest.raises(TypeError, match=message):
        gen.generate(PROMPT, output_type=hint, max_new_tokens=2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"output_type": Pet, "json_schema": {}},
            "`output_type` and `json_schema` are both set; leave one out",
        ),
        ({"output_type": Pet, "regex": "a"}, "`output_type` and `regex` are both set"),
        (
            {"output_type": Pet, "generation_config": rsgen.GenerationConfig(grammar="start: /a/")},
            "`output_type` and `grammar` are both set",
        ),
        ({"describe_output": True}, "`describe_output` describes an `output_type`; give one"),
        ({"output_type": Pet, "describe_output": 1}, "`describe_output` must be True or False, got 1"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(gen, fields, message):
    with pytest.raises((rsgen.ConfigError, TypeError), match=message):
        gen.generate(PROMPT, max_new_tokens=2, **fields)


def test_a_call_without_a_type_has_nothing_parsed(gen):
    out = gen.generate([PROMPT, "One day"], max_new_tokens=2, output_type=None)
    assert out.parsed is None
    assert out.parsed_all == [None, None]
    assert gen.stream(PROMPT, max_new_tokens=2).partial is None


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_answers_with_values(gen, name):
    options = dict(SEARCHES[name])
    if name == "assisted_decoding":
        options["assistant"] = rsgen.Generator(DRAFT, num_threads=2)
    out = getattr(gen, name, gen.generate)(PROMPT, output_type=Pet, max_new_tokens=200, **options)
    assert all(isinstance(pet, Pet) for pet in out.parsed_all)
    assert len(out.parsed_all) == len(out)
    assert out.parsed is out.parsed_all[0] is out.parsed


def test_a_list_has_a_value_or_an_error_for_each_row(gen):
    texts = gen.sample([PROMPT, "The", "A"], output_type=Pet, seed=[1, 2, 3], top_k=0, max_new_tokens=60)
    cut = gen.sample([PROMPT, "The", "A"], output_type=Pet, seed=[1, 2, 3], top_k=0, max_new_tokens=20)
    for row, (value, reason) in enumerate(zip(cut.parsed_all, cut.finish_reasons, strict=True)):
        if reason == "eos":
            assert value == texts.parsed_all[row]
            continue
        assert isinstance(value, rsgen.ParseError)
        assert str(value).startswith(f"row {row}: the text is cut off and lacks ")
        assert value.prompt_index == row
        assert value.text == cut.texts[row]
    assert "length" in cut.finish_reasons


def test_the_prompt_can_describe_the_type(gen):
    description = OutputType(Pet).description()
    assert "in years" in description
    options = {"output_type": Pet, "max_new_tokens": 60, "prefill_chunk_size": 64}
    by_hand = gen.generate(f"{description}\n\n{PROMPT}", **options)
    assert gen.generate(PROMPT, describe_output=True, **options) == by_hand
    both = gen.generate([PROMPT, "A"], describe_output=True, **options)
    assert both.texts[0] == by_hand.text
    with pytest.raises(rsgen.ConfigError, match="`describe_output` goes before a prompt that is a text"):
        gen.generate([[5, 6]], describe_output=True, **options)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "A pet?"},
        {"role": "assistant", "content": "Yes."},
    ]
    described = [messages[0], {"role": "user", "content": f"A pet?\n\n{description}"}, messages[2]]
    by_hand = gen.chat(described, chat_template=CHAT, **options)
    assert gen.chat(messages, chat_template=CHAT, describe_output=True, **options) == by_hand
    assert messages[1]["content"] == "A pet?", "the caller's messages stay"
    parts = [{"role": "user", "content": [{"type": "text", "text": "A pet?"}]}]
    written = "{{ messages[0].content[0].text }}{{ messages[0].content[1].text }}"
    plain = gen.chat(described[1:2], chat_template="{{ messages[0].content }}", **options)
    assert gen.chat(parts, chat_template=written, describe_output=True, **options).text == plain.text
    with pytest.raises(rsgen.InputError, match="`describe_output` goes to the end of a message of the user"):
        gen.chat(messages[:1], chat_template=CHAT, describe_output=True, **options)


def test_a_chat_answers_with_a_value(gen):
    messages = [{"role": "user", "content": "A pet?"}]
    options = {"output_type": Pet, "chat_template": CHAT, "max_new_tokens": 80}
    assert isinstance(gen.chat(messages, **options).parsed, Pet)
    assert all(isinstance(pet, Pet) for pet in gen.chat([messages, messages], **options).parsed_all)
    stream = gen.stream_chat(messages, **options)
    list(stream)
    assert stream.output.parsed == gen.chat(messages, **options).parsed


@pytest.mark.parametrize("hint", [Pet, list[Pet], Person, Page[Cat], int | None, Box[int]], ids=shown)
def test_copies_and_pickles_keep_the_type(gen, hint):
    out = gen.sample([PROMPT, "A"], output_type=hint, seed=3, top_k=0, max_new_tokens=200)
    for same in (copy.copy(out), copy.deepcopy(out), pickle.loads(pickle.dumps(out))):
        assert same == out
        assert list(map(repr, same.parsed_all)) == list(map(repr, out.parsed_all))


def test_a_type_that_knows_its_output_is_collected(gen):
    @dataclass
    class Kept:
        ok: bool

    out = gen.generate(PROMPT, output_type=Kept, max_new_tokens=20)
    Kept.output, out.parsed.itself = out, out
    gone = weakref.ref(Kept)
    del Kept, out
    gc.collect()
    assert gone() is None


def test_classes_name_their_types_in_annotations():
    assert rsgen.GenerationOutput[Pet].__args__ == (Pet,)
    assert rsgen.TokenStream[Pet].__origin__ is rsgen.TokenStream


def test_a_class_within_a_function_may_name_itself(gen):
    @dataclass
    class Chain:
        ok: bool
        next: "Chain | None" = None

    out = gen.sample(PROMPT, output_type=Chain, seed=1, top_k=0, max_new_tokens=200)
    assert isinstance(out.parsed, Chain)


def test_pydantic_is_not_imported_for_other_types():
    program = """
import sys
sys.modules["pydantic"] = None
import dataclasses, rsgen

@dataclasses.dataclass
class Pet:
    good: bool

out = rsgen.Generator().generate("Once upon a time", output_type=list[Pet] | Pet, max_new_tokens=60)
assert out.parsed, out.text
assert "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
