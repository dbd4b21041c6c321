"""transformers' stopping criteria by their names, and the caller's own in every search."""

import time
from contextlib import nullcontext

import numpy as np
import pytest
import rsgen
from rsgen.stopping_criteria import (
    ConfidenceCriteria,
    EosTokenCriteria,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteria,
    StopStringCriteria,
)

PROMPT = "Once upon a time"
SEARCHES = {
    "greedy_search": {},
    "sample": {"seed": 3},
    "beam_search": {"num_beams": 3},
    "beam_sample": {"num_beams": 3, "seed": 3},
    "group_beam_search": {"num_beams": 4},
    "contrastive_search": {},
    "dola": {},
    "prompt_lookup": {},
    "assisted_decoding": {"assistant_early_exit": 3},
}


def test_criteria_are_functions_of_arrays():
    ids = np.array([[5, 6, 7], [5, 6, 2]])
    np.testing.assert_array_equal(MaxLengthCriteria(3)(ids, None), [True, True])
    np.testing.assert_array_equal(MaxLengthCriteria(4, max_position_embeddings=8)(ids), [False, False])
    np.testing.assert_array_equal(EosTokenCriteria(2)(ids), [False, True])
    np.testing.assert_array_equal(EosTokenCriteria(np.array([2, 7]))(ids), [True, True])
    np.testing.assert_array_equal(MaxTimeCriteria(60)(ids), [False, False])
    np.testing.assert_array_equal(MaxTimeCriteria(60, time.time() - 61)(ids), [True, True])
    assert MaxLengthCriteria(3)(ids).dtype == np.bool_


def test_confidence_is_the_probability_of_the_newest_token():
    scores = np.log(np.array([[0.2, 0.8], [0.2, 0.8]], dtype=np.float32)) + 3
    ids = np.array([[9, 0], [9, 1]])
    for given in (scores, (scores * 0, scores), [scores]):
        np.testing.assert_array_equal(ConfidenceCriteria(0.3)(ids, given), [True, False])
    with pytest.raises(rsgen.InputError, match="needs the scores"):
        ConfidenceCriteria(0.3)(ids, None)
    with pytest.raises(rsgen.InputError, match="a row for each of 2 rows"):
        ConfidenceCriteria(0.3)(ids, scores[:1])


def test_stop_strings_are_read_in_a_tokenizers_tokens(gen):
    ids = gen.tokenizer.encode("There was a fox.")
    criterion = StopStringCriteria(gen.tokenizer, ["fox.", "bear"])
    assert criterion(np.array([ids])).tolist() == [True]
    assert criterion(np.array([ids[:-1]])).tolist() == [False]
    assert StopStringCriteria(gen.tokenizer, "fox.")(np.array([ids])).tolist() == [True]


@pytest.mark.parametrize(
    ("make", "error", "rule"),
    [
        (lambda _: MaxTimeCriteria(-1), rsgen.ConfigError, "`max_time` must be"),
        (lambda _: MaxTimeCriteria(1, float("nan")), rsgen.ConfigError, "`initial_timestamp` must be"),
        (lambda _: EosTokenCriteria("x"), rsgen.ConfigError, "`eos_token_id` must be"),
        (lambda _: ConfidenceCriteria(float("nan")), rsgen.ConfigError, "must be a number"),
        (lambda _: StopStringCriteria("gpt2", "x"), TypeError, "a generator's tokenizer, got 'gpt2'"),
        (lambda gen: StopStringCriteria(gen.tokenizer, [1]), rsgen.ConfigError, "`stop_strings` must be"),
        (lambda gen: StopStringCriteria(gen.tokenizer, ""), rsgen.ConfigError, "not empty"),
        (lambda _: MaxLengthCriteria(), TypeError, "max_length"),
    ],
)
def test_impossible_arguments_are_refused(gen, make, error, rule):
    with pytest.raises(error, match=rule):
        make(gen)


def test_criteria_of_a_list_end_rows_as_the_fields_do(gen):
    prompt = len(gen.tokenizer.encode(PROMPT))
    for criterion, fields, reason in (
        (MaxLengthCriteria(prompt + 5), {"max_new_tokens": 5}, "length"),
        (MaxTimeCriteria(0), {"max_time": 0}, "time"),
        (StopStringCriteria(gen.tokenizer, " a"), {"stop_strings": " a"}, "stop"),
        (
            EosTokenCriteria(gen.tokenizer.encode(".")[-1]),
            {"eos_token_id": gen.tokenizer.encode(".")[-1]},
            "eos",
        ),
    ):
        limit = {} if reason == "length" else {"max_new_tokens": 40}
        told = "MaxLengthCriteria in `stopping_criteria` takes the place of the one that `max_new_tokens` asks for"
        with pytest.warns(UserWarning, match=told) if reason == "length" else nullcontext():
            by_list = gen.generate(PROMPT, stopping_criteria=[criterion], max_new_tokens=40)
        by_field = gen.generate(PROMPT, **limit | fields)
        assert by_list.token_ids[0].tolist() == by_field.token_ids[0].tolist(), reason
        assert by_list.finish_reasons == by_field.finish_reasons == [reason]


# With beams a row that ends is one of several.
@pytest.mark.parametrize("name", [name for name, fields in SEARCHES.items() if "num_beams" not in fields])
def test_an_unsure_token_ends_its_row_in_every_search_without_beams(gen, name):
    fields = SEARCHES[name] | {"max_new_tokens": 30}
    # DoLa leaves few tokens, which are sure of themselves.
    threshold = 0.6 if name == "dola" else 0.2
    criterion = ConfidenceCriteria(threshold)
    out = getattr(gen, name)(PROMPT, stopping_criteria=criterion, output_scores=True, **fields)
    scores = np.array([step[0] for step in out.scores], dtype=np.float64)
    probabilities = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
    chosen = probabilities[np.arange(len(out.token_ids[0])), out.token_ids[0]]
    assert out.finish_reasons == ["stop"]
    assert chosen[-1] < threshold
    assert (chosen[:-1] >= threshold).all()


@pytest.mark.parametrize("name", SEARCHES)
def test_a_criterion_of_the_callers_is_asked_in_every_search(gen, name):
    fields = SEARCHES[name]
    prompt = len(gen.tokenizer.encode(PROMPT))

    rows = {"beam_search": 6, "beam_sample": 6, "group_beam_search": 4}.get(name, 1)
    lengths = []

    class AfterFour(StoppingCriteria):
        def __call__(self, input_ids, scores):
            # As in transformers once a step; of beams the candidates, or those that go on.
            assert input_ids.shape[0] == scores.shape[0] == rows
            lengths.append(input_ids.shape[1])
            return np.array([input_ids.shape[1] >= prompt + 4])

    out = getattr(gen, name)(PROMPT, stopping_criteria=[AfterFour()], max_new_tokens=9, **fields)
    assert {len(ids) for ids in out.token_ids} <= {4, 5}
    assert set(out.finish_reasons) == {"stop"}
    assert lengths == [prompt + 1, prompt + 2, prompt + 3, prompt + 4]


@pytest.mark.parametrize("name", ["greedy_search", "sample", "contrastive_search", "dola", "beam_search"])
@pytest.mark.parametrize("form", [bool, np.array, list])
def test_a_criterion_answers_for_all_rows_of_a_step(gen, name, form):
    """A truth value counts for all rows, an array or a list has an entry for each: as in transformers."""
    prompts, calls = np.array([[263, 264, 265], [266, 267, 268]]), []

    def ends(input_ids, scores):
        calls.append(input_ids.shape)
        stops = (input_ids.shape[1] >= 6) & (input_ids[:, 0] == 266)
        return bool(stops.any()) if form is bool else form(stops)

    fields = SEARCHES[name] | {"max_new_tokens": 5, "eos_token_id": None}
    out = getattr(gen, name)(prompts, stopping_criteria=ends, **fields)
    first = 3 if form is bool else 5
    assert [len(ids) for ids in out.token_ids] == [first, 3]
    assert out.finish_reasons == ["stop" if form is bool else "length", "stop"]
    # Once a step, with those that have ended as well; of beams twice as many candidates.
    rows = 12 if name == "beam_search" else 2
    after = [] if form is bool else [(rows, 7), (rows, 8)]
    assert calls == [(rows, 4), (rows, 5), (rows, 6), *after]


@pytest.mark.parametrize("answer", [None, 1, "no", [1, 0], [True], np.zeros((2, 2), bool), [[True]] * 3])
def test_other_answers_of_a_criterion_are_errors(gen, answer):
    prompts = np.array([[263, 264, 265], [266, 267, 268]])
    if np.size(answer) == 1 and np.asarray(answer).dtype == bool:
        out = gen.generate(prompts, stopping_criteria=lambda *_: answer, max_new_tokens=3)
        assert out.finish_reasons == ["stop", "stop"]
        return
    with pytest.raises(rsgen.CallbackError, match="or an array of one for each of 2 rows, got"):
        gen.generate(prompts, stopping_criteria=lambda *_: answer, max_new_tokens=3)


def test_a_criterion_ends_single_beams(gen):
    """Some beams end with a token, the others go on: what ends competes by its score."""
    plain = gen.beam_search(PROMPT, num_beams=4, num_return_sequences=4, max_new_tokens=6)
    token = int(plain.token_ids[0][2])

    def ends(input_ids, scores):
        return input_ids[:, -1] == token

    out = gen.beam_search(
        PROMPT,
        num_beams=4,
        num_return_sequences=4,
        max_new_tokens=6,
        early_stopping=True,
        stopping_criteria=ends,
    )
    by_eos = gen.beam_search(
        PROMPT,
        num_beams=4,
        num_return_sequences=4,
        max_new_tokens=6,
        early_stopping=True,
        eos_token_id=[1, token],
    )
    assert "stop" in out.finish_reasons
    for ids, reason in zip(out.token_ids, out.finish_reasons, strict=True):
        assert (ids[-1] == token) == (reason == "stop")
    assert len(by_eos) == len(out)


@pytest.mark.parametrize("name", SEARCHES)
def test_what_a_criterion_raises_comes_out_of_every_search(gen, name):
    error = KeyError("mine")

    def broken(input_ids, scores):
        raise error

    with pytest.raises(KeyError) as raised:
        getattr(gen, name)(PROMPT, stopping_criteria=broken, max_new_tokens=3, **SEARCHES[name])
    assert raised.value is error


def test_a_base_that_is_not_derived_from_says_what_is_missing(gen):
    with pytest.raises(NotImplementedError, match=r"must define __call__\(self, input_ids, scores\)"):
        gen.generate(PROMPT, stopping_criteria=StoppingCriteria(), max_new_tokens=2)
