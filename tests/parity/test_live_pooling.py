"""Compares the vectors of texts with the hidden states of the installed transformers, pooled with the mask as its users do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
from encoder_decoder_requests import CONFIGS, VOCAB, WORDS  # noqa: E402
from parity_settings import BASE_SEED  # noqa: E402
from test_live_encoder_decoder import DTYPE, shapes_of  # noqa: E402
from test_live_every_family import GOLDENS, drawn_models  # noqa: E402
from tiny_encoder_decoder import write_folder  # noqa: E402


def pooled(states: Any, mask: Any, pooling: str) -> Any:
    """The vectors of rows, of which the mask names the tokens; they begin at the first column."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return states[torch.arange(len(states)), mask.sum(1) - 1]
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def check(generator: rsgen.Generator, encode: Any, words: range, rng: random.Random) -> None:
    """Compares drawn texts at each layer; `encode` gives transformers' hidden states of padded rows."""
    texts = [rng.choices(words, k=rng.randint(1, 40)) for _ in range(6)]
    width = max(map(len, texts))
    ids = torch.tensor([text + [words[0]] * (width - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    with torch.no_grad():
        hidden_states = encode(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
    for layer in (0, 1, len(hidden_states) - 1, -1, -2):
        for pooling in ("mean", "last", "cls"):
            expected = pooled(hidden_states[layer].float(), mask, pooling)
            plain = generator.embed(texts, pooling=pooling, layer=layer, normalize=False)
            np.testing.assert_allclose(plain, expected.numpy(), rtol=1e-4, atol=1e-4)
            vectors = generator.embed(texts, pooling=pooling, layer=layer)
            expected = torch.nn.functional.normalize(expected, dim=-1)
            np.testing.assert_allclose(vectors, expected.numpy(), atol=2e-5)


@pytest.mark.parametrize("family", sorted(GOLDENS))
def test_vectors_of_a_decoder_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    models = drawn_models(family, BASE_SEED, tmp_path)
    model = models.reference.model
    words = range(3, min(models.config["vocab_size"], 60))
    check(models.generator, model, words, random.Random(family))


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_vectors_of_an_encoder_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    config, fields = CONFIGS[family]
    saved, shapes = shapes_of(config)
    write_folder(tmp_path, saved, shapes, **fields)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, **DTYPE).eval()
    generator = rsgen.Generator(tmp_path, num_threads=1)
    check(generator, model.get_encoder(), range(WORDS, VOCAB - 2), random.Random(family))
