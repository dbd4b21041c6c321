"""Embeddings in place of tokens: `inputs_embeds` and `embed`, against goldens of transformers and as users meet them."""

import json
from pathlib import Path

import numpy as np
import pytest
import rsgen

ROOT = Path(__file__).parents[1]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "layers.json").read_text())
LIMIT = {"max_new_tokens": 8}


def disturbed(embeddings):
    """As `tools/golden/layer_goldens.py` makes them."""
    shape = embeddings.shape
    wave = np.sin(0.37 * np.arange(shape[-2] * shape[-1], dtype=np.float64)).reshape(shape[-2:])
    return (embeddings.astype(np.float64) * (1 + 0.25 * wave)).astype(np.float32)


@pytest.fixture(scope="module")
def small():
    return rsgen.Generator(ROOT / GOLDEN["folder"], generation_config="ignore")


@pytest.mark.filterwarnings("ignore:.*sees the new tokens alone")
@pytest.mark.parametrize("case", GOLDEN["embedded"], ids=lambda case: case["name"])
def test_embeddings_give_the_tokens_of_transformers(small, case):
    ids = np.array(case["input_ids"])
    given = {"input_ids": ids} if case["with_ids"] else {}
    fields = {"pad_token_id": 0, "seed": 7, **case["config"]}
    embeds, mask = disturbed(small.embed(ids)), (ids != 0).astype(int)
    out = small.generate(inputs_embeds=embeds, attention_mask=mask, **given, **fields)
    np.testing.assert_array_equal(out.sequences, case["sequences"])


def test_the_embeddings_of_tokens_have_the_shape_of_the_ids(gen):
    hidden = gen.config["hidden_size"]
    ids = gen.tokenizer.encode("Once upon a time")
    one = gen.embed(ids)
    assert (one.shape, one.dtype) == ((len(ids), hidden), np.float32)
    np.testing.assert_array_equal(gen.embed("Once upon a time"), one)
    np.testing.assert_array_equal(gen.embed(np.array([ids, ids])), [one, one])
    many = gen.embed([ids, ids[:2]])
    assert [each.shape for each in many] == [(len(ids), hidden), (2, hidden)]
    np.testing.assert_array_equal(
        gen.embed([ids[0]])[0], gen.forward(ids, output_hidden_states=True).hidden_states[0][0, 0]
    )
    with pytest.raises(rsgen.InputError, match="vocabulary"):
        gen.embed([10**6])


def test_every_way_to_give_them_gives_the_same(gen):
    ids = gen.tokenizer.encode("Once upon a time")
    expected, embeds = gen.generate(ids, **LIMIT), gen.embed(ids)
    alone = gen.generate(inputs_embeds=embeds, **LIMIT)
    assert alone.text == expected.text
    assert alone.sequences.tolist() == [expected.token_ids[0].tolist()]
    assert alone.usage == expected.usage
    for given in ({"input_ids": ids}, {"inputs": [ids]}, {"prompt": gen.tokenizer("Once upon a time")}):
        both = gen.generate(inputs_embeds=embeds[None], **given, **LIMIT)
        np.testing.assert_array_equal(both.sequences, expected.sequences)
    for same in (embeds.astype(np.float64), embeds.tolist(), [embeds], (embeds,)):
        assert gen.generate(inputs_embeds=same, **LIMIT).text == expected.text
    assert "".join(token.text for token in gen.stream(inputs_embeds=embeds, **LIMIT)) == expected.text
    assert gen.beam_search(inputs_embeds=embeds, **LIMIT) is not None
    assert gen.generate(ids, inputs_embeds=None, **LIMIT).text == expected.text


def test_a_list_holds_independent_prompts(gen):
    texts = ["Once upon a time", "One day, a little fox"]
    expected = gen.generate(texts, num_beams=2, **LIMIT)
    embeds = gen.embed([gen.tokenizer.encode(text) for text in texts])
    out = gen.generate(inputs_embeds=embeds, num_beams=2, **LIMIT)
    assert out.texts == expected.texts
    ids = [gen.tokenizer.encode(text) for text in texts]
    both = gen.generate(ids, inputs_embeds=embeds, num_beams=2, **LIMIT)
    np.testing.assert_array_equal(both.sequences, expected.sequences)


def test_tensors_with_a_gradient_are_taken(gen):
    class Tensor:
        """Behaves as torch's does."""

        def __init__(self, array, has_gradient=True):
            self.array, self.has_gradient = array, has_gradient

        ndim = property(lambda self: self.array.ndim)

        def detach(self):
            return Tensor(self.array, has_gradient=False)

        def float(self):
            return Tensor(self.array.astype(np.float32), self.has_gradient)

        def __array__(self, dtype=None, copy=None):
            if self.has_gradient:
                raise RuntimeError("Can't call numpy() on Tensor that requires grad")
            return self.array

    embeds = gen.embed("Once upon a time")
    expected = gen.generate("Once upon a time", **LIMIT).text
    assert gen.generate(inputs_embeds=Tensor(embeds), **LIMIT).text == expected
    assert gen.generate(inputs_embeds=[Tensor(embeds)], **LIMIT).text == expected


def test_what_cannot_be_computed_is_named(gen):
    hidden = gen.config["hidden_size"]
    embeds = np.zeros((3, hidden), np.float32)

    def refused(kind, message, embeds=embeds, **given):
        with pytest.raises(kind, match=message):
            gen.generate(inputs_embeds=embeds, **LIMIT, **given)

    bad = embeds.copy()
    bad[1, 4] = np.nan
    refused(rsgen.InputError, "number 4 of the embedding at position 1 is NaN", bad)
    bad[1, 4] = np.inf
    refused(rsgen.InputError, "prompt 1: .*position 1 is inf", np.stack([embeds, bad]))
    refused(rsgen.InputError, "is inf", np.full((1, hidden), 1e300))
    refused(rsgen.InputError, f"embeddings of {hidden} numbers, the size of the model's", embeds[:, 1:])
    refused(rsgen.InputError, "at least one embedding", embeds[:0])
    refused(rsgen.InputError, "got 4 dimensions", embeds[None, None])
    refused(rsgen.InputError, "got 1 dimensions", embeds[0])
    refused(TypeError, "must be an array of floats.*gen.embed", embeds.astype(int))
    refused(TypeError, "must be an array of floats", "Once")
    refused(rsgen.InputError, r"the shape of the embeddings, \[1, 3\]", attention_mask=[1, 1])
    refused(rsgen.InputError, "all padding", attention_mask=[0, 0, 0])
    refused(rsgen.InputError, "a row for each of their 1 prompts", input_ids=[[1], [2]])
    refused(TypeError, "got a text; encode it", input_ids="Once")
    refused(TypeError, "the ids were given twice", input_ids=[1, 2, 3], inputs=[1, 2, 3])
    refused(rsgen.InputError, "for each of its 2 prompts, got 1", [embeds, embeds], input_ids=[[1, 2, 3]])
    refused(rsgen.InputError, "prompts of a list have no padding", [embeds], attention_mask=[[1, 1, 1]])
    refused(rsgen.InputError, "prompt 1 of the list", [embeds, np.stack([embeds, embeds])])
    with pytest.raises(rsgen.ConfigError, match="must be more than its 3 tokens"):
        gen.generate(inputs_embeds=embeds, max_length=3)
    with pytest.raises(rsgen.ConfigError, match="give the `input_ids`"):
        gen.assisted_decoding(inputs_embeds=embeds, assistant_model=gen, **LIMIT)
    with pytest.raises(rsgen.ConfigError, match="an argument of the call, not a field"):
        rsgen.GenerationConfig(inputs_embeds=embeds.tolist())
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        gen.chat([{"role": "user", "content": "Hi"}], inputs_embed=embeds)


def test_fields_that_look_at_the_prompt_say_that_they_see_none(gen):
    embeds = gen.embed("Once upon a time")
    with pytest.warns(UserWarning, match="`repetition_penalty` sees the new tokens alone"):
        gen.generate(inputs_embeds=embeds, repetition_penalty=1.2, **LIMIT)
    ids = gen.tokenizer.encode("Once upon a time")
    with pytest.warns(UserWarning, match="`encoder_repetition_penalty` has no effect with `inputs_embeds`"):
        gen.generate(ids, inputs_embeds=embeds, encoder_repetition_penalty=1.2, **LIMIT)
