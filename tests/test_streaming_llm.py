"""Attention sinks on the story model: a stream of ten contexts keeps its loss, at constant memory."""

from __future__ import annotations

import numpy as np
import pytest
import rsgen

CONTEXT = 512
CONTEXTS = 10
#: How much the loss per token may be above that of texts inside the context.
ALLOWED = 1.10
PROMPTS = ["Once upon a time", "One day", "There was a", "Tom had a", "Lily saw a"]


@pytest.fixture(scope="module")
def stories(gen):
    """Stories, each a text of its own, inside the context: as many tokens as ten contexts hold."""
    found = []
    seed = 0
    while sum(map(len, found)) < CONTEXTS * CONTEXT:
        out = gen.sample(PROMPTS, seed=seed, max_new_tokens=400)
        prompts = [gen.tokenizer.encode(text) for text in PROMPTS]
        found += [[*prompt, *ids] for prompt, ids in zip(prompts, out.token_ids, strict=True)]
        seed += len(PROMPTS)
    return found


def loss_of_stream(gen, text, **fields):
    """The loss of each token of a text that is streamed, each given those in the cache."""
    out = gen.generate(
        text[:1],
        prefix_allowed_tokens_fn=lambda _, ids: [text[len(ids)]],
        max_new_tokens=len(text) - 1,
        eos_token_id=[],
        **fields,
    )
    assert out.token_ids[0].tolist() == text[1:]
    return -out.logprobs[0]


@pytest.mark.parametrize("window", [CONTEXT, CONTEXT // 2])
def test_a_stream_of_ten_contexts_keeps_its_loss_per_token(gen, stories, window, record_property):
    inside = -np.concatenate([scores[1:] for scores in gen.score(stories)])
    text = [int(token) for story in stories for token in story]
    assert len(text) >= CONTEXTS * CONTEXT
    losses = loss_of_stream(gen, text, attention_sinks=4, window=window)
    # Not the first token of a story, which no text predicts.
    begins = np.cumsum([len(story) for story in stories])[:-1] - 1
    within = np.delete(losses, begins)
    record_property("inside the context", float(inside.mean()))
    record_property("stream", float(within.mean()))
    print(
        f"window {window}: {within.mean():.4f} nats a token in a stream, {inside.mean():.4f} inside the context"
    )
    assert within.mean() <= ALLOWED * inside.mean()
    # Nor does it grow from context to context.
    of_contexts = [part.mean() for part in np.array_split(losses, CONTEXTS)]
    assert np.mean(of_contexts[-3:]) <= ALLOWED * np.mean(of_contexts[:3])


def test_its_own_text_stays_as_likely_and_takes_the_same_blocks(gen):
    inside = gen.sample(PROMPTS, seed=1, max_new_tokens=CONTEXT - 10, eos_token_id=[])
    expected = -np.concatenate(inside.logprobs).mean()
    losses, used = [], set()
    fields = {"do_sample": True, "seed": 1, "attention_sinks": 4, "window": CONTEXT, "eos_token_id": []}
    for token in gen.stream(PROMPTS[0], max_new_tokens=CONTEXTS * CONTEXT, **fields):
        losses.append(-token.logprob)
        stats = gen.stats()
        used.add(stats.blocks_used + stats.blocks_reserved)
    assert len(losses) == CONTEXTS * CONTEXT
    print(f"{np.mean(losses):.4f} nats a token in a stream of its own, {expected:.4f} inside the context")
    assert np.mean(losses) <= ALLOWED * expected
    assert np.mean(losses[-2 * CONTEXT :]) <= ALLOWED * expected
    assert used <= {CONTEXT // 32, 0}, "the same blocks throughout"


def test_without_sinks_of_its_own_it_ends_at_the_context(gen):
    with pytest.warns(UserWarning, match="context"):
        out = gen.generate(PROMPTS[0], max_new_tokens=CONTEXT * 2, eos_token_id=[])
    assert out.sequences.shape[1] == CONTEXT
    out = gen.generate(PROMPTS[0], max_new_tokens=CONTEXT * 2, eos_token_id=[], attention_sinks=4)
    assert len(out.token_ids[0]) == CONTEXT * 2


def test_beams_and_several_rows_go_on_past_the_context(gen):
    fields = {"max_new_tokens": 300, "eos_token_id": [], "attention_sinks": 4, "window": 64}
    beams = gen.beam_search(PROMPTS[:2], num_beams=3, **fields)
    for index in range(2):
        alone = gen.beam_search(PROMPTS[index], num_beams=3, **fields)
        assert alone.token_ids[0].tolist() == beams.token_ids[index].tolist()
    rows = gen.sample(PROMPTS[0], num_return_sequences=3, seed=2, **fields)
    assert [len(ids) for ids in rows.token_ids] == [300] * 3
    assert rows.texts[0] != rows.texts[1]


def test_mistakes_are_named(gen):
    with pytest.raises(rsgen.ConfigError, match=r"`window` must be at most the 512 tokens"):
        gen.generate("x", window=513, max_new_tokens=1)
    with pytest.raises(rsgen.ConfigError, match="`window` must be 2 or more above `attention_sinks`"):
        gen.generate("x", window=4, attention_sinks=4, max_new_tokens=1)
    with pytest.raises(rsgen.ConfigError, match="must be unset in dola"):
        gen.dola("x", attention_sinks=4, max_new_tokens=1)
    with pytest.raises(rsgen.ConfigError, match="`return_cache`"):
        gen.generate("x", attention_sinks=4, max_new_tokens=1, return_cache=True)
    with pytest.raises(rsgen.ConfigError, match="`attention_sinks` must be"):
        gen.generate("x", attention_sinks=-1, max_new_tokens=1)
