"""Logits processors and stopping criteria of the caller's."""

import numpy as np
import pytest
import rsgen

PROMPT = "Once upon a time"


def test_a_processor_sees_all_ids_and_changes_the_scores(gen):
    seen = []
    vocab_size = gen.config["vocab_size"]

    def ban_e(input_ids, scores):
        assert (input_ids.dtype, scores.dtype) == (np.int64, np.float32)
        assert scores.shape == (1, vocab_size)
        seen.append(input_ids)
        scores[:, banned] = -np.inf
        return scores

    banned = [token for token in range(vocab_size) if "e" in gen.tokenizer.decode([token])]
    out = gen.generate(PROMPT, logits_processor=ban_e, max_new_tokens=12)
    assert "e" not in out.text
    assert "e" in gen.generate(PROMPT, max_new_tokens=12).text
    assert len(seen) == 12
    np.testing.assert_array_equal(seen[-1], out.sequences[:, :-1])


def test_processors_apply_in_their_order_and_stream_as_well(gen):
    def add(value):
        return lambda _, scores: scores + np.float32(value)

    def double(_, scores):
        return (scores * 2).astype(np.float64)

    for processors, expected in (([add(1), double], 2), ((double, add(1)), 1)):
        out = gen.generate(
            PROMPT, logits_processor=processors, max_new_tokens=1, output_scores=True, output_logits=True
        )
        np.testing.assert_allclose(out.scores[0], out.logits[0] * 2 + expected, rtol=1e-6)
        token = next(gen.stream(PROMPT, logits_processor=processors))
        assert token.score == out.scores[0].max()


def test_a_processor_gets_the_rows_of_its_request_that_go_on(gen):
    shapes = []

    def look(input_ids, scores):
        shapes.append((input_ids.shape[0], scores.shape[0]))
        return scores

    gen.sample(PROMPT, num_return_sequences=3, seed=1, logits_processor=look, max_new_tokens=2)
    gen.generate([PROMPT, "One day"], logits_processor=look, max_new_tokens=1)
    assert shapes == [(3, 3), (3, 3), (1, 1), (1, 1)]


def test_a_criterion_ends_its_row(gen):
    def after_five(input_ids, scores):
        assert input_ids.shape[0] == scores.shape[0] == 1
        return input_ids.shape[1] - width >= 5

    width = len(gen.tokenizer.encode(PROMPT))
    for criterion in (
        after_five,
        lambda ids, scores: np.array([after_five(ids, scores)]),
        lambda ids, scores: np.bool_(after_five(ids, scores)),
    ):
        out = gen.generate(PROMPT, stopping_criteria=[criterion], max_new_tokens=20)
        assert out.finish_reasons == ["stop"]
        assert out.usage.generated_tokens == 5


class Mine(Exception):
    """An exception with an identity."""


@pytest.mark.parametrize("argument", ["logits_processor", "stopping_criteria"])
def test_an_exception_comes_out_as_it_is_and_ends_the_request(gen, argument):
    error = Mine("why")

    def fail(_, __):
        raise error

    for call in (
        lambda: gen.generate(PROMPT, **{argument: fail}, max_new_tokens=5),
        lambda: gen.generate([PROMPT, "One day"], **{argument: fail}, max_new_tokens=5),
        lambda: list(gen.stream(PROMPT, **{argument: fail})),
    ):
        with pytest.raises(Mine) as raised:
            call()
        assert raised.value is error
        assert any(entry.name == "fail" for entry in raised.traceback)
        assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda scores: None, "fails must return scores of shape .* got None; end it with `return scores`"),
        (lambda scores: scores[0], r"scores of shape \(1, 2048\), got an array of shape \(2048,\)"),
        (lambda scores: scores[:, :-1], r"scores of shape \(1, 2048\), got an array of shape \(1, 2047\)"),
        (lambda scores: "text", "scores that are numbers, got an array of <U4"),
        (lambda scores: scores > 0, "scores that are numbers, got an array of bool"),
        (lambda scores: scores * np.nan, "scores without NaN, got NaN for token 0 of row 0"),
    ],
)
def test_scores_that_cannot_be_used_are_refused(gen, returned, message):
    def fails(_, scores):
        return returned(scores)

    with pytest.raises(rsgen.CallbackError, match=message):
        gen.generate(PROMPT, logits_processor=fails, max_new_tokens=5)


@pytest.mark.parametrize("answer", [None, 1, "yes", np.array([True, False]), np.array([])])
def test_answers_that_are_no_truth_value_are_refused(gen, answer):
    with pytest.raises(
        rsgen.CallbackError, match="must return True or False, or an array of one of them, got"
    ):
        gen.generate(PROMPT, stopping_criteria=lambda _, __: answer, max_new_tokens=5)


def test_a_processor_may_use_the_generator_itself(gen):
    def longest_score(input_ids, scores):
        assert gen.score(input_ids[0]).shape == input_ids.shape[1:]
        return -gen.forward(input_ids)[:, -1] if input_ids.shape[1] < 4 else scores

    plain = gen.generate("Tom", max_new_tokens=4)
    out = gen.generate("Tom", logits_processor=longest_score, max_new_tokens=4)
    assert out.text != plain.text


def test_a_callback_cannot_read_its_own_stream(gen):
    def read_on(_, scores):
        next(stream)
        return scores

    stream = gen.stream(PROMPT, logits_processor=read_on)
    with pytest.raises(ValueError, match="being read already"):
        next(stream)


@pytest.mark.parametrize("argument", ["logits_processor", "stopping_criteria"])
def test_what_is_no_callable_is_refused(gen, argument):
    for value in (5, [print, "x"]):
        with pytest.raises(TypeError, match=f"`{argument}` must be a callable or a list of callables"):
            gen.generate(PROMPT, **{argument: value})


def test_none_and_an_empty_list_are_no_callbacks(gen):
    expected = gen.generate(PROMPT, max_new_tokens=3).text
    out = gen.generate(PROMPT, logits_processor=None, stopping_criteria=[], max_new_tokens=3)
    assert out.text == expected


def test_an_object_counts_by_its_class(gen):
    class Ban:
        def __call__(self, input_ids, scores):
            raise Mine

    with pytest.raises(Mine):
        gen.generate(PROMPT, logits_processor=[Ban(), Ban()], max_new_tokens=3)
