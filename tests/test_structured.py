"""Structured output: JSON schemas, regular expressions and grammars in every search."""

import json
import random
import re
import threading
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import rsgen

SCHEMAS: dict[str, dict] = json.loads((Path(__file__).parent / "structured" / "schemas.json").read_text())
PROMPT = "Once upon a time"
DRAFT = Path(rsgen.__file__).parent / "models" / "story-draft"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,7}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "friends": {"type": "array", "items": {"enum": ["Tom", "Lily", "Max"]}, "maxItems": 3},
    },
    "required": ["name", "age", "friends"],
    "additionalProperties": False,
}
SEARCHES = {
    "greedy_search": {},
    "sample": {"seed": 1},
    "several": {"do_sample": True, "seed": 2, "num_return_sequences": 4},
    "beam_search": {"num_beams": 4, "num_return_sequences": 4},
    "beam_sample": {"num_beams": 4, "do_sample": True, "seed": 3, "top_k": 0},
    "group_beam_search": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
    "contrastive_search": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low"},
    "prompt_lookup": {"prompt_lookup_num_tokens": 4},
    "assisted_decoding": {"num_assistant_tokens": 4},
}


@pytest.fixture(scope="module")
def small():
    return rsgen.Generator(DRAFT, num_threads=2)


def check(text: str, schema: dict) -> None:
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    kind(schema, format_checker=kind.FORMAT_CHECKER).validate(json.loads(text))


def ended(out: rsgen.GenerationOutput) -> list[str]:
    """The texts that the grammar has ended."""
    return [text for text, reason in zip(out.texts, out.finish_reasons, strict=True) if reason != "length"]


def test_there_are_enough_schemas():
    assert len(SCHEMAS) >= 60


@pytest.mark.parametrize("name", SCHEMAS)
def test_all_texts_are_valid(gen, name):
    schema = SCHEMAS[name]
    texts = []
    for seed in range(3):
        out = gen.sample(PROMPT, json_schema=schema, seed=seed, top_k=0, max_new_tokens=300)
        texts += ended(out)
    texts += ended(gen.beam_search(PROMPT, json_schema=schema, num_beams=3, max_new_tokens=200))
    assert texts, "no text has ended"
    for text in texts:
        check(text, schema)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_ends_with_a_valid_text(gen, small, name):
    options = SEARCHES[name]
    call = getattr(gen, name, gen.generate)
    if name == "assisted_decoding":
        options = {**options, "assistant": small}
    out = call(PROMPT, json_schema=PERSON, max_new_tokens=150, **options)
    assert "length" not in out.finish_reasons
    for text in out.texts:
        check(text, PERSON)


def test_drafts_change_nothing(gen, small):
    for form in (
        {"json_schema": PERSON},
        {"regex": "(The (cat|dog) ran\\. ){2,4}"},
        {"grammar": 'start: "(" word ("," word)* ")"\nword: /[a-z]{2,6}/'},
    ):
        plain = gen.greedy_search(PROMPT, max_new_tokens=120, **form)
        for drafted in (
            gen.assisted_decoding(
                PROMPT, max_new_tokens=120, assistant=small, num_assistant_tokens=5, **form
            ),
            gen.prompt_lookup(PROMPT, max_new_tokens=120, prompt_lookup_num_tokens=5, **form),
        ):
            assert drafted.texts == plain.texts
            np.testing.assert_array_equal(drafted.sequences[0], plain.sequences[0])
            assert drafted.draft_stats.accepted >= 0
        sampled = gen.sample(PROMPT, max_new_tokens=120, seed=5, **form)
        adaptive = gen.assisted_decoding(
            PROMPT,
            max_new_tokens=120,
            assistant=small,
            num_assistant_tokens_schedule="adaptive",
            do_sample=True,
            seed=5,
            **form,
        )
        assert adaptive.texts == sampled.texts


def test_a_shared_batch_changes_nothing(gen):
    calls = [
        {"json_schema": PERSON, "num_beams": 4},
        {"json_schema": PERSON, "do_sample": True, "seed": 4},
        {"regex": "[a-z ]{20,40}\\.", "do_sample": True, "seed": 6},
        {"grammar": 'start: /[A-Z]+/ (" " /[a-z]+/){3} "."', "num_beams": 2},
        {},
        {"json_schema": {"type": "array", "items": PERSON, "maxItems": 2}, "do_sample": True, "seed": 9},
    ]
    alone = [gen.generate(PROMPT, max_new_tokens=60, **call) for call in calls]
    found: list[rsgen.GenerationOutput | None] = [None] * len(calls)

    def run(index: int) -> None:
        found[index] = gen.generate(PROMPT, max_new_tokens=60, **calls[index])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [out.texts for out in found] == [out.texts for out in alone]
    # A list of prompts, and each of them alone.
    prompts = [PROMPT, "The", "One day, a fox"]
    together = gen.generate(prompts, json_schema=PERSON, num_beams=4, max_new_tokens=60)
    assert together.texts == [
        gen.generate(p, json_schema=PERSON, num_beams=4, max_new_tokens=60).text for p in prompts
    ]


def test_beams_are_those_of_a_hand_written_filter(gen):
    """A grammar in beams gives what `prefix_allowed_tokens_fn` gives for the same language."""
    words = [" cat", " dog", " big cat", " big dog"]
    pieces = [gen.tokenizer.decode([token]) for token in range(gen.config["vocab_size"])]
    end = gen.generation_config.eos_token_id
    end = end if isinstance(end, int) else end[0]
    start = len(gen.tokenizer.encode(PROMPT))

    def allowed(_batch_id, ids):
        new = np.asarray(ids).tolist()[start:]
        begun = "".join(pieces[token] for token in new)
        follow = {
            token
            for token, piece in enumerate(pieces)
            if piece and any(word.startswith(begun + piece) for word in words)
        }
        return sorted(follow | ({end} if begun in words else set())) or [end]

    # Both forms allow every way to split each text into tokens.
    for beams in (1, 2, 4):
        options = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": 20}
        by_hand = gen.generate(PROMPT, prefix_allowed_tokens_fn=allowed, **options)
        out = gen.generate(PROMPT, grammar="start: " + " | ".join(json.dumps(w) for w in words), **options)
        assert set(out.texts) <= set(words)
        assert set(by_hand.texts) <= set(words)
        assert out.texts == by_hand.texts


def test_streams_and_chats_follow_a_schema(gen):
    whole = gen.sample(PROMPT, json_schema=PERSON, seed=3, max_new_tokens=120)
    stream = gen.stream(PROMPT, json_schema=PERSON, do_sample=True, seed=3, max_new_tokens=120)
    assert "".join(event.text for event in stream) == whole.text
    for pieces in (2, 5):
        out = gen.generate(
            PROMPT,
            json_schema=PERSON,
            do_sample=True,
            seed=pieces,
            prefill_chunk_size=pieces + 14,
            max_new_tokens=120,
        )
        check(out.text, PERSON)


def test_regex_and_grammar(gen):
    pattern = r"(\d{4}-\d{2}|[A-Z]{3}é?)( \w+){2}!"
    for seed in range(5):
        out = gen.sample(PROMPT, regex=pattern, seed=seed, max_new_tokens=100, top_k=0)
        assert all(re.fullmatch(pattern, text) for text in ended(out))
    arithmetic = """
        start: sum
        sum: product (("+" | "-") product)*
        product: atom (("*" | "/") atom)*
        atom: NUMBER | "(" sum ")"
        NUMBER: /[1-9][0-9]{0,2}/
    """
    for seed in range(5):
        out = gen.sample(PROMPT, grammar=arithmetic, seed=seed, max_new_tokens=60, top_k=0)
        for text in ended(out):
            assert re.fullmatch(r"[0-9+\-*/()]+", text)
            compile(text, "text", "eval")


class Model:
    """As a class of pydantic's."""

    @classmethod
    def model_json_schema(cls) -> dict:
        return PERSON


def test_a_schema_may_be_a_text_or_a_model(gen):
    expected = gen.generate(PROMPT, json_schema=PERSON, max_new_tokens=100).text
    for given in (json.dumps(PERSON), Model, Model()):
        assert gen.generate(PROMPT, json_schema=given, max_new_tokens=100).text == expected
    config = rsgen.GenerationConfig(json_schema=Model, max_new_tokens=100)
    assert config.json_schema == PERSON
    assert gen.generate(PROMPT, config).text == expected
    again = rsgen.GenerationConfig.from_dict(config.to_dict())
    assert again.json_schema == PERSON
    with pytest.raises(rsgen.ConfigError, match="`json_schema` and `regex` are both set"):
        gen.generate(PROMPT, config, regex="a")


def test_a_row_without_end_tokens_stops(gen):
    out = gen.generate(PROMPT, json_schema=PERSON, eos_token_id=[], max_new_tokens=120)
    assert out.finish_reasons == ["stop"]
    check(out.text, PERSON)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"json_schema": {"not": {"type": "null"}}}, "the keyword `not` at `#`"),
        ({"json_schema": {"not": {}}}, "at `#`: no value satisfies it"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "`uniqueItems` at `#`"),
        ({"json_schema": 3}, "`json_schema` must be a JSON schema"),
        ({"json_schema": "{"}, "`json_schema` must be a JSON schema"),
        ({"json_schema": {"a": object()}}, "JSON can hold"),
        ({"json_schema": False}, "at `#`: no value satisfies it"),
        ({"regex": "("}, "`regex` cannot be followed"),
        ({"regex": ["a", "b"]}, "`regex` must be a text"),
        ({"regex": "(?<=a)b"}, "`regex` cannot be followed"),
        ({"regex": "x" * 300_000}, "at most 131072 bytes"),
        ({"grammar": "start: missing"}, "`grammar` cannot be followed"),
        ({"grammar": "((((" * 50}, "at most 128 deep"),
        ({"regex": "a", "grammar": 'start: "a"'}, "`regex` and `grammar` are both set"),
    ],
)
def test_mistakes_name_the_field(gen, options, message):
    with pytest.raises(rsgen.ConfigError) as raised:
        gen.generate(PROMPT, max_new_tokens=5, **options)
    assert message in str(raised.value)


def test_models_without_a_tokenizer_have_no_grammars(make_llama):
    bare = rsgen.Generator(make_llama(seed=1))
    with pytest.raises(rsgen.ConfigError, match="`regex` needs the model's tokenizer"):
        bare.generate([1, 2, 3], regex="a", max_new_tokens=3)


def random_schema(rng: random.Random, depth: int) -> dict:
    """Any schema of those that are supported."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern"]
    kinds += ["object", "array", "anyOf", "allOf"] if depth else []
    match rng.choice(kinds):
        case "string":
            least = rng.randint(0, 4)
            return {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 6)}
        case "integer":
            least = rng.randint(-500, 500)
            return {"type": "integer", "minimum": least, "maximum": least + rng.randint(0, 1000)}
        case "number":
            least = round(rng.uniform(-9, 9), rng.randint(0, 3))
            return {"type": "number", "minimum": least, "exclusiveMaximum": least + rng.randint(1, 9)}
        case "enum":
            return {
                "enum": rng.sample(
                    ["a", "b", 1, -2.5, None, True, [], {"k": 0}, 'ü"\\', ""], rng.randint(1, 5)
                )
            }
        case "const":
            return {"const": rng.choice(["x", 7, None, [1, "y"], {"z": False}])}
        case "pattern":
            return {
                "type": "string",
                "pattern": rng.choice(["^[a-f]{2,5}$", "^(ab|ba)+c$", "^\\d\\.\\d$", "^$"]),
                "maxLength": 9,
            }
        case "object":
            names = rng.sample(["a", "b b", "ä", 'c"', "long name", "d"], rng.randint(0, 4))
            schema = {
                "type": "object",
                "properties": {name: random_schema(rng, depth - 1) for name in names},
                "required": rng.sample(names, rng.randint(0, len(names))),
                "additionalProperties": rng.choice([False, False, {"type": "null"}]),
            }
            if schema["additionalProperties"]:
                schema["maxProperties"] = len(schema["required"]) + rng.randint(0, 2)
            return schema
        case "array":
            least = rng.randint(0, 2)
            return {
                "type": "array",
                "items": random_schema(rng, depth - 1),
                "minItems": least,
                "maxItems": least + rng.randint(0, 2),
            }
        case "anyOf":
            return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
        case "allOf":
            return {
                "allOf": [
                    random_schema(rng, depth - 1),
                    {"type": ["string", "integer", "object", "array", "null", "boolean", "number"]},
                ]
            }
        case kind:
            return {"type": kind}


@pytest.mark.parametrize("seed", range(40))
def test_random_schemas_give_valid_texts_or_are_refused(gen, seed):
    schema = random_schema(random.Random(seed), 3)
    options = {"json_schema": schema, "seed": seed, "top_k": 0, "max_new_tokens": 250}
    try:
        out = gen.sample(PROMPT, **options)
    except rsgen.ConfigError:
        with pytest.raises(rsgen.ConfigError, match="`json_schema`"):
            gen.sample(PROMPT, **options)
        return
    for text in ended(out):
        check(text, schema)
