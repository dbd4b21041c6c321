"""What an output holds of every search: transition scores, log-probabilities, alternatives, timings."""

import itertools
import json
import pickle
import time

import numpy as np
import pytest
import rsgen

PROMPT = "Once upon a time"
SEARCHES = {
    "greedy_search": {},
    "sample": {"seed": 3, "num_return_sequences": 3, "top_k": 20},
    "beam_search": {"num_beams": 3, "num_return_sequences": 2},
    "beam_sample": {"num_beams": 3, "seed": 3, "num_return_sequences": 2, "temperature": 2.0},
    "group_beam_search": {"num_beams": 4, "num_return_sequences": 4},
    "constrained_beam_search": {"num_beams": 4, "force_words_ids": [[44]]},
    "contrastive_search": {},
    "dola": {},
    "prompt_lookup": {},
    "assisted_decoding": {"assistant_early_exit": 3, "num_assistant_tokens": 3},
}


def log_softmax(scores):
    scores = scores.astype(np.float64)
    return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


def model_logprobs(gen, out, row):
    """What the model alone says of each generated token: `[tokens, vocab_size]`, from one pass over the whole row."""
    ids = [*gen.tokenizer.encode(PROMPT), *out.token_ids[row].tolist()]
    before = len(ids) - len(out.token_ids[row])
    return log_softmax(gen.forward(ids)[0])[before - 1 : -1]


@pytest.mark.parametrize("name", SEARCHES)
def test_logprobs_and_alternatives_are_the_models_own_in_every_search(gen, name):
    out = getattr(gen, name)(PROMPT, max_new_tokens=8, top_logprobs=4, **SEARCHES[name])
    assert len(out.top_logprobs) == len(out)
    for row in range(len(out)):
        expected = model_logprobs(gen, out, row)
        chosen = expected[np.arange(len(expected)), out.token_ids[row]]
        np.testing.assert_allclose(out.logprobs[row], chosen, atol=1e-4)
        assert len(out.top_logprobs[row]) == len(expected)
        for alternatives, logprobs in zip(out.top_logprobs[row], expected, strict=True):
            assert list(alternatives) == np.argsort(-logprobs, kind="stable")[:4].tolist()
            np.testing.assert_allclose(list(alternatives.values()), -np.sort(-logprobs)[:4], atol=1e-4)


def test_a_token_among_its_alternatives_has_the_same_bits(gen):
    out = gen.generate(PROMPT, max_new_tokens=6, top_logprobs=1)
    assert [list(step.values()) for step in out.top_logprobs[0]] == [[value] for value in out.logprobs[0]]


def test_alternatives_are_kept_when_they_are_asked_for(gen):
    assert gen.generate(PROMPT, max_new_tokens=2).top_logprobs is None
    assert gen.generate(PROMPT, max_new_tokens=2, top_logprobs=0).top_logprobs is None
    vocab_size = gen.config["vocab_size"]
    assert (
        len(gen.generate(PROMPT, max_new_tokens=1, top_logprobs=vocab_size).top_logprobs[0][0]) == vocab_size
    )
    with pytest.raises(rsgen.ConfigError, match="`top_logprobs` must be at most"):
        gen.generate(PROMPT, max_new_tokens=2, top_logprobs=vocab_size + 1)


def test_alternatives_of_a_list_are_those_of_each_prompt(gen):
    prompts = [PROMPT, "One day", "Tom"]
    for fields in ({}, {"num_beams": 2, "num_return_sequences": 2}):
        fields = fields | {"max_new_tokens": 4, "top_logprobs": 2, "output_scores": True}
        together = gen.generate(prompts, **fields)
        alone = [gen.generate(prompt, **fields) for prompt in prompts]
        assert together.top_logprobs == [row for out in alone for row in out.top_logprobs]
        np.testing.assert_array_equal(
            together.compute_transition_scores(),
            np.concatenate([out.compute_transition_scores() for out in alone]),
        )


@pytest.mark.parametrize("name", ["beam_search", "group_beam_search"])
@pytest.mark.parametrize("length_penalty", [1.0, -0.5, 0.0, 2.0])
def test_transition_scores_of_beams_sum_to_the_scores_of_their_sequences(gen, name, length_penalty):
    fields = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 9, "output_scores": True}
    if name == "group_beam_search":
        fields["diversity_penalty"] = 1e-30
    plain = gen.beam_search(PROMPT, num_beams=4, max_new_tokens=9)
    eos = int(plain.token_ids[0][4])
    out = getattr(gen, name)(PROMPT, eos_token_id=eos, length_penalty=length_penalty, **fields)
    transition = out.compute_transition_scores()
    assert transition.dtype == np.float32
    lens = np.array([len(ids) for ids in out.token_ids])
    assert len(set(lens)) > 1, "rows of several lengths"
    assert transition.shape == (4, lens.max())
    for row in range(4):
        # Computed from one pass of the model over the whole row.
        logprobs = model_logprobs(gen, out, row)
        expected = logprobs[np.arange(lens[row]), out.token_ids[row]]
        np.testing.assert_allclose(transition[row, : lens[row]], expected, atol=1e-4)
        assert (transition[row, lens[row] :] == 0).all()
        np.testing.assert_allclose(
            out.sequences_scores[row], expected.sum() / lens[row] ** length_penalty, atol=1e-4
        )


def test_transition_scores_without_beams_are_those_of_the_chosen_tokens(gen):
    out = gen.sample(
        PROMPT, seed=5, num_return_sequences=4, max_new_tokens=12, temperature=0.7, output_scores=True,
        eos_token_id=gen.tokenizer.encode(".")[-1],
    )  # fmt: skip
    lens = [len(ids) for ids in out.token_ids]
    assert min(lens) < max(lens)
    raw, normalized = out.compute_transition_scores(), out.compute_transition_scores(normalize_logits=True)
    assert raw.shape == normalized.shape == (4, max(lens))
    for row, ids in enumerate(out.token_ids):
        prompt = gen.tokenizer.encode(PROMPT)
        logits = gen.forward([*prompt, *ids.tolist()])[0][len(prompt) - 1 : -1].astype(np.float64) / 0.7
        for step, token in enumerate(ids):
            kept = np.sort(logits[step])[-50:]
            np.testing.assert_allclose(raw[row, step], logits[step, token], atol=2e-4)
            expected = logits[step, token] - np.logaddexp.reduce(kept)
            np.testing.assert_allclose(normalized[row, step], expected, atol=2e-4)
        assert (raw[row, len(ids) :] == 0).all()
        assert (normalized[row, len(ids) :] == 0).all()


def test_transition_scores_need_the_scores(gen):
    with pytest.raises(rsgen.InputError, match="output_scores=True"):
        gen.generate(PROMPT, max_new_tokens=2).compute_transition_scores()
    out = gen.generate(PROMPT, max_new_tokens=2, output_scores=True)
    out.scores[0] = "something else"
    with pytest.raises(rsgen.InputError, match="have been changed"):
        out.compute_transition_scores()


@pytest.mark.parametrize("name", SEARCHES)
def test_outputs_of_every_search_pickle(gen, name):
    out = getattr(gen, name)(
        PROMPT, max_new_tokens=5, top_logprobs=2, output_scores=True, output_logits=True, **SEARCHES[name]
    )
    again = pickle.loads(pickle.dumps(out))
    np.testing.assert_array_equal(again.sequences, out.sequences)
    assert again.top_logprobs == out.top_logprobs
    assert again.finish_reasons == out.finish_reasons
    assert again.usage == out.usage
    np.testing.assert_array_equal(again.compute_transition_scores(), out.compute_transition_scores())
    for got, expected in zip(again.logprobs, out.logprobs, strict=True):
        np.testing.assert_array_equal(got, expected)
    for one, other in (
        (again.sequences_scores, out.sequences_scores),
        (again.beam_indices, out.beam_indices),
    ):
        if other is None:
            assert one is None
        else:
            np.testing.assert_array_equal(one, other)


def test_outputs_pickle_with_numbers_that_json_has_not(gen):
    """The older beam search puts a token at the end of what a limit of time has ended, and nothing chose it."""
    out = gen.beam_search(PROMPT, compat="4.49", max_time=0, max_new_tokens=5, top_logprobs=1)
    assert np.isnan(out.logprobs[0][-1])
    again = pickle.loads(pickle.dumps(out))
    np.testing.assert_array_equal(again.logprobs[0], out.logprobs[0])
    assert again.top_logprobs == out.top_logprobs
    assert len(again.top_logprobs[0]) == len(again.beam_indices[0])


@pytest.mark.parametrize("name", SEARCHES)
def test_the_first_token_of_every_search_comes_before_its_end(gen, name):
    out = getattr(gen, name)(PROMPT, max_new_tokens=12, **SEARCHES[name])
    assert 0 < out.timings.first_token < out.timings.total
    assert out.usage.generated_tokens == sum(len(ids) for ids in out.token_ids)
    assert out.usage.prompt_tokens == len(gen.tokenizer.encode(PROMPT))
    assert json.dumps(out.finish_reasons)


def test_timings_count_from_the_start_of_the_call_however_many_prompts_wait(make_llama):
    """No more than 256 prompts run together: the others begin later, and the call is one."""
    small, started = rsgen.Generator(make_llama(), num_threads=1), time.perf_counter()
    out = small.generate([[5, 6]] * 600, max_new_tokens=24)
    elapsed = time.perf_counter() - started
    assert 0.5 * elapsed < out.timings.total <= elapsed
    assert out.timings.first_token < out.timings.total


def test_a_beam_that_is_left_over_has_its_tokens_and_the_reason_length(make_llama):
    gen = rsgen.Generator(make_llama(), num_threads=1)
    allowed = [7, 8, 9, 10]
    fields = {"suppress_tokens": [token for token in range(64) if token not in allowed], "pad_token_id": 0}
    for beams, early_stopping in itertools.product((2, 3), (True, False, "never")):
        # After three or four tokens nothing is left that may follow.
        out = gen.beam_search(
            [[5, 6, 7]],
            max_new_tokens=10,
            num_beams=beams,
            num_return_sequences=beams,
            no_repeat_ngram_size=1,
            early_stopping=early_stopping,
            **fields,
        )
        assert out.finish_reasons == ["length"] * beams
        assert (out.sequences_scores == -1e9).all()
        for row in out.sequences[:, 3:].tolist():
            new = [token for token in row if token != 0]
            assert len(new) < 10
            assert len(set(new)) == len(new)
            assert set(new) <= {*allowed}
