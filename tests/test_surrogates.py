"""Texts in Python may hold lone surrogates, which no Unicode text holds: every entrance refuses them alike, in words."""

import json

import pytest
import rsgen

BAD = "a\ud800b"
TEMPLATE = "{{ messages[0].content }}"
SENTENCE = "a text must be Unicode, but has a lone surrogate at position"


def user(content):
    return [{"role": "user", "content": content}]


#: Calls with such a text.
TEXTS = {
    "generate": lambda gen: gen.generate(BAD),
    "a list": lambda gen: gen.generate(["a", BAD]),
    "stream": lambda gen: list(gen.stream(BAD)),
    "score": lambda gen: gen.score(BAD),
    "prefill": lambda gen: gen.prefill(BAD),
    "embed": lambda gen: gen.embed(BAD),
    "chat": lambda gen: gen.chat(user(BAD), chat_template=TEMPLATE),
    "role": lambda gen: gen.chat([{"role": BAD, "content": "a"}], chat_template=TEMPLATE),
    "parts": lambda gen: gen.chat(user([{"type": "text", "text": BAD}]), chat_template=TEMPLATE),
    "the template of a chat": lambda gen: gen.chat(user("a"), chat_template=BAD),
    "apply_chat_template": lambda gen: gen.apply_chat_template(user(BAD), chat_template=TEMPLATE),
    "a template": lambda gen: gen.apply_chat_template(user("a"), chat_template=TEMPLATE + BAD),
    "the name of a template": lambda gen: gen.apply_chat_template(user("a"), chat_template=BAD),
    "a variable": lambda gen: gen.apply_chat_template(user("a"), chat_template=TEMPLATE, x=BAD),
    "the name of a variable": lambda gen: gen.apply_chat_template(
        user("a"), chat_template=TEMPLATE, **{BAD: 1}
    ),
    "tools": lambda gen: gen.apply_chat_template(user("a"), chat_template=TEMPLATE, tools=[{"a": BAD}]),
    "documents": lambda gen: gen.apply_chat_template(
        user("a"), chat_template=TEMPLATE, documents=[{"title": "a", "text": BAD}]
    ),
    "encode": lambda gen: gen.tokenizer.encode(BAD),
    "encode_target": lambda gen: gen.tokenizer.encode_target(BAD),
    "tokenizer": lambda gen: gen.tokenizer(BAD),
    "a list of the tokenizer": lambda gen: gen.tokenizer(["a", BAD]),
    "text_target": lambda gen: gen.tokenizer(text_target=BAD),
    "tokenize": lambda gen: gen.tokenizer.tokenize(BAD),
    "a token": lambda gen: gen.tokenizer.convert_tokens_to_ids(BAD),
    "tokens": lambda gen: gen.tokenizer.convert_tokens_to_ids(["a", BAD]),
    "pad_token": lambda gen: rsgen.Tokenizer(pad_token=BAD),
    "src_lang": lambda gen: rsgen.Tokenizer(src_lang=BAD),
    "a schema": lambda gen: gen.generate("a", json_schema={"const": BAD}),
    "the name of a field": lambda gen: gen.generate("a", **{BAD: 1}),
    "the name of a field of a configuration": lambda gen: rsgen.GenerationConfig(**{BAD: 1}),
}
#: Fields, whose errors have the form of errors about fields.
FIELDS = {
    "negative_prompt": {"negative_prompt": BAD, "guidance_scale": 2.0},
    "stop_strings": {"stop_strings": ["a", BAD]},
    "regex": {"regex": BAD},
    "grammar": {"grammar": f'start: "{BAD}"'},
    "json_schema": {"json_schema": json.dumps({"const": "a"}).replace("a", BAD)},
    "compat": {"compat": BAD},
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_refused_in_the_same_words(gen, name):
    with pytest.raises(rsgen.RsgenError, match=SENTENCE) as raised:
        TEXTS[name](gen)
    assert "\\ud800" in str(raised.value)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_named(gen, name):
    with pytest.raises(rsgen.ConfigError, match=rf"^`{name}` must be .*which is no Unicode") as raised:
        gen.generate("a", max_new_tokens=1, **FIELDS[name])
    assert "\\ud800" in str(raised.value)


@pytest.mark.parametrize("name", ["model", "adapter", "tokenizer"])
def test_a_path_is_named(name):
    with pytest.raises(rsgen.LoadError, match=f"the path of `{name}` must be UTF-8"):
        rsgen.Generator(**{name: BAD})
