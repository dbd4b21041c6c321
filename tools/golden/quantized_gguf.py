"""GGUF files of a llama whose matrices are all of one type, and the float32 weights that gguf-py makes of them."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from quantized_models import Made, in_float32, llama

#: The names of llama.cpp.
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INSIDE = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
#: Types that gguf-py only reads: where a block has its halves, and what they are to be for weights of about 1.
HALVES = {
    "Q2_K": [(80, 0.07), (82, 0.1)],
    "Q3_K": [(108, 0.025)],
    "Q4_K": [(0, 0.0075), (2, 0.056)],
    "Q5_K": [(0, 0.0036), (2, 0.056)],
    "Q6_K": [(208, 0.00075)],
    "IQ4_NL": [(0, 0.014)],
    "IQ4_XS": [(0, 0.0008)],
}


def gguf_name(name: str) -> str:
    """The name of a tensor of transformers in a file."""
    module, suffix = name.rsplit(".", 1)
    if module in OUTSIDE:
        return f"{OUTSIDE[module]}.{suffix}"
    _, _, layer, part = module.split(".", 3)
    return f"blk.{layer}.{INSIDE[part]}.{suffix}"


def blocks(weight: np.ndarray, kind: str, drawn: np.random.Generator) -> np.ndarray:
    """A matrix in blocks: rounded by gguf-py, or random ones where it only reads."""
    import gguf

    quantization = gguf.GGMLQuantizationType[kind]
    if kind not in HALVES:
        return gguf.quants.quantize(weight, quantization)
    elements, size = gguf.GGML_QUANT_SIZES[quantization]
    rows, columns = weight.shape
    packed = drawn.integers(0, 256, (rows * columns // elements, size), np.uint8)
    for place, half in HALVES[kind]:
        scales = drawn.uniform(0.5, 1.5, len(packed)) * half * weight.std()
        packed[:, place : place + 2] = scales.astype("<f2").view(np.uint8).reshape(-1, 2)
    return packed.reshape(rows, -1)


def gguf(folder: Path, *, kind: str) -> Made:
    """A folder with one file, `model.gguf`."""
    import gguf as library

    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = llama(folder.name, torch.float32, **sizes, **heads, bos_token_id=None, eos_token_id=None)
    with torch.no_grad():
        # The head is the same matrix, and logits of hundreds would multiply the rounding of float32.
        model.model.embed_tokens.weight.mul_(0.125)
        for layer in model.model.layers:
            # Random blocks have rows that are off zero: scores of attention would be as large.
            layer.self_attn.q_proj.weight.mul_(0.3)
            layer.self_attn.k_proj.weight.mul_(0.3)
    config, weights = model.config, in_float32(model)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(zlib.crc32(folder.name.encode()))
    writer = library.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("none")
    for name, weight in weights.items():
        data = weight.numpy()
        if weight.dim() == 1:
            writer.add_tensor(gguf_name(name), data)
            continue
        # Of each head, the converter puts the rows of both halves in turns.
        is_paired = name.endswith(("q_proj.weight", "k_proj.weight"))
        order = np.arange(len(data))
        if is_paired:
            order = order.reshape(-1, 2, config.head_dim // 2).swapaxes(1, 2).reshape(-1)
        packed = blocks(data[order], kind, drawn)
        writer.add_tensor(gguf_name(name), packed, raw_dtype=library.GGMLQuantizationType[kind])
        read = library.quants.dequantize(packed, library.GGMLQuantizationType[kind])
        original = np.empty_like(data)
        original[order] = read
        weights[name] = torch.from_numpy(original)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Made(model, weights, "model.layers.0.mlp.down_proj", "gguf-py 0.19.0's dequantize")
