"""Vectors of texts: `embed` with `pooling`, against the hidden states that they are made of."""

import json
from pathlib import Path

import numpy as np
import pytest
import rsgen
from tiny_encoder_decoder import write_folder

TEXTS = ["Once upon a time", "Tom", "The dog ran to the park and saw a big red ball.", "Tom"]


@pytest.fixture(scope="module", params=["t5", "bart"])
def folder(request, tmp_path_factory):
    """The folder of a golden's model."""
    made = json.loads(
        (Path(__file__).parent / f"golden/encoder_decoder_requests/{request.param}.json").read_text()
    )
    folder = tmp_path_factory.mktemp(request.param)
    write_folder(folder, made["config"], made["tensors"], **made["generation_config"])
    return folder


def pooled(states, pooling):
    return {"mean": states.astype(np.float64).mean(0), "last": states[-1], "cls": states[0]}[pooling]


def unit(vector):
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
@pytest.mark.parametrize("layer", [-1, 0, 3, 6, -7])
def test_the_vector_of_a_text_is_made_of_the_hidden_states_of_a_layer(gen, pooling, layer):
    vectors = gen.embed(TEXTS, pooling=pooling, layer=layer)
    plain = gen.embed(TEXTS, pooling=pooling, layer=layer, normalize=False)
    assert (vectors.shape, vectors.dtype) == ((4, gen.config["hidden_size"]), np.float32)
    for text, vector, own in zip(TEXTS, vectors, plain, strict=True):
        states = gen.forward(gen.tokenizer.encode(text), output_hidden_states=True).hidden_states[layer][0]
        np.testing.assert_allclose(own, pooled(states, pooling), rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(vector, unit(pooled(states, pooling)), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
def test_a_vector_depends_on_its_own_text_alone(gen, pooling):
    long = " ".join(TEXTS) * 20
    texts = [*TEXTS, long, TEXTS[2] + " Tom was happy.", TEXTS[2] + " Tom was sad."]
    vectors = gen.embed(texts * 3, pooling=pooling)
    for index, text in enumerate(texts * 3):
        np.testing.assert_array_equal(vectors[index], gen.embed(text, pooling=pooling))
    for text in texts:
        ids = gen.tokenizer.encode(text)
        np.testing.assert_array_equal(gen.embed(ids, pooling=pooling), gen.embed(text, pooling=pooling))
    ids = gen.tokenizer.encode(TEXTS[0])
    both = gen.embed(np.array([ids, ids]), pooling=pooling)
    np.testing.assert_array_equal(both, [vectors[0], vectors[0]])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_with_an_encoder_gives_the_states_of_the_encoder(folder, threads):
    gen = rsgen.Generator(folder, num_threads=threads)
    sources = [[5, 9, 3], [8], list(range(3, 20)), [8]]
    for layer in (-1, 0, 1):
        for pooling in ("mean", "last", "cls"):
            vectors = gen.embed(sources, pooling=pooling, layer=layer, normalize=False)
            for source, vector in zip(sources, vectors, strict=True):
                out = gen.generate(
                    source, max_new_tokens=1, output_hidden_states=True, return_dict_in_generate=True
                )
                states = out.encoder_hidden_states[layer][0]
                np.testing.assert_allclose(vector, pooled(states, pooling), rtol=1e-6, atol=1e-7)
                np.testing.assert_array_equal(
                    vector, gen.embed(source, pooling=pooling, layer=layer, normalize=False)
                )
    assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pooling": "max"}, '`pooling` must be "mean", "last" or "cls", got "max"'),
        (
            {"pooling": "mean", "layer": 7},
            "`layer` must be from -7 to 6, because the model has 6 layers, but is 7",
        ),
        ({"pooling": "mean", "layer": -8}, "`layer` must be from -7 to 6"),
        ({"layer": 1}, "`layer` is for the vector of a text; set `pooling` as well"),
        ({"normalize": False}, "`normalize` is for the vector of a text"),
    ],
)
def test_a_wrong_field_is_named(gen, fields, message):
    with pytest.raises(rsgen.ConfigError) as raised:
        gen.embed("Tom", **fields)
    assert message in str(raised.value)


def test_a_text_beyond_the_context_is_named(gen):
    with pytest.raises(rsgen.InputError, match="text 1: the text must fit the model's context of 512 tokens"):
        gen.embed([[5], [5] * 513], pooling="last")
    # The tokens behind the first are not computed.
    assert gen.embed([5] * 512, pooling="cls").tolist() == gen.embed([5], pooling="cls").tolist()
