"""Compares `None` in a call, which switches a field of the model's file off, with the installed transformers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402

if transformers.__version__ < "5":
    pytest.skip("a None in a call was left to the model's file before 5", allow_module_level=True)

PROMPT = [3, 5, 7]
FILE: dict[str, Any] = {
    "eos_token_id": list(range(0, 64, 4)),
    "pad_token_id": 1,
    "do_sample": True,
    "top_k": 2,
    "top_p": 0.5,
    "temperature": 0.3,
    "repetition_penalty": 3.0,
    "max_new_tokens": 9,
    "min_new_tokens": 3,
    "suppress_tokens": [4],
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    folder = tmp_path_factory.mktemp("none")
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config = transformers.GenerationConfig(**FILE)
    model.save_pretrained(folder)
    return model, rsgen.Generator(folder, num_threads=1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fields", [{}, {"num_beams": 2}, {"num_beams": 2, "do_sample": False}], ids=str)
@pytest.mark.parametrize(
    "name", [*FILE, "typical_p", "no_repeat_ngram_size", "min_length", "renormalize_logits"]
)
def test_none_switches_a_field_off_as_in_transformers(models, name, fields):
    model, generator = models
    call = {"max_new_tokens": 9, **fields, name: None}
    if name == "max_new_tokens":
        call["max_length"] = 9
    for seed in range(4):
        torch.manual_seed(seed)
        ids = torch.tensor([PROMPT])
        expected = model.generate(ids, attention_mask=torch.ones_like(ids), **call)[0, len(PROMPT) :].tolist()
        assert generator.generate(PROMPT, **call, seed=seed).token_ids[0].tolist() == expected
