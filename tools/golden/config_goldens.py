"""What transformers makes of config.json files in which fields are absent, null or of older versions."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tiny_models import FAMILIES, head_dim
from transformers import AutoConfig

CLASSES = dict(
    zip(
        FAMILIES,
        ["LlamaForCausalLM", "MistralForCausalLM", "Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"],
        strict=True,
    )
)
SMALL = {"num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 96}
FACTORS = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}

#: Fields of each file; `None` is null.
CASES: list[tuple[list[str], dict[str, Any]]] = [
    (list(FAMILIES), {}),
    (["llama", "phi3", "qwen2", "qwen3"], {"num_key_value_heads": None}),
    (["llama", "mistral", "phi3", "qwen2"], {**SMALL, "rope_theta": 5e5}),
    (list(FAMILIES), {**SMALL, "head_dim": 10, "rope_theta": 1e6, "rope_scaling": None}),
    (list(FAMILIES), {"tie_word_embeddings": True, "rms_norm_eps": 1e-5, "eos_token_id": [3, 4]}),
    (list(FAMILIES), {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}),
    (["mistral", "phi3", "qwen2", "qwen3"], {"sliding_window": None}),
    (["mistral", "phi3"], {"sliding_window": 512}),
    (["mistral"], {**SMALL, "sliding_window": 512, "layer_types": ["full_attention"] * 4}),
    (["qwen2", "qwen3"], {"use_sliding_window": True}),
    (["qwen2", "qwen3"], {"use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 21}),
    (["qwen2", "qwen3"], {**SMALL, "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}),
    (
        ["qwen2", "qwen3"],
        {**SMALL, "use_sliding_window": True, "sliding_window": None, "max_window_layers": 1},
    ),
    (
        ["qwen2", "qwen3"],
        {
            **SMALL,
            "use_sliding_window": True,
            "layer_types": ["sliding_attention", "attention", "full_attention", "sliding_attention"],
        },
    ),
    (["phi3"], {**SMALL, "partial_rotary_factor": 0.5}),
    (["phi3"], {**SMALL, "partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 0.75}}),
    (["phi3"], {**SMALL, "rope_scaling": {"type": "longrope", **FACTORS}, "max_position_embeddings": 131072}),
    (
        ["phi3"],
        {**SMALL, "rope_scaling": {"type": "yarn", **FACTORS}, "original_max_position_embeddings": 64},
    ),
]


def write_config_goldens(made_with: dict[str, str]) -> dict[str, Any]:
    """Every case: the file, and what it comes to."""
    files = [
        {"architectures": [CLASSES[family]], "model_type": family, **fields}
        for families, fields in CASES
        for family in families
    ]
    return {"made_with": made_with, "configs": [{"file": file, "resolved": resolve(file)} for file in files]}


def resolve(file: dict[str, Any]) -> dict[str, Any]:
    """The values that transformers computes with."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(file))
        config = AutoConfig.from_pretrained(folder)
    eos = config.eos_token_id
    fields = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    rope = config.rope_parameters
    return {
        **{name: getattr(config, name) for name in fields},
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": head_dim(config),
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_ids": [] if eos is None else [eos] if isinstance(eos, int) else eos,
        "pad_token_id": config.pad_token_id,
        "windows": windows(config),
        "rope_theta": rope["rope_theta"],
        "rope_type": rope["rope_type"],
        "rotary_dim": int(head_dim(config) * rope.get("partial_rotary_factor", 1.0)),
        "original_max_position_embeddings": rope.get("original_max_position_embeddings"),
    }


def windows(config: Any) -> list[int | None]:
    """The window of each layer. The masks of Mistral and Phi-3 do not look at `layer_types`."""
    size = getattr(config, "sliding_window", None)
    if config.model_type in ("qwen2", "qwen3"):
        return [size if kind == "sliding_attention" else None for kind in config.layer_types]
    return [size if config.model_type != "llama" else None] * config.num_hidden_layers
