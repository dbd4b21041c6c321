"""Hidden states and attention weights: `output_hidden_states`, `output_attentions`, in `generate` and `forward`."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import rsgen

ROOT = Path(__file__).parents[1]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "layers.json").read_text())
PROMPT = "Once upon a time"
BOTH = {"output_hidden_states": True, "output_attentions": True}
SEARCHES = {
    "greedy_search": {},
    "sample": {"seed": 3, "num_return_sequences": 2},
    "beam_search": {"num_beams": 3, "num_return_sequences": 2},
    "group_beam_search": {"num_beams": 4, "num_return_sequences": 2},
    "contrastive_search": {},
    "dola": {},
    "prompt_lookup": {},
    "assisted_decoding": {"assistant_early_exit": 3, "num_assistant_tokens": 3},
}


@pytest.mark.parametrize("case", GOLDEN["states"], ids=lambda case: case["name"])
def test_states_are_those_of_transformers(gen, case):
    ids = np.array(case["input_ids"])
    mask = (ids != 0).astype(int)
    out = gen.generate(ids, attention_mask=mask, pad_token_id=0, eos_token_id=[], **BOTH, **case["config"])
    np.testing.assert_array_equal(out.sequences, case["sequences"])
    padding = np.repeat(mask == 0, len(out.hidden_states[0][0]) // len(ids), axis=0)
    for kind in ("hidden_states", "attentions"):
        steps = getattr(out, kind)
        assert len(steps) == len(case[kind])
        for step, (layers, expected) in enumerate(zip(steps, case[kind], strict=True)):
            for got, wanted in zip(layers, expected, strict=True):
                wanted = np.array(wanted)
                assert (got.shape, got.dtype) == (wanted.shape, np.float32)
                # Of padding transformers has numbers that nothing depends on.
                unknown = np.isnan(got)
                if step == 0:
                    places = padding[..., None] if kind == "hidden_states" else padding[:, None, :, None]
                    assert (unknown == np.broadcast_to(places, got.shape)).all()
                else:
                    assert not unknown.any()
                np.testing.assert_allclose(got[~unknown], wanted[~unknown], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("name", SEARCHES)
def test_states_of_every_search_are_those_of_its_text(gen, name):
    out = getattr(gen, name)(PROMPT, max_new_tokens=6, **BOTH, **SEARCHES[name])
    ids = gen.tokenizer.encode(PROMPT)
    layers = gen.config["num_hidden_layers"]
    heads, hidden = gen.config["num_attention_heads"], gen.config["hidden_size"]
    lanes = out.beam_indices
    for row in range(len(out)):
        tokens = out.token_ids[row].tolist()
        whole = gen.forward([*ids, *tokens], **BOTH)
        count = len(tokens) if lanes is None else int((lanes[row] >= 0).sum())
        for step in range(count):
            lane = row if lanes is None else lanes[row, step]
            first, end = (0, len(ids)) if step == 0 else (len(ids) + step - 1, len(ids) + step)
            assert len(out.hidden_states[step]) == layers + 1
            assert len(out.attentions[step]) == layers
            for got, expected in zip(out.hidden_states[step], whole.hidden_states, strict=True):
                assert got.shape[1:] == (end - first, hidden)
                np.testing.assert_array_equal(got[lane], expected[0, first:end])
            for got, expected in zip(out.attentions[step], whole.attentions, strict=True):
                assert got.shape[1:] == (heads, end - first, end)
                np.testing.assert_array_equal(got[lane], expected[0, :, first:end, :end])


def test_the_last_state_gives_the_logits_and_the_first_is_the_embedding(gen):
    ids = gen.tokenizer.encode(PROMPT)
    out = gen.forward([ids, ids[::-1]], output_hidden_states=True)
    assert out.attentions is None
    np.testing.assert_array_equal(out.logits, gen.forward([ids, ids[::-1]]))
    np.testing.assert_array_equal(out.hidden_states[0][0], gen.embed(ids))
    # The head of the story model is its embedding.
    vocabulary = gen.embed(list(range(gen.config["vocab_size"])))
    np.testing.assert_allclose(out.hidden_states[-1] @ vocabulary.T, out.logits, atol=1e-3)
    weights = gen.forward(ids, output_attentions=True).attentions
    np.testing.assert_allclose(np.array(weights).sum(-1), 1, atol=1e-5)
    assert (np.triu(np.array(weights), 1) == 0).all()
    assert "attentions 6 arrays" in repr(gen.forward(ids, output_attentions=True))


def test_lists_are_padded_on_the_left_and_ended_rows_hold_nan(gen):
    texts = [PROMPT, "One day, a little fox went to the"]
    lens = [len(gen.tokenizer.encode(text)) for text in texts]
    end = gen.generate(texts, max_new_tokens=2).token_ids[0][1]
    out = gen.generate(texts, max_new_tokens=6, eos_token_id=int(end), **BOTH)
    assert len(out.token_ids[0]) < len(out.token_ids[1])
    first = out.hidden_states[0][3]
    assert first.shape == (2, max(lens), gen.config["hidden_size"])
    padding = max(lens) - lens[0]
    assert np.isnan(first[0, :padding]).all()
    assert not np.isnan(first[0, padding:]).any()
    alone = gen.generate(texts[0], max_new_tokens=6, eos_token_id=int(end), **BOTH)
    np.testing.assert_array_equal(first[0, padding:], alone.hidden_states[0][3][0])
    for step in range(len(out.token_ids[0])):
        got = out.attentions[step][2][0]
        columns = got[..., padding:] if step else got[:, padding:, padding:]
        np.testing.assert_array_equal(columns, alone.attentions[step][2][0])
        assert (got[:, -1, :padding] == 0).all()
    ended = len(out.token_ids[0])
    assert np.isnan(out.hidden_states[ended][0][0]).all()
    assert np.isnan(out.attentions[ended][0][0]).all()
    assert not np.isnan(out.hidden_states[ended][0][1]).any()


def test_outputs_with_states_pickle_compare_and_become_dicts(gen):
    out = gen.beam_search(PROMPT, num_beams=2, max_new_tokens=3, **BOTH)
    again = pickle.loads(pickle.dumps(out))
    assert again == out
    np.testing.assert_array_equal(again.attentions[1][2], out.attentions[1][2])
    assert out != gen.beam_search(PROMPT, num_beams=2, max_new_tokens=3)
    np.testing.assert_array_equal(out.to_dict()["hidden_states"][0][1], out["hidden_states"][0][1])
    forward = gen.forward([5, 6], **BOTH)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(forward)).attentions[0], forward.attentions[0])
    plain = gen.generate(PROMPT, max_new_tokens=2, output_hidden_states=False, output_attentions=None)
    assert plain.hidden_states is None
    assert plain.attentions is None


def test_states_that_do_not_fit_are_refused_before_the_work_begins(gen):
    with pytest.raises(rsgen.CapacityError, match="leave out `output_hidden_states`, `output_attentions`"):
        gen.sample([5] * 400, max_new_tokens=100, num_return_sequences=60_000, **BOTH)
    with pytest.raises(rsgen.ConfigError, match="`output_attentions` must be"):
        gen.generate(PROMPT, output_attentions="yes")
