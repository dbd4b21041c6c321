"""The model shapes that speed is measured on, and a writer of checkpoints with random weights in them."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import numpy as np

SHAPES: dict[str, dict[str, int | bool]] = {
    # SmolLM2-135M
    "S": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    # TinyLlama-1.1B
    "T": {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    },
}


def tensor_shapes(shape: dict[str, int | bool]) -> dict[str, list[int]]:
    """The name and the shape of every tensor of a llama."""
    hidden, mlp = int(shape["hidden_size"]), int(shape["intermediate_size"])
    head_dim = hidden // int(shape["num_attention_heads"])
    kv = int(shape["num_key_value_heads"]) * head_dim
    vocab = int(shape["vocab_size"])
    tensors = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    if not shape["tie_word_embeddings"]:
        tensors["lm_head.weight"] = [vocab, hidden]
    for index in range(int(shape["num_hidden_layers"])):
        layer = f"model.layers.{index}"
        tensors |= {
            f"{layer}.self_attn.q_proj.weight": [hidden, hidden],
            f"{layer}.self_attn.k_proj.weight": [kv, hidden],
            f"{layer}.self_attn.v_proj.weight": [kv, hidden],
            f"{layer}.self_attn.o_proj.weight": [hidden, hidden],
            f"{layer}.mlp.gate_proj.weight": [mlp, hidden],
            f"{layer}.mlp.up_proj.weight": [mlp, hidden],
            f"{layer}.mlp.down_proj.weight": [hidden, mlp],
            f"{layer}.input_layernorm.weight": [hidden],
            f"{layer}.post_attention_layernorm.weight": [hidden],
        }
    return tensors


def num_weights(shape: dict[str, int | bool]) -> int:
    """The number of weights of a llama."""
    return sum(math.prod(sizes) for sizes in tensor_shapes(shape).values())


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """The bits of float32 values rounded to bfloat16."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_checkpoint(folder: Path, shape: dict[str, int | bool], seed: int = 0) -> None:
    """Writes config.json and model.safetensors with normally distributed bfloat16 weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "torch_dtype": "bfloat16",
        **shape,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    tensors = tensor_shapes(shape)
    for name, sizes in tensors.items():
        end = offset + 2 * int(np.prod(sizes))
        header[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    generator = np.random.default_rng(seed)
    partial = folder / "model.safetensors.partial"
    with partial.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)))
        file.write(encoded)
        for sizes in tensors.values():
            if len(sizes) == 1:
                values = np.ones(sizes, dtype=np.float32)
            else:
                values = generator.standard_normal(sizes, dtype=np.float32) * np.float32(0.02)
            file.write(bfloat16_bits(values).tobytes())
    partial.rename(folder / "model.safetensors")
