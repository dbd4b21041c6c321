"""`score(…, cache=)`: the scores of what follows kept caches are those of the whole texts."""

import numpy as np
import pytest
import rsgen

STORY = "Once upon a time, there was a little girl who had a dog. "
ROPES = {
    "plain": {},
    "dynamic": {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
    "window": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 8},
}


def drawn(rng: np.random.Generator, length: int) -> list[int]:
    return rng.integers(3, 60, length).tolist()


def check(gen: rsgen.Generator, caches: list[rsgen.KeptCache], rests: list[list[int]]) -> None:
    """Scores rests after a cache for all and after one each, and compares bits with the whole texts."""
    for given in ([caches[0]] * len(rests), caches):
        whole = [
            gen.score([*cache.token_ids, *rest])[len(cache) :]
            for cache, rest in zip(given, rests, strict=True)
        ]
        found = gen.score(rests, cache=caches[0] if given is not caches else caches)
        assert [len(logprobs) for logprobs in found] == [len(rest) for rest in rests]
        for one, other in zip(whole, found, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("form", ROPES)
def test_scores_are_the_bits_of_the_whole_texts(make_llama, form, prefix_caching):
    rng = np.random.default_rng(5)
    folder = make_llama(max_position_embeddings=96, vocab_size=64, **ROPES[form])
    gen = rsgen.Generator(folder, num_threads=1, prefix_caching=prefix_caching)
    for _ in range(6):
        begin = drawn(rng, int(rng.integers(1, 70)))
        rests = [drawn(rng, int(rng.integers(0, 25))) for _ in range(5)]
        # Rests that begin alike, one the beginning of another, twice the same.
        rests += [rests[0] + drawn(rng, 2), rests[0][:-1], rests[1]]
        # Caches that are the beginning of another, of one token, and of the same text.
        caches = [
            begin,
            begin[:1],
            begin[: len(begin) // 2 + 1],
            begin,
            drawn(rng, 3),
            begin,
            drawn(rng, 40),
            begin,
        ]
        check(gen, [gen.prefill(ids) for ids in caches], rests)
    assert gen.stats().blocks_reserved == 0


def test_texts_follow_a_cache_without_special_tokens(gen):
    story = gen.prefill(STORY)
    texts = ["She was happy.", "", "The dog ran away.", "She was sad."]
    ids = [gen.tokenizer.encode(text, add_special_tokens=False) for text in texts]
    after = gen.score(texts, cache=story)
    for text, own, logprobs in zip(texts, ids, after, strict=True):
        assert len(logprobs) == len(own)
        np.testing.assert_array_equal(logprobs, gen.score([own], cache=story)[0])
        np.testing.assert_array_equal(logprobs, gen.score(text, cache=[story]))
    more = gen.score(texts, cache=story, top_logprobs=2)
    for logprobs, own in zip(after, more, strict=True):
        np.testing.assert_array_equal(logprobs, own.logprobs)
        assert (own.ranks >= 1).all()
        assert [len(top) for top in own.top_logprobs] == [2] * len(logprobs)


def test_the_cache_of_an_answer_is_scored_after(gen):
    out = gen.generate(STORY, max_new_tokens=20, return_cache=True)
    rest = gen.tokenizer.encode("The end.", add_special_tokens=False)
    whole = gen.score([*out.cache.token_ids, *rest])
    np.testing.assert_array_equal(gen.score(rest, cache=out.cache), whole[-len(rest) :])


def test_the_cache_is_not_computed_again(gen):
    context = gen.prefill(gen.tokenizer.encode(STORY * 20)[:480])
    before = gen.stats()
    gen.score([[7, 8], [9], [10, 11, 12]], cache=context)
    hits = gen.stats().prefix_cache_hits - before.prefix_cache_hits
    # One text computes the last token again, which gives the logits of the first tokens of all of them. A text of one
    # token has nothing more to compute.
    assert hits == (len(context) - 1) + len(context)


def test_what_is_too_long_names_the_text(gen):
    context = gen.prefill([5] * 500)
    assert len(gen.score([6] * 13, cache=context)) == 13
    with pytest.raises(rsgen.InputError, match=r"text 1: the text must fit .* 513 tokens, got 514"):
        gen.score([[6] * 13, [6] * 14], cache=context)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda gen, cache: gen.score(["a", "b", "c"], cache=[cache, cache]), "one for each \\(3\\), got 2"),
        (lambda gen, cache: gen.score("a", cache=3), "`cache` must be a KeptCache or a list of them, got 3"),
        (lambda gen, cache: gen.score("a", cache=[]), "`cache` must hold at least one cache"),
        (lambda gen, cache: gen.score("a", "b", cache=cache), "`cache` holds what a text continues"),
        (
            lambda gen, cache: rsgen.Generator().score("a", cache=cache),
            "must be of the generator that continues",
        ),
    ],
)
def test_a_wrong_cache_is_refused(gen, call, message):
    with pytest.raises((rsgen.RsgenError, TypeError), match=message):
        call(gen, gen.prefill("Once"))
