"""Stop strings that are left out of the text: outputs and streams end before them, and tokens stay what they are."""

import random

import numpy as np
import pytest
import rsgen

PROMPT = "Once upon a time"
OUT = {"include_stop_str_in_output": False}


def both(gen, prompt=PROMPT, **fields):
    """The outputs with the stop strings and without."""
    kept = gen.generate(prompt, **fields)
    return kept, gen.generate(prompt, **OUT, **fields)


@pytest.mark.parametrize("stop", ["was", " was a", "little", "girl named", ",", ["zebra", " day"]])
@pytest.mark.parametrize(
    "fields", [{}, {"num_beams": 3}, {"do_sample": True, "seed": 3, "num_return_sequences": 3}], ids=str
)
def test_a_text_ends_before_the_stop_string(gen, stop, fields):
    kept, left_out = both(gen, stop_strings=stop, max_new_tokens=40, **fields)
    np.testing.assert_array_equal(kept.sequences, left_out.sequences)
    assert kept.finish_reasons == left_out.finish_reasons
    for whole, text, reason in zip(kept.texts, left_out.texts, kept.finish_reasons, strict=True):
        stops = [stop] if isinstance(stop, str) else stop
        first = min((whole.find(one) for one in stops if one in whole), default=-1)
        assert (first >= 0) == (reason == "stop")
        assert text == (whole[:first] if reason == "stop" else whole)


@pytest.mark.parametrize(
    "fields", [{}, {"num_beams": 3}, {"num_return_sequences": 2, "do_sample": True, "seed": 5}], ids=str
)
def test_a_stream_gives_the_same_text_and_no_part_of_a_stop_string(gen, fields):
    chance = random.Random(0)
    whole = gen.generate(PROMPT, max_new_tokens=60, **fields)
    for _ in range(12):
        text = chance.choice(whole.texts)
        start = chance.randrange(len(text) - 8)
        call = {
            "stop_strings": [text[start : start + chance.randint(1, 8)], "zz"],
            "max_new_tokens": 60,
            **OUT,
            **fields,
        }
        stream = gen.stream(PROMPT, **call)
        texts = [""] * len(whole)
        for token in stream:
            texts[token.index] += token.text
            assert stream.output is not None or not any(
                stop in texts[token.index] for stop in call["stop_strings"]
            )
        assert texts == stream.output.texts == gen.generate(PROMPT, **call).texts


def test_what_was_held_back_is_given_when_it_is_no_stop_string(gen):
    whole = gen.generate(PROMPT, max_new_tokens=12)
    begun = whole.text.split()[3]
    stream = gen.stream(
        PROMPT, max_new_tokens=12, stop_strings=[begun + "xyz", whole.text[-3:] + "xyz"], **OUT
    )
    assert "".join(token.text for token in stream) == whole.text == stream.output.text


def test_one_that_begins_in_the_prompt_leaves_nothing(gen):
    first = gen.generate(PROMPT, max_new_tokens=1).text
    kept, left_out = both(gen, stop_strings="time" + first, max_new_tokens=9)
    assert kept.texts == [first]
    assert left_out.texts == [""]
    assert left_out.finish_reasons == ["stop"]
    assert left_out.usage.generated_tokens == 1
    stream = gen.stream(PROMPT, stop_strings="time" + first, max_new_tokens=9, **OUT)
    assert [token.text for token in stream] == [""]


def test_it_is_left_out_in_lists_conversations_rows_and_configurations(gen):
    call = {"stop_strings": [" a", "."], "max_new_tokens": 30}
    prompts = [PROMPT, "One day", "Tom had"]
    expected = gen.generate(prompts, **OUT, **call).texts
    assert expected == [gen.generate(prompt, **OUT, **call).text for prompt in prompts]
    assert all("." not in text and " a" not in text for text in expected)
    config = rsgen.GenerationConfig(**OUT, **call)
    assert gen.generate(prompts, config).texts == expected
    assert [row["text"] for row in gen.map(prompts, generation_config=config)] == expected
    template = "{{ messages[0].content }}"
    messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
    plain = gen.chat(messages, chat_template=template, **call)
    without = gen.chat(messages, chat_template=template, **OUT, **call)
    np.testing.assert_array_equal(plain.sequences, without.sequences)
    assert all(whole.startswith(text) for whole, text in zip(plain.texts, without.texts, strict=True))


def test_without_a_stop_string_nothing_changes(gen):
    for fields in (
        {},
        {"stop_strings": []},
        {"eos_token_id": [388]},
        {"stopping_criteria": lambda ids, _: ids.shape[1] > 12},
    ):
        kept, left_out = both(gen, max_new_tokens=30, **fields)
        assert kept == left_out
    assert gen.generate(
        PROMPT, stop_strings=["was"], include_stop_str_in_output=True, max_new_tokens=30
    ).text.endswith("was")
