"""What rsgen makes of transformers' known slips: docs/parity.md names these tests."""

import numpy as np
import pytest
import rsgen
from rsgen.constraints import PhrasalConstraint

PROMPT = "Once upon a time"


def ending(gen):
    """A token that the best beam reaches after a few steps, to end texts with."""
    return int(gen.beam_search(PROMPT, num_beams=4, max_new_tokens=9).token_ids[0][4])


def test_rows_are_filled_with_a_pad_token_of_0_too(gen):
    eos = ending(gen)
    fields = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 9, "eos_token_id": eos}
    for pad in (0, 7):
        out = gen.beam_search(PROMPT, pad_token_id=pad, **fields)
        width = max(len(ids) for ids in out.token_ids)
        assert min(len(ids) for ids in out.token_ids) < width
        for row, ids in zip(out.sequences[:, -width:], out.token_ids, strict=True):
            assert row.tolist() == ids.tolist() + [pad] * (width - len(ids))


def test_scores_of_constrained_beams_are_log_probabilities(gen):
    out = gen.constrained_beam_search(
        PROMPT, force_words_ids=[[300, 301]], num_beams=3, max_new_tokens=6, output_scores=True
    )
    for step in out.scores:
        assert step.shape == (3, 2048)
        np.testing.assert_allclose(np.exp(step.astype(np.float64)).sum(axis=-1), 1, rtol=1e-4)


def test_the_token_that_ended_a_row_is_shown_and_in_4_49_the_first_that_could(gen):
    eos = ending(gen)
    fields = {"num_beams": 4, "max_new_tokens": 9, "eos_token_id": [3, eos], "length_penalty": -0.5}
    assert gen.beam_search(PROMPT, **fields).token_ids[0][-1] == eos
    old = gen.beam_search(PROMPT, compat="4.49", **fields)
    assert (old.finish_reasons, old.token_ids[0][-1]) == (["eos"], 3)


@pytest.mark.parametrize("compat", [None, "4.49"])
def test_beam_indices_are_as_wide_as_the_longest_continuation(gen, compat):
    out = gen.beam_search(
        PROMPT, num_beams=4, num_return_sequences=4, max_new_tokens=9, eos_token_id=ending(gen), compat=compat
    )
    assert out.beam_indices.dtype == np.int32
    assert out.beam_indices.shape == (4, max(len(ids) for ids in out.token_ids))
    for row, ids in zip(out.beam_indices, out.token_ids, strict=True):
        assert ((row >= 0) & (row < 4)).tolist() == [True] * len(ids) + [False] * (len(row) - len(ids))


def test_what_the_prompt_holds_need_not_come_again(gen):
    prompt = gen.tokenizer.encode(PROMPT)
    fields = {"num_beams": 4, "max_new_tokens": 8}
    out = gen.generate(PROMPT, constraints=PhrasalConstraint(prompt[-2:]), **fields)
    continuation = out.token_ids[0].tolist()
    assert all(continuation[place : place + 2] != prompt[-2:] for place in range(8))
    other = gen.generate(PROMPT, constraints=PhrasalConstraint(prompt[-2:][::-1]), **fields)
    assert other.token_ids[0].tolist() != continuation


def both_rows_alone_and_together(gen, name, **fields):
    """The rows of a batch, and each prompt of it alone."""
    prompts = [
        gen.tokenizer.encode(text, add_special_tokens=False)
        for text in ("Once upon a time", "Tom and the cat")
    ]
    width = min(len(ids) for ids in prompts)
    prompts = [ids[-width:] for ids in prompts]
    together = getattr(gen, name)(np.array(prompts), max_new_tokens=8, **fields)
    alone = [getattr(gen, name)(np.array(ids), max_new_tokens=8, **fields) for ids in prompts]
    return [ids.tolist() for ids in together.token_ids], [out.token_ids[0].tolist() for out in alone]


def test_each_row_of_dola_has_its_own_layer(gen):
    together, alone = both_rows_alone_and_together(gen, "dola", dola_layers="low")
    assert together == alone


@pytest.mark.parametrize("low_memory", [True, False])
def test_contrastive_search_takes_batches_with_low_memory_too(gen, low_memory):
    together, alone = both_rows_alone_and_together(gen, "contrastive_search", low_memory=low_memory)
    assert together == alone


def test_processors_are_given_the_place_of_the_row_where_several_are_drawn(gen):
    seen = set()

    def allowed(batch_id, input_ids):
        seen.add(batch_id)
        return range(gen.config["vocab_size"])

    for compat, places in ((None, {0}), ("5.23", {0, 1, 2}), ("4.49", {0, 1, 2})):
        call = {"max_new_tokens": 2, "prefix_allowed_tokens_fn": allowed, "compat": compat}
        gen.sample(PROMPT, num_return_sequences=3, seed=1, **call)
        assert seen == places
        seen.clear()
        gen.beam_search(PROMPT, num_beams=3, **call)
        assert seen == {0}
        seen.clear()


def test_prompt_lookup_stays_within_max_length(gen):
    ids = gen.tokenizer.encode("red kite red kite red kite red")
    for room in range(1, 6):
        out = gen.prompt_lookup(ids, max_length=len(ids) + room, prompt_lookup_num_tokens=8)
        assert out.usage.generated_tokens <= room


@pytest.mark.parametrize("field", ["speculation_type", "use_mtp"])
def test_what_is_not_in_this_version_is_refused(gen, field):
    with pytest.raises(rsgen.ConfigError, match=f"`{field}` is "):
        gen.generate(PROMPT, max_new_tokens=1, **{field: 3})
