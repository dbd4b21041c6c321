"""The models that speed is measured on, and a writer of checkpoints with random weights in them."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from encoder_decoder_shapes import (
    BART_LARGE,
    FLAN_T5,
    NLLB,
    OPUS_MT,
    Tensors,
    bart_tensors,
    t5_tensors,
)
from tasks import NAMED, PERIOD, REPEATING, Task

# The most weights of a model that is measured on more than loading.
LARGEST = 2_000_000_000
# The longest texts of a model whose text is known: speculation is about decoding.
LONGEST_KNOWN = 512


@dataclass(frozen=True)
class Shape:
    """A model: config.json without what all have, which says its tensors."""

    architecture: str
    model_type: str
    # The tokens that its positions end at.
    context: int
    fields: dict[str, Any]
    # Whether its text is known: greedy search goes from a token to its `successor`.
    is_known: bool = False

    def config(self) -> dict[str, Any]:
        """config.json."""
        names = {"architectures": [self.architecture], "model_type": self.model_type}
        return {**names, "torch_dtype": "bfloat16", **self.fields}

    def tensors(self) -> Tensors:
        """The name and the shape of every tensor."""
        if self.model_type == "gpt2":
            return gpt2_tensors(self.fields)
        if self.model_type == "t5":
            return t5_tensors(self.fields)
        return bart_tensors(self.model_type, self.fields) if self.has_encoder else llama_tensors(self)

    @property
    def has_encoder(self) -> bool:
        """Whether its prompts are sources."""
        return bool(self.fields.get("is_encoder_decoder", False))

    def fits(self, task: Task) -> bool:
        """Whether the task is for such a model, and its texts are not longer than the positions."""
        if self.num_weights() > LARGEST:
            return task.loading
        if self.is_known or task.lookup:
            return self.is_known and task.decoding and task.context() <= LONGEST_KNOWN
        return task.of_sources == self.has_encoder and task.context() <= self.context

    def num_weights(self) -> int:
        """The number of weights."""
        return sum(math.prod(sizes) for sizes in self.tensors().values())


def successor(token: int) -> int:
    """The token that follows, in the text of a model whose text is known."""
    if token >= REPEATING:
        return REPEATING + (token + 1 - REPEATING) % (NAMED - REPEATING)
    return token - token % PERIOD + (token + 1) % PERIOD


def llama(context: int, **fields: Any) -> Shape:
    """A llama of `context` positions."""
    common = {
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }
    return Shape("LlamaForCausalLM", "llama", context, {**common, **fields})


TINY_LLAMA = llama(
    context=4096,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=22,
    num_attention_heads=32,
    num_key_value_heads=4,
    vocab_size=32000,
    tie_word_embeddings=False,
)

SHAPES = {
    # SmolLM2-135M, with positions for the tasks of long texts
    "S": llama(
        context=32768,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
        tie_word_embeddings=True,
    ),
    # TinyLlama-1.1B
    "T": TINY_LLAMA,
    # A llama of four times the weights, for loading alone
    "L": llama(
        context=4096,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=40,
        num_attention_heads=24,
        num_key_value_heads=8,
        vocab_size=32000,
        tie_word_embeddings=False,
    ),
    # As T, with a known text: its layers add next to nothing, and the matrix of the logits names the successor of a token.
    "R": replace(TINY_LLAMA, is_known=True),
    # GPT-2 124M
    "G": Shape(
        "GPT2LMHeadModel",
        "gpt2",
        1024,
        {
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "n_ctx": 1024,
            "n_embd": 768,
            "n_head": 12,
            "n_layer": 12,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
    ),
    # Gemma 3 1B
    "E": Shape(
        "Gemma3ForCausalLM",
        "gemma3_text",
        32768,
        {
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 1152,
            "intermediate_size": 6912,
            "max_position_embeddings": 32768,
            "num_attention_heads": 4,
            "num_hidden_layers": 26,
            "num_key_value_heads": 1,
            "query_pre_attn_scalar": 256,
            "rms_norm_eps": 1e-6,
            "rope_local_base_freq": 10000,
            "rope_theta": 1000000,
            "sliding_window": 512,
            "sliding_window_pattern": 6,
            "tie_word_embeddings": True,
            "vocab_size": 262144,
        },
    ),
    # A mixture of experts: 32 of 512, of which a token takes 4.
    "X": Shape(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        4096,
        {
            "bos_token_id": 1,
            "decoder_sparse_step": 1,
            "eos_token_id": 2,
            "head_dim": 64,
            "hidden_act": "silu",
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "max_position_embeddings": 4096,
            "mlp_only_layers": [],
            "moe_intermediate_size": 512,
            "norm_topk_prob": True,
            "num_attention_heads": 16,
            "num_experts": 32,
            "num_experts_per_tok": 4,
            "num_hidden_layers": 16,
            "num_key_value_heads": 4,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "vocab_size": 32000,
        },
    ),
    "M": Shape("MarianMTModel", "marian", 512, OPUS_MT),
    "N": Shape("M2M100ForConditionalGeneration", "m2m_100", 1024, NLLB),
    # T5 has no last position: this is what it was trained with.
    "F": Shape("T5ForConditionalGeneration", "t5", 512, FLAN_T5),
    "B": Shape("BartForConditionalGeneration", "bart", 1024, BART_LARGE),
}


def llama_tensors(shape: Shape) -> Tensors:
    """Those of a llama, with what Gemma and mixtures have besides."""
    fields, is_gemma = shape.fields, shape.model_type == "gemma3_text"
    hidden, vocab, heads = fields["hidden_size"], fields["vocab_size"], fields["num_attention_heads"]
    head_dim = fields.get("head_dim", hidden // heads)
    queries, keys = heads * head_dim, fields["num_key_value_heads"] * head_dim
    tensors = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    if not fields["tie_word_embeddings"]:
        tensors["lm_head.weight"] = [vocab, hidden]
    for index in range(fields["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        tensors |= {
            f"{layer}.self_attn.q_proj.weight": [queries, hidden],
            f"{layer}.self_attn.k_proj.weight": [keys, hidden],
            f"{layer}.self_attn.v_proj.weight": [keys, hidden],
            f"{layer}.self_attn.o_proj.weight": [hidden, queries],
            f"{layer}.input_layernorm.weight": [hidden],
            f"{layer}.post_attention_layernorm.weight": [hidden],
        }
        if shape.model_type != "llama":
            tensors |= {f"{layer}.self_attn.{name}_norm.weight": [head_dim] for name in "qk"}
        if is_gemma:
            tensors |= {f"{layer}.{side}_feedforward_layernorm.weight": [hidden] for side in ("pre", "post")}
        experts = [f"{layer}.mlp"]
        width = fields["intermediate_size"]
        if "num_experts" in fields:
            tensors[f"{layer}.mlp.gate.weight"] = [fields["num_experts"], hidden]
            experts = [f"{layer}.mlp.experts.{expert}" for expert in range(fields["num_experts"])]
            width = fields["moe_intermediate_size"]
        for expert in experts:
            tensors |= {
                f"{expert}.gate_proj.weight": [width, hidden],
                f"{expert}.up_proj.weight": [width, hidden],
                f"{expert}.down_proj.weight": [hidden, width],
            }
    return tensors


def gpt2_tensors(fields: dict[str, Any]) -> Tensors:
    """Those of GPT-2, whose matrices are transposed and have biases."""
    hidden = fields["n_embd"]
    tensors = {
        "transformer.wte.weight": [fields["vocab_size"], hidden],
        "transformer.wpe.weight": [fields["n_positions"], hidden],
    }
    norms = ["transformer.ln_f"]
    for index in range(fields["n_layer"]):
        layer = f"transformer.h.{index}"
        norms += [f"{layer}.ln_1", f"{layer}.ln_2"]
        for name, inputs, outputs in (
            ("attn.c_attn", hidden, 3 * hidden),
            ("attn.c_proj", hidden, hidden),
            ("mlp.c_fc", hidden, 4 * hidden),
            ("mlp.c_proj", 4 * hidden, hidden),
        ):
            tensors |= {f"{layer}.{name}.weight": [inputs, outputs], f"{layer}.{name}.bias": [outputs]}
    return tensors | {f"{norm}.{part}": [hidden] for norm in norms for part in ("weight", "bias")}


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """The bits of float32 values rounded to bfloat16."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_checkpoint(folder: Path, shape: Shape, seed: int = 0) -> None:
    """Writes config.json and model.safetensors with normally distributed bfloat16 weights, and no biases."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape.config(), indent=1))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    tensors = shape.tensors()
    for name, sizes in tensors.items():
        end = offset + 2 * int(np.prod(sizes))
        header[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    generator, embeddings = np.random.default_rng(seed), np.zeros(0, dtype=np.float32)
    partial = folder / "model.safetensors.partial"
    with partial.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)))
        file.write(encoded)
        for name, sizes in tensors.items():
            if len(sizes) == 1:
                values = np.full(sizes, 0.0 if name.endswith("bias") else 1.0, dtype=np.float32)
            else:
                values = generator.standard_normal(sizes, dtype=np.float32) * np.float32(0.02)
            if shape.is_known and name == "model.embed_tokens.weight":
                embeddings = values
            elif shape.is_known and name == "lm_head.weight":
                values[[successor(token) for token in range(NAMED)]] = embeddings
            elif shape.is_known and name.endswith(("o_proj.weight", "down_proj.weight")):
                values *= np.float32(1e-3)
            file.write(bfloat16_bits(values).tobytes())
    partial.rename(folder / "model.safetensors")
