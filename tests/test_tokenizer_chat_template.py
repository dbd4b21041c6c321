"""`tokenizer.apply_chat_template`: the prompts of the generator's method, without a model."""

import json
import pickle
import shutil

import numpy as np
import pytest
import rsgen
from hostile import STORY

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if tools %}[{{ tools | length }} tools]{% endif %}{% if documents %}[{{ documents[0].title }}]{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}{{ extra }}"
)
ONE = [{"role": "user", "content": "Hi"}]
TWO = [*ONE, {"role": "assistant", "content": "Once upon"}]


def weather(city: str) -> str:
    """Tells the weather.

    Args:
        city: Where.
    """
    return city


@pytest.fixture
def folder(tmp_path):
    """A tokenizer with a template, and without a model."""
    for file in STORY.iterdir():
        if file.suffix == ".json" and file.name != "model.safetensors.index.json":
            shutil.copy(file, tmp_path / file.name)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    return tmp_path


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"add_generation_prompt": True},
        {"continue_final_message": True},
        {"tools": [weather]},
        {"documents": [{"title": "A", "text": "B"}]},
        {"chat_template": "{{ messages[0].content }}"},
        {"extra": "!"},
        {"padding": "max_length", "max_length": 30},
        {"truncation": True, "max_length": 3},
    ],
    ids=str,
)
def test_it_is_that_of_the_generator(gen, folder, fields):
    tokenizer = rsgen.Tokenizer(folder)
    template = {"chat_template": TEMPLATE} | fields
    for conversation in (TWO, [TWO, TWO]):
        ids = tokenizer.apply_chat_template(conversation, return_dict=False, **fields)
        assert ids == gen.apply_chat_template(conversation, **template)
        text = tokenizer.apply_chat_template(conversation, tokenize=False, **fields)
        assert text == gen.apply_chat_template(conversation, tokenize=False, **template)
        inputs = tokenizer.apply_chat_template(conversation, **fields)
        assert inputs == gen.apply_chat_template(conversation, return_dict=True, **template)
        assert inputs.input_ids == ids
        assert gen.tokenizer.apply_chat_template(conversation, **template) == inputs


def test_its_result_is_what_a_call_takes(gen, folder):
    tokenizer = rsgen.Tokenizer(folder)
    inputs = tokenizer.apply_chat_template(ONE, add_generation_prompt=True, return_tensors="np")
    assert inputs["input_ids"].dtype == np.int64
    out = gen.generate(**inputs, max_new_tokens=4)
    expected = gen.chat(ONE, chat_template=TEMPLATE, max_new_tokens=4)
    assert out.sequences.tolist() == expected.sequences.tolist()


def test_the_template_comes_from_where_the_tokenizer_does(gen, folder, tmp_path):
    tokenizer = rsgen.Tokenizer(folder)
    expected = "<user>Hi"
    assert tokenizer.apply_chat_template(ONE, tokenize=False) == expected
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.apply_chat_template(ONE, tokenize=False) == expected
    own = rsgen.Generator(num_threads=1, tokenizer=folder)
    assert own.tokenizer.apply_chat_template(ONE, tokenize=False) == expected
    copied = pickle.loads(pickle.dumps(own.tokenizer))
    assert copied.apply_chat_template(ONE, tokenize=False) == expected
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "chat_template.jinja").unlink()
    settings["chat_template"] = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    named = rsgen.Tokenizer(folder)
    assert named.apply_chat_template(ONE, tokenize=False) == "a"
    assert named.apply_chat_template(ONE, tools=[weather], tokenize=False) == "b"
    assert named.apply_chat_template(ONE, chat_template="tool_use", tokenize=False) == "b"


def test_a_tokenizer_without_a_template_says_so(folder):
    (folder / "chat_template.jinja").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(rsgen.InputError, match="chat_template"):
        rsgen.Tokenizer(folder).apply_chat_template(ONE)


def test_a_damaged_template_is_an_error_of_the_call_alone(folder):
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    tokenizer = rsgen.Tokenizer(folder)
    assert tokenizer.encode("Hi")
    for _ in range(2):
        with pytest.raises(rsgen.LoadError, match=r"chat_template\.jinja"):
            tokenizer.apply_chat_template(ONE)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"return_assistant_tokens_mask": True}, rsgen.ConfigError),
        ({"padding": "some"}, ValueError),
        ({"chat_template": 3}, TypeError),
        ({"tools": [3]}, TypeError),
        ({"continue_final_message": True, "add_generation_prompt": True}, rsgen.InputError),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(folder, fields, error):
    with pytest.raises(error, match="|".join(fields) + "|tool"):
        rsgen.Tokenizer(folder).apply_chat_template(TWO, **fields)
