"""Kept caches: a call that continues one gives what it gives for the whole text."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import rsgen

STORY = "Once upon a time there was a little fox who lived in a small house by the sea. One day he"
GREEDY = {"max_new_tokens": 10}
CALLS = {
    "generate": GREEDY,
    "sample": {**GREEDY, "seed": 4, "num_return_sequences": 3},
    "beam_search": {**GREEDY, "num_return_sequences": 2},
    "beam_sample": {**GREEDY, "seed": 4},
    "group_beam_search": GREEDY,
    "contrastive_search": GREEDY,
    "dola": GREEDY,
    "prompt_lookup": GREEDY,
}


def same(one, other):
    return np.array_equal(one.sequences, other.sequences) and all(
        map(np.array_equal, one.logprobs, other.logprobs)
    )


@pytest.fixture
def kept(gen):
    with gen.prefill(STORY) as kept:
        yield kept


@pytest.mark.parametrize("name", CALLS)
def test_a_continued_text_gives_what_the_whole_text_gives(gen, kept, name):
    rest = gen.tokenizer.encode(" saw a boat", add_special_tokens=False)
    whole = getattr(gen, name)([*kept.token_ids, *rest], **CALLS[name])
    for more in (" saw a boat", rest, np.array(rest), np.array([rest])):
        continued = getattr(gen, name)(more, cache=kept, **CALLS[name])
        assert same(continued, whole)
        # Contrastive search compares the states of all tokens, so it computes them.
        assert continued.usage.cached_prompt_tokens >= (0 if name == "contrastive_search" else len(kept))
    with_whole = getattr(gen, name)([*kept.token_ids, *rest], past_key_values=kept, **CALLS[name])
    assert same(with_whole, whole)


def test_the_cache_of_an_output_goes_on_where_the_call_ended(gen):
    whole = gen.generate(STORY, max_new_tokens=40)
    out = gen.generate(STORY, max_new_tokens=10, return_cache=True)
    for _ in range(3):
        assert out.cache is out.past_key_values is out.caches[0]
        assert out.cache.token_ids.tolist() == out.sequences[0].tolist()
        assert out.cache.num_computed >= len(out.cache) - 1
        out = gen.generate(cache=out.cache, max_new_tokens=10, return_cache=True)
    assert out.sequences.tolist() == whole.sequences.tolist()
    # In transformers' form, without `return_cache`.
    first = gen.generate(STORY, max_new_tokens=10)
    again = gen.generate(first.sequences, past_key_values=first.past_key_values, max_new_tokens=30)
    assert again.sequences.tolist() == whole.sequences.tolist()
    assert again.usage.cached_prompt_tokens == again.usage.prompt_tokens - 1


def test_each_row_has_its_own_cache_and_a_list_continues_one_each(gen):
    out = gen.sample([STORY, "Tom had a dog"], seed=3, num_return_sequences=2, max_new_tokens=8)
    prompts = [gen.tokenizer.encode(text) for text in (STORY, "Tom had a dog")]
    for cache, index, ids in zip(out.caches, out.prompt_indices, out.token_ids, strict=True):
        assert cache.token_ids.tolist() == [*prompts[index], *ids]
    more = gen.generate([" and", " but", "", " so"], cache=out.caches, max_new_tokens=5)
    for cache, text, ids in zip(out.caches, (" and", " but", "", " so"), more.token_ids, strict=True):
        rest = gen.tokenizer.encode(text, add_special_tokens=False)
        assert gen.generate([*cache.token_ids, *rest], max_new_tokens=5).token_ids[0].tolist() == ids.tolist()
    for cache in out.caches:
        cache.close()


def test_streams_continue_a_cache(gen, kept):
    text = gen.generate(" saw", cache=kept, max_new_tokens=12).text
    with gen.stream(" saw", cache=kept, max_new_tokens=12, return_cache=True) as stream:
        assert "".join(token.text for token in stream) == text
    with stream.output.cache as cache:
        assert cache.token_ids.tolist() == stream.output.sequences[0].tolist()


def test_several_threads_continue_one_cache_at_once(gen, kept):
    texts = [" saw", " ran", " sat", " sang", ""]
    expected = [gen.generate(text, cache=kept, **GREEDY) for text in texts]
    found = {}

    def run(index):
        found[index] = gen.generate(texts[index], cache=kept, **GREEDY)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(found[index], expected[index]) for index in range(len(texts)))


def test_a_conversation_keeps_its_cache(gen):
    template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    messages = [{"role": "user", "content": STORY}]
    fields = {"chat_template": template, "max_new_tokens": 12, "eos_token_id": []}
    first = gen.chat(messages, return_cache=True, **fields)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And then?"}]
    plain = rsgen.Generator(num_threads=2, prefix_caching=False)
    second = gen.chat(messages, cache=first.cache, **fields)
    assert same(second, plain.chat(messages, **fields))
    assert second.usage.cached_prompt_tokens >= first.usage.prompt_tokens - 1
    with gen.stream_chat(messages, cache=first.cache, **fields) as stream:
        assert "".join(token.text for token in stream) == second.text
    first.cache.close()


def test_blocks_are_kept_as_long_as_somebody_keeps_them():
    gen = rsgen.Generator(num_threads=1)
    gen.generate(STORY, max_new_tokens=3)
    out = gen.generate(STORY, max_new_tokens=3)
    assert gen.stats().blocks_kept == 0, "ordinary calls keep nothing"
    kept = gen.prefill(STORY)
    blocks = gen.stats().blocks_kept
    assert blocks >= 1
    fork, again = kept.fork(), copy.copy(kept)
    assert (len(fork), gen.stats().blocks_kept) == (len(kept), blocks)
    kept.close()
    kept.close()
    fork.close()
    assert gen.stats().blocks_kept == blocks
    del again
    gc.collect()
    assert gen.stats().blocks_kept == 0
    assert (out.cache.num_computed > 0, gen.stats().blocks_kept > 0) == (True, True)
    del out
    gc.collect()
    stats = gen.stats()
    assert (stats.blocks_kept, stats.blocks_used) == (0, 0)


def test_a_handle_says_what_it_is(gen):
    with gen.prefill("One day", cache=None) as kept:
        assert kept
        assert kept.token_ids.dtype == np.int64
        assert len(kept) == len(kept.token_ids) == kept.num_computed
        assert repr(kept) == f"KeptCache(len={len(kept)}, num_computed={len(kept)})"
        with gen.prefill(" Tom", cache=kept) as longer:
            assert longer.token_ids[: len(kept)].tolist() == kept.token_ids.tolist()
            assert len(longer) > len(kept)
    assert kept.closed
    assert repr(kept) == "KeptCache(closed)"
    for use in (len, lambda kept: kept.token_ids, lambda kept: kept.fork()):
        with pytest.raises(rsgen.InputError, match="the cache is closed; keep another one"):
            use(kept)
    with pytest.raises(rsgen.InputError, match="closed"):
        gen.generate("x", cache=kept)
    several = gen.prefill(["One day", [1, 2, 3]])
    assert [kept.token_ids.tolist() for kept in several][1] == [1, 2, 3]
    for kept in several:
        kept.close()


def test_mistakes_are_named(gen, kept):
    with pytest.raises(
        TypeError, match=r"`cache` must be a KeptCache or a list of them, got 5 \(int\); gen.prefill"
    ):
        gen.generate("x", cache=5)
    with pytest.raises(TypeError, match="`past_key_values` must be a KeptCache"):
        gen.generate("x", past_key_values=object())
    with pytest.raises(TypeError, match="`return_cache` must be True or False, got 1"):
        gen.generate("x", return_cache=1)
    with pytest.raises(rsgen.ConfigError, match="at least one cache"):
        gen.generate("x", cache=[])
    with pytest.raises(rsgen.ConfigError, match="exclude each other"):
        gen.generate("x", cache=kept, past_key_values=kept)
    with pytest.raises(rsgen.InputError, match="begin with the"):
        gen.generate(" more", past_key_values=kept)
    with pytest.raises(rsgen.InputError, match=r"one for each \(1\), got 2"):
        gen.generate("x", cache=[kept, kept])
    with pytest.raises(rsgen.InputError, match="of the generator that continues it"):
        rsgen.Generator(num_threads=1).generate("x", cache=kept)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(kept)
    with pytest.raises(TypeError, match="unexpected keyword argument: `return_caches`"):
        gen.generate("x", return_caches=True)
    out = pickle.loads(pickle.dumps(gen.generate("One day", **GREEDY)))
    with pytest.raises(rsgen.InputError, match="from a file or another process"):
        _ = out.cache


def test_a_handle_outlives_its_generator():
    gen = rsgen.Generator(num_threads=1)
    kept = gen.prefill(STORY)
    ids = kept.token_ids.tolist()
    del gen
    gc.collect()
    assert kept.token_ids.tolist() == ids
    kept.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_cannot_use_it(gen, kept):
    from forked import in_fork

    def use():
        messages = []
        for call in (lambda: gen.generate("x", cache=kept), lambda: gen.prefill("x"), kept.fork):
            with pytest.raises(rsgen.ForkError) as error:
                call()
            messages.append(str(error.value))
        length = len(kept)
        kept.close()
        return messages, length

    messages, length = in_fork(use)
    assert length == len(kept)
    assert all("forked" in message for message in messages)
    assert gen.generate("x", cache=kept, max_new_tokens=1).usage.cached_prompt_tokens == length


def test_hasattr_is_false_for_what_an_object_cannot_have(gen, tmp_path):
    for file in (Path(rsgen.__file__).parent / "models/story-3m").iterdir():
        if "token" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    bare = rsgen.Generator(tmp_path, num_threads=1)
    embedded = gen.generate(inputs_embeds=np.zeros((1, 3, gen.config["hidden_size"]), "f4"), max_new_tokens=2)
    without = [
        (embedded, {"cache", "caches"}),
        (pickle.loads(pickle.dumps(embedded)), {"cache", "caches"}),
        (bare, {"tokenizer"}),
        (bare.generate([5, 6], max_new_tokens=2), set()),
        (bare.stream([5, 6]), set()),
    ]
    for value, missing in without:
        assert {name for name in dir(value) if not hasattr(value, name)} == missing
        for name in missing:
            assert getattr(value, name, None) is None
            with pytest.raises(rsgen.InputError):
                getattr(value, name)
