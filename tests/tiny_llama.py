"""Llamas with random weights, written without any library: what a checkpoint is at the least."""

import json
import struct
from pathlib import Path

import numpy as np
import rsgen


def llama_config(**fields: object) -> dict:
    """The config.json of a tiny llama, with these fields changed."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": None,
        **fields,
    }


def llama_tensors(config: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]

    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0.0, 0.5, (rows, columns)).astype("<f4")

    def ones() -> np.ndarray:
        return np.ones(hidden, "<f4")

    tensors = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden), "model.norm.weight": ones()}
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        tensors |= {
            f"{layer}.input_layernorm.weight": ones(),
            f"{layer}.self_attn.q_proj.weight": matrix(queries, hidden),
            f"{layer}.self_attn.k_proj.weight": matrix(keys, hidden),
            f"{layer}.self_attn.v_proj.weight": matrix(keys, hidden),
            f"{layer}.self_attn.o_proj.weight": matrix(hidden, queries),
            f"{layer}.post_attention_layernorm.weight": ones(),
            f"{layer}.mlp.gate_proj.weight": matrix(intermediate, hidden),
            f"{layer}.mlp.up_proj.weight": matrix(intermediate, hidden),
            f"{layer}.mlp.down_proj.weight": matrix(hidden, intermediate),
        }
    return tensors


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def write_detector(folder: Path, settings: rsgen.SynthIDTextWatermarkingConfig) -> None:
    """A trained judge of SynthID's watermark for four keys: all of its layers are alike."""
    config = {
        "watermarking_depth": 4,
        "base_rate": 0.5,
        "model_name": "a/b",
        "watermarking_config": settings.to_dict(),
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        "likelihood_model_watermarked.beta": np.full((1, 1, 4), -2.5, dtype=np.float32),
        "likelihood_model_watermarked.delta": np.zeros((1, 1, 4, 4), dtype=np.float32),
        "prior": np.array([0.5], dtype=np.float32),
    }
    write_safetensors(folder / "model.safetensors", tensors)


def write_adapter(folder: Path, names: list[str], **fields: object) -> Path:
    """An adapter of tensors with one number each."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]} | fields
    (folder / "adapter_config.json").write_text(json.dumps(config))
    place = ({"dtype": "F32", "shape": [1, 1], "data_offsets": [4 * n, 4 * n + 4]} for n in range(len(names)))
    header = json.dumps({f"base_model.model.model.{name}": next(place) for name in names}).encode()
    data = struct.pack("<Q", len(header)) + header + bytes(4 * len(names))
    (folder / "adapter_model.safetensors").write_bytes(data)
    return folder
