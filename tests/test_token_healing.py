"""Token healing: what it makes of prompts, of the texts of outputs and streams, and where it applies."""

import json
from pathlib import Path

import numpy as np
import pytest
import rsgen

GOLDEN = Path(__file__).parent / "golden" / "token_healing.json"
CASES = json.loads(GOLDEN.read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"])
def test_prompts_are_healed_and_continued_as_in_transformers(gen, case):
    fields = dict(case["config"], seed=case["seed"], token_healing=True)
    out = gen.generate(case["prompt"], **fields)
    assert out.sequences.tolist() == case["sequences"]
    ids = np.array([gen.tokenizer.encode(case["prompt"])])
    assert gen.generate(ids, **fields).sequences.tolist() == case["sequences"]


def healed(gen, prompt, **fields):
    return gen.generate(prompt, token_healing=True, max_new_tokens=6, **fields)


def test_the_text_goes_on_where_the_prompt_ends(gen):
    for prompt in ("Li", "T", "hap", 'He said, "We', "Max said:No"):
        out = healed(gen, prompt)
        whole = gen.tokenizer.decode(out.sequences[0], skip_special_tokens=True)
        assert prompt + out.text == whole
    extended = healed(gen, "T")
    assert extended.text.startswith("h"), (
        "the token that extends the last one is in the text but for what was there"
    )
    new = extended.sequences[0, -6:]
    assert extended.text != gen.tokenizer.decode(new)
    assert extended.token_ids[0].tolist() == new.tolist()
    # White space at the end is left out, as in transformers.
    assert healed(gen, "T  ").text == extended.text


def test_streams_give_the_text_of_the_output(gen):
    fields = {"token_healing": True, "max_new_tokens": 6}
    for prompt in ("T", "Once upon a ti"):
        tokens = list(gen.stream(prompt, **fields))
        out = gen.generate(prompt, **fields)
        assert "".join(token.text for token in tokens) == out.text
        assert [token.id for token in tokens] == out.token_ids[0].tolist()
    events = gen.generate("T", output_events=True, **fields)
    told = [event for event in events.events if event["type"] == "prompt"]
    assert [event["ids"] for event in told] == [events.sequences[0, :-6].tolist()]
    texts = [event["text"] for event in events.events if event["type"] == "token"]
    assert "".join(texts) == events.text


def test_a_streamer_is_given_the_healed_prompt(gen):
    class Ids:
        def __init__(self):
            self.put_ids = []

        def put(self, ids):
            self.put_ids += np.ravel(ids).tolist()

        def end(self):
            self.put_ids.append("end")

    streamer = Ids()
    out = gen.generate("T", token_healing=True, max_new_tokens=4, streamer=streamer)
    assert streamer.put_ids == [*out.sequences[0].tolist(), "end"]


def test_prompts_of_a_list_are_healed_as_alone(gen):
    prompts = ["T", "One day, a ca", "Li"]
    alone = [healed(gen, prompt) for prompt in prompts]
    together = healed(gen, prompts)
    assert together.texts == [out.text for out in alone]
    tokenizer = gen.tokenizer
    inputs = tokenizer(prompts, padding=True, return_tensors="np")
    batch = healed(gen, inputs["input_ids"], attention_mask=inputs["attention_mask"])
    assert [row.tolist() for row in batch.token_ids] == [out.token_ids[0].tolist() for out in alone]


@pytest.mark.parametrize(
    "fields",
    [
        {"num_beams": 3, "num_return_sequences": 3},
        {"do_sample": True, "num_return_sequences": 3, "seed": 4},
        {"prompt_lookup_num_tokens": 3},
        {"assistant_early_exit": 2},
        {"penalty_alpha": 0.5, "top_k": 4},
        {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
        {"guidance_scale": 1.5, "negative_prompt": "The dog"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_every_search_continues_the_healed_prompt(gen, fields):
    out = healed(gen, "T", **fields)
    prompt = out.sequences[0, : len(gen.tokenizer.encode("T"))]
    assert prompt.tolist() == [0, 732]
    plain = gen.generate(prompt, max_new_tokens=6, **fields)
    np.testing.assert_array_equal(out.sequences, plain.sequences)


def test_the_tokens_of_a_conversation_stay_but_for_the_last(gen):
    messages = [{"role": "user", "content": "Tell me a story"}]
    fields = {"max_new_tokens": 6, "do_sample": False}
    plain = gen.chat(messages, **fields)
    # It ends with a special token, which nothing extends.
    assert gen.chat(messages, token_healing=True, **fields).text == plain.text


def test_what_cannot_be_healed_is_refused(gen, make_llama):
    bare = rsgen.Generator(make_llama(), num_threads=1)
    with pytest.raises(
        rsgen.ConfigError, match="`token_healing` must be false for a model without a tokenizer"
    ):
        bare.generate([5, 6], token_healing=True)
    with pytest.raises(rsgen.ConfigError, match="`token_healing` must be true or false"):
        gen.generate("T", token_healing="yes")
    rsgen.GenerationConfig(token_healing=True).validate()
    assert (
        gen.generate("T", token_healing=None, max_new_tokens=2).text
        == gen.generate("T", max_new_tokens=2).text
    )
