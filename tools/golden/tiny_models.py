"""Seeded tiny models: random configurations, weights from the seed, folders in every supported form."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from draw_families import draw_family
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

FAMILIES = ("llama", "mistral", "phi3", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def draw_config(seed: int, family: str = "llama", **fixed: Any) -> dict[str, Any]:
    """The fields of a config.json; `fixed` replaces drawn fields, `rope_type` sets the kind of RoPE."""
    rng = random.Random(seed)
    heads, kv_heads = _draw_heads(rng)
    rope_type = fixed.pop("rope_type", None) or rng.choice(ROPE_TYPES)
    rope, max_position_embeddings = draw_rope(rng, rope_type)
    config: dict[str, Any] = {
        "vocab_size": rng.randint(50, 400),
        "hidden_size": heads * 2 * rng.randint(-(-8 // heads), 48 // heads),
        "intermediate_size": rng.randint(16, 160),
        "num_hidden_layers": rng.randint(1, 4),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": rng.choice([None, 6, 8, 16, 20, 32]),
        "max_position_embeddings": max_position_embeddings,
        "initializer_range": round(rng.uniform(0.3, 1.0), 3),
        "rms_norm_eps": rng.choice([1e-6, 1e-5, 1e-3]),
        "attention_bias": rng.random() < 0.4,
        "mlp_bias": rng.random() < 0.4,
        "tie_word_embeddings": rng.random() < 0.5,
        "rope_parameters": rope,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    config = draw_family(random.Random(~seed), family, config | {"model_type": family}, fixed)
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if rope["rope_type"] == "dynamic" and int(dim * rope.get("partial_rotary_factor", 1.0)) == 2:
        # transformers divides by the dimension less 2.
        rope["rope_type"] = "linear"
    return {name: value for name, value in config.items() if name != "head_dim" or value is not None}


def _draw_heads(rng: random.Random) -> tuple[int, int]:
    """Query heads and key-value heads: multi-head, grouped or multi-query attention."""
    heads = rng.choice([1, 2, 3, 4, 6, 8])
    return heads, rng.choice([n for n in range(1, heads + 1) if heads % n == 0])


def draw_rope(rng: random.Random, rope_type: str) -> tuple[dict[str, Any], int]:
    """`rope_parameters` and `max_position_embeddings`, so small that scaling acts within 200 tokens."""
    rope: dict[str, Any] = {
        "rope_type": rope_type,
        "rope_theta": rng.choice([100.0, 1000.0, 10000.0, 500000.0]),
    }
    original = rng.randint(16, 96)
    factor = rng.choice([1.5, 2.0, 4.0, 8.0])
    if rope_type == "default":
        return rope, 1024
    rope["factor"] = factor
    if rope_type == "linear":
        return rope, 1024
    if rope_type == "dynamic":
        return rope, original
    rope["original_max_position_embeddings"] = original
    if rope_type == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": rng.choice([2.0, 4.0])}
    else:
        rope |= _draw_yarn_options(rng)
    # As far as the longest request goes: rsgen stops at the context, transformers does not.
    return rope, 1024


def _draw_yarn_options(rng: random.Random) -> dict[str, Any]:
    """The optional fields of yarn, each present in some draws only."""
    options: dict[str, Any] = {}
    if rng.random() < 0.5:
        options |= {"beta_fast": rng.choice([4.0, 8.0, 16.0]), "beta_slow": rng.choice([0.5, 1.0, 2.0])}
    if rng.random() < 0.3:
        options["attention_factor"] = rng.choice([0.75, 1.0, 1.25])
    elif rng.random() < 0.4:
        options |= {"mscale": 0.707, "mscale_all_dim": rng.choice([0.5, 1.0])}
    if rng.random() < 0.3:
        options["truncate"] = False
    return options


def draw_model(
    seed: int, family: str = "llama", *, plain: bool = False, **fixed: Any
) -> tuple[dict[str, Any], PreTrainedModel]:
    """A configuration and its model in float32, both from `seed` alone."""
    config = draw_config(seed, family, **fixed)
    spread = None if plain else random.Random(~seed).uniform(0.5, 2.0)
    return config, build_model(config, seed, attention_spread=spread)


def build_model(
    config: dict[str, Any], seed: int, *, attention_spread: float | None = None
) -> PreTrainedModel:
    """The model of a configuration; biases and norms, which transformers leaves at 0 and 1, are filled too.

    `attention_spread` is the standard deviation wanted of the attention scores. Left plain, they reach the
    hundreds at an initializer_range near 1, and float32 logits of transformers itself are off by up to 1e-2.
    """
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).float().eval()
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in sorted(model.named_parameters()):
            if name.endswith("bias"):
                tensor.normal_(0.0, config["initializer_range"], generator=noise)
            elif "norm" in name:
                tensor.normal_(1.0, 0.2, generator=noise)
    if attention_spread is not None:
        _spread_attention_scores(model, attention_spread)
    model.generation_config.bos_token_id = config["bos_token_id"]
    model.generation_config.eos_token_id = config["eos_token_id"]
    model.generation_config.pad_token_id = config["pad_token_id"]
    return model


def _spread_attention_scores(model: PreTrainedModel, spread: float) -> None:
    """Scales the query and key projections so that their products have this standard deviation.

    It changes nothing where queries and keys are normalized: their products have a deviation of 1 as they are.
    """
    factor = (spread / model.config.hidden_size) ** 0.5 / model.config.initializer_range
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "qkv_proj" in name:
                values = model.config.num_key_value_heads * head_dim(model.config)
                tensor[:-values].mul_(factor)
            elif "q_proj" in name or "k_proj" in name:
                tensor.mul_(factor)


def head_dim(config: Any) -> int:
    """The width of a head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def save_model(
    model: PreTrainedModel,
    folder: Path,
    *,
    dtype: str = "float32",
    max_shard_size: str = "5GB",
    config_form: int = 5,
) -> None:
    """Writes weights of `dtype`, and `config.json` as transformers 4 or 5 does; rounds `model` itself."""
    model.to(DTYPES[dtype])
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    if config_form == 4:
        rewrite_config_as_4(folder)
    model.float()


def rewrite_config_as_4(folder: Path) -> None:
    """Rewrites `config.json` with the keys of transformers 4: `rope_theta`, `rope_scaling`, `torch_dtype`.

    What it had outside of `rope_scaling` goes there, and `layer_types` goes where it follows from `max_window_layers`,
    as in files that are older than it.
    """
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if rope["rope_type"] == "longrope":
        config["original_max_position_embeddings"] = rope.pop("original_max_position_embeddings")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    if config.get("use_sliding_window") and config["max_window_layers"] < config["num_hidden_layers"]:
        del config["layer_types"]
    config["torch_dtype"] = config.pop("dtype", None) or config["torch_dtype"]
    config["transformers_version"] = "4.57.1"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
