"""Fresh weighted lists of LoRA adapters: the logits are those of PEFT's sum, and of the sum of the weighted products."""

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
from tiny_models import draw_model  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

#: PEFT asks transformers under the older name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")

SEEDS = range(BASE_SEED, BASE_SEED + max(1, CASES // 5))
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "phi3"]


def draw_adapter(base, rng, folder, rslora):
    """Writes a random adapter for some of the model's maps, with ranks and alphas of its own."""
    model = AutoModelForCausalLM.from_pretrained(base)
    kinds = (torch.nn.Linear, peft.tuners.lora.layer.Conv1D)
    linear = sorted(
        {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if isinstance(module, kinds)}
        - {"lm_head", "embed_out"}
    )
    targets = rng.sample(linear, rng.randint(1, len(linear)))
    config = peft.LoraConfig(
        r=rng.choice([1, 2, 3, 8, 17]),
        lora_alpha=rng.choice([1, 5, 16]),
        use_rslora=rslora,
        rank_pattern={targets[0]: rng.randint(1, 9)} if rng.random() < 0.5 else {},
        alpha_pattern={targets[-1]: rng.randint(1, 9)} if rng.random() < 0.5 else {},
        target_modules=targets,
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    peft.get_peft_model(model, config).save_pretrained(folder)


def loaded(base, folders):
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    model = peft.PeftModel.from_pretrained(model, folders[0], adapter_name="0")
    for name, folder in enumerate(folders[1:], 1):
        model.load_adapter(folder, adapter_name=str(name))
    return model


def sum_of_products(base, folders, weights):
    """The model with the sum of the weighted products in its weights, whatever PEFT's own sum is."""
    model = loaded(base, folders)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                for name, weight in enumerate(weights):
                    if str(name) in module.lora_A:
                        delta = module.get_delta_weight(str(name))
                        module.get_base_layer().weight += weight * delta
    return model.unload()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rslora", [False, True])
def test_weighted_lists_are_the_sums_of_peft(family, seed, rslora, tmp_path):
    rng = random.Random(f"{family} {seed} {rslora}")
    torch.manual_seed(seed)
    draw_model(seed, family)[1].to(torch.float32).save_pretrained(tmp_path / "base")
    base, count = tmp_path / "base", rng.randint(1, 4)
    folders = [tmp_path / f"adapter {number}" for number in range(count)]
    for number, folder in enumerate(folders):
        draw_adapter(base, rng, folder, rslora and number % 2 == 0)
    weights = [rng.choice([1.0, 0.7, 0.3, -0.5, 0.0, 1.5]) for _ in folders]
    gen = rsgen.Generator(base, num_threads=2)
    for number, folder in enumerate(folders):
        gen.load_adapter(folder, name=str(number))
    weighted = [(str(number), weight) for number, weight in enumerate(weights)]
    rng.shuffle(weighted)

    ids = [rng.randrange(3, 30) for _ in range(20)]
    found = gen.forward([ids], adapter=weighted)[0]
    models = [sum_of_products(base, folders, weights)]
    if not rslora:
        # PEFT scales the sum by the root of all ranks where the first adapter has `use_rslora`.
        of_peft = loaded(base, folders)
        of_peft.add_weighted_adapter([str(n) for n in range(count)], weights, "sum", combination_type="cat")
        of_peft.set_adapter("sum")
        models.append(of_peft.merge_and_unload())
    for model in models:
        with torch.no_grad():
            expected = model(torch.tensor([ids])).logits[0].numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=2e-5)
