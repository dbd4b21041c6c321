"""Candidates, labels and perplexities: sums over the scores of tokens."""

import math
from pathlib import Path

import numpy as np
import pytest
import rsgen

CONTEXT = "Once upon a time, there was a little"
CANDIDATES = [" girl", " boy named Tim", " banana", " girl", " dog."]


def continuation(gen, context, candidate):
    """The log-probabilities of a candidate's tokens, as lm-eval takes them: the longest way."""
    kept = context.rstrip()
    whole = gen.tokenizer.encode(context + candidate)
    return gen.score(whole)[len(gen.tokenizer.encode(kept)) :]


@pytest.mark.parametrize("context", [CONTEXT, CONTEXT + " ", CONTEXT + "\n "])
@pytest.mark.parametrize("normalization", ["sum", "mean", "bytes"])
def test_candidates_are_ranked_by_what_their_tokens_sum_up_to(gen, context, normalization):
    ranked = gen.rank(context, CANDIDATES, normalization=normalization)
    assert sorted(candidate.index for candidate in ranked) == [0, 1, 2, 3, 4]
    for candidate in ranked:
        own = continuation(gen, context, CANDIDATES[candidate.index]).astype(float)
        bytes_ = len(CANDIDATES[candidate.index].encode())
        divisor = {"sum": 1, "mean": len(own), "bytes": bytes_}[normalization]
        assert candidate.num_tokens == len(own)
        assert candidate.logprob == pytest.approx(own.sum(), rel=1e-12)
        assert candidate.score == pytest.approx(own.sum() / divisor, rel=1e-12)
    scores = [candidate.score for candidate in ranked]
    assert scores == sorted(scores, reverse=True)
    # Equal ones in their order.
    places = [candidate.index for candidate in ranked]
    assert places.index(3) == places.index(0) + 1


def test_candidates_may_be_ids(gen):
    ids = [gen.tokenizer.encode(candidate, add_special_tokens=False) for candidate in CANDIDATES]
    context = gen.tokenizer.encode(CONTEXT)
    for ranked in (gen.rank(context, ids), gen.rank(CONTEXT, ids)):
        for candidate in ranked:
            own = gen.score([*context, *ids[candidate.index]])[len(context) :].astype(float)
            assert candidate.logprob == pytest.approx(own.sum(), rel=1e-12)


def test_candidates_of_a_model_with_an_encoder_are_its_targets():
    mt = rsgen.Generator(Path(__file__).parent / "golden/toy_translation")
    source, targets = "I like tea.", ["Ich mag Tee.", "Ich mag Brot.", ""]
    for normalization, divisors in {"sum": [1, 1, 1], "bytes": [12, 13, 1]}.items():
        for candidate in mt.rank(source, targets, normalization=normalization):
            # As text, with the tokens that the tokenizer gives targets.
            own = mt.score(source, targets[candidate.index]).astype(float)
            assert candidate.num_tokens == len(own)
            assert candidate.score == pytest.approx(own.sum() / divisors[candidate.index], rel=1e-12)


def test_labels_have_the_softmax_of_their_scores_and_are_calibrated(gen):
    labels = [" happy", " sad", " big"]

    def scores(context):
        ranked = sorted(gen.rank(context, labels), key=lambda candidate: candidate.index)
        return np.array([candidate.score for candidate in ranked])

    def softmax(values):
        return np.exp(values - values.max()) / np.exp(values - values.max()).sum()

    found = gen.classify("She smiled. She was", labels)
    assert list(found) == labels
    assert list(found.values()) == pytest.approx(softmax(scores("She smiled. She was")))
    calibrated = gen.classify("She smiled. She was", labels, content_free="N/A. She was")
    expected = softmax(scores("She smiled. She was")) / softmax(scores("N/A. She was"))
    assert list(calibrated.values()) == pytest.approx(expected / expected.sum())
    assert sum(calibrated.values()) == pytest.approx(1)


def windowed(gen, ids, window, stride):
    """The loop of transformers' page about fixed-length models."""
    nll, count, seen = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        target = end - seen
        logprobs = gen.score(ids[begin:end]).astype(float)[1:][-target:]
        nll += -logprobs.mean() * (target - 1)
        count += target - 1
        seen = end
        if end == len(ids):
            break
    return math.exp(nll / count)


@pytest.mark.parametrize(
    ("window", "stride"), [(64, 32), (64, 64), (50, 7), (512, 256), (None, None), (2, 1)]
)
def test_the_perplexity_of_a_long_text_is_that_of_its_windows(gen, window, stride):
    ids = np.random.default_rng(1).integers(3, 2000, 700).tolist()
    expected = windowed(gen, ids, window or 512, stride or 256) if (window, stride) != (2, 1) else None
    if expected is None:
        with pytest.raises(rsgen.InputError, match="at least two tokens"):
            gen.perplexity([7], window=2, stride=1)
        return
    assert gen.perplexity(ids, window=window, stride=stride) == pytest.approx(expected, rel=1e-9)


def test_several_texts_have_one_perplexity(gen):
    texts = ["Once upon a time, there was a dog.", "The end."]
    logprobs = np.concatenate([gen.score(text)[1:] for text in texts]).astype(float)
    assert gen.perplexity(texts) == pytest.approx(math.exp(-logprobs.mean()), rel=1e-9)
    one = gen.score(texts[0])[1:].astype(float)
    assert gen.perplexity(texts[0]) == pytest.approx(math.exp(-one.mean()), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda gen: gen.rank(CONTEXT, " girl"), rsgen.InputError, "`candidates` must be a list of texts"),
        (lambda gen: gen.rank(CONTEXT, [" girl", ""]), rsgen.InputError, "candidate 1: it adds no token"),
        (lambda gen: gen.rank([], [[5]]), (rsgen.InputError, TypeError), "context|token"),
        (lambda gen: gen.rank([CONTEXT], [" a"]), rsgen.InputError, "`context` must be one text"),
        (
            lambda gen: gen.rank(CONTEXT, [" a"], normalization="chars"),
            rsgen.ConfigError,
            '"sum", "mean" or "bytes"',
        ),
        (lambda gen: gen.rank([5] * 510, [[6], [7] * 9]), rsgen.InputError, "candidate 1: the text must fit"),
        (lambda gen: gen.rank(CONTEXT, []), rsgen.InputError, "`candidates` must not be empty"),
        (lambda gen: gen.classify(CONTEXT, []), rsgen.InputError, "`labels` must not be empty"),
        (lambda gen: gen.perplexity([]), rsgen.InputError, "`text` must not be empty"),
        (lambda gen: gen.embed([], pooling="mean"), rsgen.InputError, "`ids` must not be empty"),
        (lambda gen: gen.classify(CONTEXT, [" a", " a"]), rsgen.InputError, '" a" twice'),
        (lambda gen: gen.classify(CONTEXT, [[5]]), TypeError, "must be texts"),
        (
            lambda gen: gen.perplexity("a b", window=1),
            rsgen.ConfigError,
            "window.*from 2 to the model's context",
        ),
        (lambda gen: gen.perplexity("a b", stride=0), rsgen.ConfigError, "stride.*1 or more"),
        (
            lambda gen: gen.perplexity("a b", window=8, stride=9),
            rsgen.ConfigError,
            "stride.*at most the window",
        ),
        (lambda gen: gen.perplexity("a b", window=9999), rsgen.ConfigError, "512"),
        (lambda gen: gen.perplexity([5]), rsgen.InputError, "at least two tokens"),
    ],
)
def test_wrong_calls_say_what_is_wrong(gen, call, error, message):
    with pytest.raises(error, match=message):
        call(gen)
