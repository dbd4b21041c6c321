"""What the families add to a drawn configuration: windows, their own rotary embeddings, fewer switches."""

from __future__ import annotations

import random
from typing import Any

#: Fields of llama that other families do not have.
ABSENT = {
    "llama": [],
    "mistral": ["attention_bias", "mlp_bias"],
    "phi3": ["attention_bias", "mlp_bias", "head_dim"],
    "qwen2": ["attention_bias", "mlp_bias"],
    "qwen3": ["mlp_bias"],
}


def draw_family(
    rng: random.Random, family: str, config: dict[str, Any], fixed: dict[str, Any]
) -> dict[str, Any]:
    """The configuration of a llama made one of `family`; `fixed` replaces fields."""
    own: dict[str, Any] = {}
    if family in ("mistral", "phi3"):
        own = {"sliding_window": rng.choice([None, _draw_window(rng)])}
    elif family in ("qwen2", "qwen3"):
        own = _draw_windowed_layers(rng, fixed.get("num_hidden_layers", config["num_hidden_layers"]))
    if family == "qwen3" and config["head_dim"] is None:
        own["head_dim"] = rng.choice([8, 12])
    config = {name: value for name, value in (config | own).items() if name not in ABSENT[family]}
    config |= {name: value for name, value in fixed.items() if name not in ABSENT[family]}
    if family == "phi3" and "rope_parameters" not in fixed:
        config |= _draw_phi3_rope(rng, config["hidden_size"] // config["num_attention_heads"])
        config |= {name: value for name, value in fixed.items() if name not in ABSENT[family]}
    return config


def _draw_window(rng: random.Random) -> int:
    """Smaller than prompts, than a block of the cache, or larger. transformers itself fails with a window of 1."""
    return rng.choice([2, 3, rng.randint(4, 31), 32, 33, rng.randint(34, 120)])


def _draw_windowed_layers(rng: random.Random, layers: int) -> dict[str, Any]:
    """No windows, or windows from a layer on, or in the layers that are named."""
    if rng.random() < 0.25:
        return {"use_sliding_window": False, "sliding_window": _draw_window(rng), "max_window_layers": 0}
    own = {"use_sliding_window": True, "sliding_window": _draw_window(rng)}
    if rng.random() < 0.5:
        return own | {"max_window_layers": rng.randint(0, layers)}
    types = [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    return own | {"max_window_layers": layers, "layer_types": types}


def _draw_phi3_rope(rng: random.Random, head_dim: int) -> dict[str, Any]:
    """The default embedding or longrope, over whole heads or parts, so small that it switches within 200 tokens."""
    part = rng.choice([1.0, 1.0, 0.75, 0.5, 0.4])
    rope: dict[str, Any] = {
        "rope_theta": rng.choice([100.0, 1000.0, 10000.0, 500000.0]),
        "partial_rotary_factor": part if int(head_dim * part) > 0 else 1.0,
        "rope_type": "default",
    }
    own = {"max_position_embeddings": 1024, "original_max_position_embeddings": 1024, "rope_parameters": rope}
    if rng.random() < 0.25:
        return own
    if int(head_dim * rope["partial_rotary_factor"]) % 2:
        rope["partial_rotary_factor"] = 1.0
    pairs = int(head_dim * rope["partial_rotary_factor"]) // 2
    rope |= {
        "rope_type": "longrope",
        "short_factor": [round(rng.uniform(1.0, 1.5), 3) for _ in range(pairs)],
        "long_factor": [round(rng.uniform(1.0, 8.0), 3) for _ in range(pairs)],
    }
    if rng.random() < 0.3:
        rope["attention_factor"] = rng.choice([0.75, 1.0, 1.25])
    if rng.random() < 0.3:
        rope["factor"] = rng.choice([1.0, 2.0, 16.0])
    return own | {
        "original_max_position_embeddings": rng.choice([rng.randint(2, 40), rng.randint(40, 220), 1024])
    }
