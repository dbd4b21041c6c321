"""The committed models of the families beside llama: what each one differs in from `SMALL`, and how its folder is written."""

from __future__ import annotations

from typing import Any

HALF = {"dtype": "bfloat16"}
FORM_4 = {"config_form": 4}
FULL, SLIDING = "full_attention", "sliding_attention"


def _longrope(pairs: int, **fields: Any) -> dict[str, Any]:
    """Longrope with different divisors for each pair of dimensions."""
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0 + 0.15 * i for i in range(pairs)],
        "long_factor": [1.5 + 2.0 * i for i in range(pairs)],
        **fields,
    }


def _window(size: int, **fields: Any) -> dict[str, Any]:
    return {"use_sliding_window": True, "sliding_window": size, **fields}


NO_WINDOW = {"use_sliding_window": False, "sliding_window": 4, "max_window_layers": 0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 80}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}

FAMILY_MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mistral_window": ({"family": "mistral", "sliding_window": 5}, {}),
    "mistral_wide_window": (
        {"family": "mistral", "sliding_window": 40, "num_key_value_heads": 1, "num_hidden_layers": 3},
        HALF | FORM_4 | {"max_shard_size": "8KB"},
    ),
    "mistral_no_window": (
        {"family": "mistral", "sliding_window": None, "tie_word_embeddings": True},
        HALF | FORM_4,
    ),
    "qwen2_bias": ({"family": "qwen2", **NO_WINDOW, "tie_word_embeddings": True}, {}),
    "qwen2_window": (
        {"family": "qwen2", **_window(9, max_window_layers=1), "num_hidden_layers": 3},
        HALF | FORM_4,
    ),
    "qwen2_layer_types": (
        {
            "family": "qwen2",
            **_window(33, max_window_layers=4, layer_types=[SLIDING, FULL, SLIDING, FULL]),
            "num_hidden_layers": 4,
            "hidden_size": 16,
        },
        {"dtype": "float16", "max_shard_size": "8KB"},
    ),
    # The context is that of yarn: `max_position_embeddings` says what it was before stretching.
    "qwen2_yarn": (
        {"family": "qwen2", **NO_WINDOW, "rope_parameters": YARN, "max_position_embeddings": 80},
        HALF | FORM_4,
    ),
    "qwen3_norms": ({"family": "qwen3", **NO_WINDOW, "head_dim": 10, "tie_word_embeddings": True}, {}),
    "qwen3_window": (
        {
            "family": "qwen3",
            **_window(7, max_window_layers=2),
            "attention_bias": True,
            "num_hidden_layers": 4,
            "hidden_size": 16,
            "head_dim": 8,
        },
        HALF,
    ),
    "phi3_fused": (
        {
            "family": "phi3",
            "sliding_window": None,
            "rope_parameters": DEFAULT,
            "max_position_embeddings": 1024,
        },
        {},
    ),
    # Half of six dimensions: an odd number, of which transformers turns one more.
    "phi3_partial": (
        {
            "family": "phi3",
            "sliding_window": 11,
            "rope_parameters": DEFAULT | {"partial_rotary_factor": 0.5},
            "max_position_embeddings": 1024,
        },
        HALF | FORM_4,
    ),
    "phi3_longrope_short": (
        {
            "family": "phi3",
            "sliding_window": None,
            "rope_parameters": _longrope(3, attention_factor=1.25),
            "max_position_embeddings": 1024,
            "original_max_position_embeddings": 1024,
        },
        HALF,
    ),
    # Requests begin with the short factors and go on with the long ones.
    "phi3_longrope": (
        {
            "family": "phi3",
            "sliding_window": None,
            "rope_parameters": _longrope(3),
            "max_position_embeddings": 1024,
            "original_max_position_embeddings": 40,
        },
        {},
    ),
    "phi3_longrope_partial": (
        {
            "family": "phi3",
            "sliding_window": 50,
            "hidden_size": 32,
            "rope_parameters": _longrope(3, partial_rotary_factor=0.75),
            "max_position_embeddings": 512,
            "original_max_position_embeddings": 64,
        },
        HALF | FORM_4 | {"max_shard_size": "8KB", "old_type_key": True, "old_type": "yarn"},
    ),
}
