"""Prefix caching: what was computed for the beginning of a prompt is shared, and counted."""

from __future__ import annotations

import pickle

import rsgen

PROMPT = "Once upon a time there was a little fox who lived in a small house by the sea."


def test_a_prompt_is_computed_once_and_the_output_is_the_same():
    gen = rsgen.Generator(num_threads=1)
    first, second = (gen.generate(PROMPT, max_new_tokens=5) for _ in range(2))
    assert first == second
    assert first.usage.cached_prompt_tokens == 0
    assert second.usage.cached_prompt_tokens == second.usage.prompt_tokens - 1
    assert first.usage == second.usage, "as with timings, what was cached does not count"
    again = pickle.loads(pickle.dumps(second.usage))
    assert again.cached_prompt_tokens == second.usage.cached_prompt_tokens
    assert "cached_prompt_tokens=" in repr(again)

    stats = gen.stats()
    assert stats.prefix_cache_hits == second.usage.cached_prompt_tokens
    assert stats.prefix_cache_queries == 2 * stats.prefix_cache_hits
    assert pickle.loads(pickle.dumps(stats)) == stats


def test_it_can_be_switched_off():
    gen = rsgen.Generator(num_threads=1, prefix_caching=False)
    for _ in range(2):
        assert gen.generate(PROMPT, max_new_tokens=1).usage.cached_prompt_tokens == 0
    assert gen.stats().prefix_cache_queries == 0
    again = pickle.loads(pickle.dumps(gen))
    assert again.__reduce__()[1:] == gen.__reduce__()[1:]
    assert again.generate(PROMPT, max_new_tokens=1).usage.cached_prompt_tokens == 0
