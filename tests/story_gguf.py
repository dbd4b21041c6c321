"""Writes the bundled story model as GGUF files, as llama.cpp's converter lays them out."""

import json
import struct
from pathlib import Path

import numpy as np
import rsgen

MODEL = Path(rsgen.__file__).parent / "models" / "story-3m"
#: The values that types have in a file.
UINT32, FLOAT32, BOOL, STRING, ARRAY, INT32 = 4, 6, 7, 8, 9, 5
F32, Q4_0, Q8_0 = 0, 2, 8
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
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


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value):
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    kind, pack = (STRING, _string) if isinstance(value[0], str) else (INT32, struct.Struct("<i").pack)
    return struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(map(pack, value))


def _tensors():
    """The tensors in float32, by the names of the checkpoint."""
    data = (MODEL / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            halves = np.frombuffer(data[start + begin : start + end], "<u2").astype("<u4")
            yield name.removesuffix(".weight"), (halves << 16).view("<f4").reshape(entry["shape"])


def _stored_name(name):
    if name in NAMES:
        return f"{NAMES[name]}.weight"
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{NAMES[part]}.weight"


def _q8_0(blocks):
    scales = np.abs(blocks).max(1, keepdims=True) / 127
    return scales, np.round(blocks / np.where(scales == 0, 1, scales)).astype("i1").view("u1")


def _q4_0(blocks):
    widest = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    scales = widest / -8
    numbers = np.clip(blocks / np.where(scales == 0, 1, scales) + 8.5, 0, 15).astype("u1")
    return scales, numbers[:, :16] | numbers[:, 16:] << 4


def _bytes(kind, values):
    if kind == F32:
        return values.tobytes()
    scales, numbers = (_q8_0 if kind == Q8_0 else _q4_0)(values.reshape(-1, 32))
    return np.concatenate([scales.astype("<f2").view("u1"), numbers], axis=1).tobytes()


def write_story_gguf(path, kind):
    """Writes the model with its matrices in a type of blocks, `Q8_0` or `Q4_0`."""
    config = json.loads((MODEL / "config.json").read_text())
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {token["id"] for token in tokenizer["added_tokens"]}
    metadata = {
        "general.architecture": "llama",
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.block_count": config["num_hidden_layers"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "llama.rope.dimension_count": config["head_dim"],
        "llama.rope.freq_base": config["rope_theta"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if number in special else 1 for number in range(len(tokens))],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": config["bos_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "tokenizer.ggml.add_bos_token": True,
    }
    infos, data = [], b""
    for name, values in _tensors():
        if name.endswith(("q_proj", "k_proj")):
            # The converter puts the two halves of a rotated head beside each other.
            count = heads if name.endswith("q_proj") else kv_heads
            values = values.reshape(count, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        stored = F32 if values.ndim == 1 else kind
        shape = values.shape[::-1]
        infos.append(
            _string(_stored_name(name))
            + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, stored, len(data))
        )
        data += _bytes(stored, np.ascontiguousarray(values))
        data += bytes(-len(data) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(metadata))
    head += b"".join(_string(name) + _value(value) for name, value in metadata.items()) + b"".join(infos)
    Path(path).write_bytes(head + bytes(-len(head) % 32) + data)
