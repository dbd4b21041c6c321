"""Fresh LoRA adapters: every weight that rsgen merges has the bits of PEFT's `merge_and_unload`."""

from __future__ import annotations

import random

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip(
    "transformers", reason="live parity needs transformers (pip install transformers==5.24.0)"
)
peft = pytest.importorskip("peft", reason="adapters need PEFT (pip install peft==0.21.2)")

import rsgen  # noqa: E402
from parity_settings import BASE_SEED, CASES  # noqa: E402
from tiny_models import FAMILIES, draw_model  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

SEEDS = range(BASE_SEED, BASE_SEED + max(1, CASES // 5))


def draw_adapter(model, rng, folder):
    """Writes a random adapter for some of the model's modules."""
    linear = sorted(
        {
            name.rsplit(".", 1)[-1]
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear)
        }
        - {"lm_head"}
    )
    targets = rng.sample(linear, rng.randint(1, len(linear)))
    saved = rng.choice([None, ["lm_head"], ["embed_tokens"], ["norm"]])
    for name in ("embed_tokens", "lm_head"):
        if rng.random() < 0.3 and saved is None:
            targets.append(name)
    ranks = {targets[0]: rng.randint(1, 20)} if rng.random() < 0.5 else {}
    alphas = {targets[-1]: rng.randint(1, 40)} if rng.random() < 0.5 else {}
    config = peft.LoraConfig(
        r=rng.choice([1, 2, 3, 4, 8, 16, 33, 64]),
        lora_alpha=rng.choice([1, 5, 16, 20]),
        use_rslora=rng.random() < 0.3,
        rank_pattern=ranks,
        alpha_pattern=alphas,
        target_modules=targets,
        modules_to_save=saved,
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    adapted = peft.get_peft_model(model, config)
    for name, parameter in adapted.named_parameters():
        if "modules_to_save" in name:
            parameter.data += 0.05 * torch.randn_like(parameter)
    adapted.save_pretrained(folder)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_merged_weights_have_the_bits_of_peft(family, seed, tmp_path):
    rng = random.Random(f"{family} {seed}")
    torch.manual_seed(seed)
    dtype = rng.choice([torch.float32, torch.bfloat16, torch.float16])
    draw_model(seed, family)[1].to(dtype).save_pretrained(tmp_path / "base")

    def base():
        return AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype="auto").eval()

    draw_adapter(base(), rng, tmp_path / "adapter")
    merged = peft.PeftModel.from_pretrained(base(), tmp_path / "adapter").merge_and_unload()
    found = rsgen.Generator(tmp_path / "base", adapter=tmp_path / "adapter")
    # The same weights give the same bits, whichever way they come: equal logits for prompts of all tokens.
    expected = rsgen.Generator.from_tensors(merged.config, merged.state_dict())
    context = min(60, merged.config.max_position_embeddings)
    tokens = list(range(merged.config.vocab_size))
    for start in range(0, len(tokens), context):
        ids = tokens[start : start + context]
        np.testing.assert_array_equal(found.forward([ids]), expected.forward([ids]))


@pytest.mark.parametrize("rank", [1, 8, 16, 64, 128])
def test_large_matrices_are_merged_to_the_bit_too(rank, tmp_path):
    """As large as torch computes on several threads and in blocks."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(rank)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=640,
        intermediate_size=1100,
        num_hidden_layers=1,
        num_attention_heads=10,
        num_key_value_heads=5,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    model = LlamaForCausalLM.from_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(r=rank, target_modules="all-linear", init_lora_weights=False)
    )
    adapted.save_pretrained(tmp_path / "adapter")
    model = LlamaForCausalLM.from_pretrained(tmp_path / "base")
    merged = peft.PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload()
    found = rsgen.Generator(tmp_path / "base", adapter=tmp_path / "adapter")
    expected = rsgen.Generator.from_tensors(merged.config, merged.state_dict())
    np.testing.assert_array_equal(found.forward([[1, 2, 3]]), expected.forward([[1, 2, 3]]))
