"""`Tokenizer.apply_chat_template` against that of transformers' tokenizer, with the same arguments."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers (5.24.0)")

import rsgen  # noqa: E402

STORY = Path(rsgen.__file__).parent / "models" / "story-3m"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if tools %}[{{ tools | tojson }}]{% endif %}{% if documents %}[{{ documents[0].title }}]{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}{{ extra }}"
)
ONE = [{"role": "user", "content": "Once upon a time"}, {"role": "assistant", "content": "there was"}]
LISTS = [ONE, [ONE, ONE[:1]]]


def weather(city: str, days: int = 1) -> str:
    """Tells the weather.

    Args:
        city: Where.
        days: How many days on.
    """
    return f"{city} {days}"


FIELDS = [
    {},
    {"add_generation_prompt": True},
    {"continue_final_message": True},
    {"tools": [weather]},
    {"documents": [{"title": "A", "text": "B"}]},
    {"chat_template": "{{ messages[0].content }}{{ eos_token }}"},
    {"extra": "!"},
]
ENCODINGS = [
    {},
    {"tokenize": False},
    {"return_dict": False},
    {"return_dict": True},
    {"padding": True, "return_tensors": "np"},
    {"padding": "max_length", "max_length": 40, "return_dict": False},
    {"truncation": True, "max_length": 3},
]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    for file in STORY.glob("*.json"):
        shutil.copy(file, folder / file.name)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = rsgen.Tokenizer(folder, padding_side=theirs.padding_side)
    return ours, theirs


def plain(value: object) -> object:
    if hasattr(value, "keys"):
        return {name: plain(value[name]) for name in value if name != "token_type_ids"}
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize(("fields", "encoding"), list(itertools.product(FIELDS, ENCODINGS)), ids=str)
def test_the_same_arguments_give_the_same(both, fields, encoding):
    ours, theirs = both
    for conversation in LISTS:
        arguments = fields | encoding
        if "continue_final_message" in fields and conversation is LISTS[1]:
            continue
        expected = theirs.apply_chat_template(conversation, **arguments)
        found = ours.apply_chat_template(conversation, **arguments)
        assert plain(found) == plain(expected), arguments
