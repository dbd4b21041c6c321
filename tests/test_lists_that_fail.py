"""Errors of lists name the prompt, as `prompt_index`, and have what was finished before them, in each way to run a list."""

import itertools
import pickle

import pytest
import rsgen
from rsgen.integrations import RowGenerator

#: More than run together.
MANY = [f"Once upon a time {i}" for i in range(300)]


@pytest.fixture(scope="module")
def many(gen):
    return gen.generate(MANY, max_new_tokens=2)


def failing(gen, prompt, step):
    """A processor that raises at a step of a prompt."""
    begun = gen.tokenizer.encode(prompt)

    def process(ids, scores):
        if ids.shape[1] == len(begun) + step and ids[0, : len(begun)].tolist() == begun:
            raise KeyError("mine")
        return scores

    return process


def test_a_list_has_the_prompts_that_had_ended(gen, many):
    with pytest.raises(KeyError) as raised:
        gen.generate(MANY, max_new_tokens=2, logits_processor=failing(gen, MANY[290], 1))
    finished = raised.value.finished
    assert raised.value.prompt_index == 290
    # Prompts that run beside it may have ended or not.
    indices = [row.prompt_index for row in finished]
    assert indices == sorted(set(indices))
    assert set(range(256)) <= set(indices)
    assert 290 not in indices
    assert finished.texts == [many.texts[index] for index in indices]
    assert [ids.tolist() for ids in finished.token_ids] == [many.token_ids[i].tolist() for i in indices]


def test_prompts_that_end_early_leave_gaps(gen):
    """The even ones of seven end with their first token."""
    prompts = MANY[:7]
    even = [gen.tokenizer.encode(prompt) for prompt in prompts[::2]]
    ends = lambda ids, scores: ids[0, :-1].tolist() in even  # noqa: E731
    fails = failing(gen, prompts[3], 3)
    expected = gen.generate(prompts, max_new_tokens=9, stopping_criteria=ends, output_scores=True)
    with pytest.raises(KeyError) as raised:
        gen.generate(
            prompts, max_new_tokens=9, stopping_criteria=ends, logits_processor=fails, output_scores=True
        )
    finished = raised.value.finished
    assert [row.prompt_index for row in finished] == [0, 2, 4, 6]
    assert finished.texts == expected.texts[::2]
    assert finished.scores[0].tolist() == expected.scores[0][::2].tolist()


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
def test_what_ends_a_list_has_what_was_finished(gen, many, kind):
    def stop(done, total):
        if done == 270:
            raise kind("mine")

    with pytest.raises(kind) as raised:
        gen.generate(MANY, max_new_tokens=2, progress=stop)
    finished = {row.prompt_index: row.text for row in raised.value.finished}
    assert 270 <= len(finished) < 300 or set(finished) >= set(range(256))
    assert all(many.texts[index] == text for index, text in finished.items())


def test_a_prompt_that_cannot_be_used_is_found_before_any_is_computed(gen):
    with pytest.raises(rsgen.InputError, match="prompt 270: ") as raised:
        gen.generate([*MANY[:270], "a " * 5000], max_new_tokens=2)
    assert (raised.value.prompt_index, raised.value.finished) == (270, [])
    with pytest.raises(KeyError) as alone:
        gen.generate(MANY[0], max_new_tokens=2, logits_processor=failing(gen, MANY[0], 1))
    assert not hasattr(alone.value, "finished")
    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.prompt_index, error.finished) == (270, [])


def test_long_lists_are_those_of_their_prompts(gen, many):
    """Plans of prompts far behind are made when their turn comes."""
    options = {"do_sample": True, "top_k": 0, "max_new_tokens": 2}
    rows = gen.map(MANY, seed=9, **options)
    assert gen.generate(MANY, seed=9, **options).texts == [row["text"] for row in rows]
    seeds = list(range(500, 800))[::-1]
    listed = gen.generate(MANY, seed=seeds, **options)
    assert listed.seeds == seeds
    for index in (0, 255, 256, 299):
        alone = gen.generate(MANY[index], seed=seeds[index], **options)
        assert alone.text == listed.texts[index]
    assert many.texts == [row["text"] for row in gen.map(MANY, max_new_tokens=2)]


def test_rows_of_a_map(gen):
    fails = failing(gen, MANY[3], 1)
    results = gen.map(MANY[:6], max_new_tokens=2, logits_processor=fails, concurrency=6)
    assert len(list(itertools.islice(results, 3))) == 3
    with pytest.raises(KeyError, match="mine") as raised:
        next(results)
    assert raised.value.prompt_index == 3
    assert raised.value.finished == results.finished
    assert [row["prompt"] for row in results.finished] == MANY[4:6]


def test_rows_of_a_table(gen):
    prompts = [*MANY[:4], "a " * 5000, *MANY[5:8]]
    table = {"id": list("abcdefgh"), "prompt": prompts}
    rows = RowGenerator(id_column="id", seed=3, do_sample=True, max_new_tokens=2)
    with pytest.raises(rsgen.InputError, match=r"^row .e.: the prompt has") as raised:
        rows(table)
    assert raised.value.prompt_index == 4
    finished = raised.value.finished
    assert {row["row"] for row in finished} >= {0, 1, 2, 3}
    good = {"id": list("abcd"), "prompt": prompts[:4]}
    assert [row["text"] for row in finished[:4]] == rows(good)["text"].tolist()


@pytest.mark.parametrize("wrong", [[1, "a"], {"a": 1}, [None]])
def test_what_is_no_prompt_is_the_error_of_its_row(wrong):
    for options in ({}, {"id_column": "id"}):
        table = {"id": [5, 6], "prompt": ["One day", wrong]}
        errors = RowGenerator(max_new_tokens=1, on_error="column", **options)(table)["error"]
        assert errors[0] is None
        assert errors[1]
        with pytest.raises((rsgen.InputError, TypeError), match=r"^row ") as raised:
            RowGenerator(max_new_tokens=1, **options)(table)
        assert raised.value.prompt_index == 1
