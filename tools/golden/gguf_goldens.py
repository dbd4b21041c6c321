"""Goldens of GGUF files: the headers that llama.cpp's converter writes for the tiny models of every family, and a few whole
files of blocks.

`python gguf_goldens.py LLAMA_CPP` needs the sources of llama.cpp, which the sdist of llama-cpp-python has below
`vendor/llama.cpp`, and writes `tests/golden/gguf`. The numbers of a tensor say which tensor of transformers and which row
they come from, so that a golden holds the header and that order, and no weights: `tests/suite/gguf.rs` computes those.

`tests/golden/gguf_blocks` has files whose weights gguf-py has quantized, and what transformers computes with the float32
weights that gguf-py makes of them again.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from family_goldens import NEW_TOKENS, PROMPT, numbers, weight
from safetensors.torch import load_file, save_file

GOLDENS = Path(__file__).parents[2] / "tests" / "golden"
# What files of transformers 4 have, and the converter still reads.
LEGACY: dict[str, dict[str, Any]] = {
    "bloom": {"seq_length": 2048},
    "glm": {"seq_length": 128, "layernorm_epsilon": 1e-6},
    "gpt2": {"n_ctx": 80},
    "gpt_neox": {"rotary_pct": 0.25},
    "gpt_neox_serial": {"rotary_pct": 0.5},
    "cohere2": {"rotary_pct": 1.0},
    "falcon_7b": {"num_kv_heads": 1},
}
# The models whose files hold all that they are made of: one of each architecture, or of each form of its tensors.
CHOSEN = """
    apertus arcee bloom cohere2 cohere_norms ernie4_5 exaone4 falcon_40b falcon_7b gemma gemma2_heads gemma3_heads glm_heads glm4
    gpt2 gpt_bigcode gpt_neox gpt_neox_serial gpt_oss granite granitemoe granitemoeshared hunyuan_plain llama3 llama_bias
    ministral3 mistral3_full mixtral_three nemotron_plain olmo olmo2 olmo3 olmoe_plain phi3 phi_heads qwen2 qwen2_moe_all qwen3
    qwen3_moe_all seed_oss smollm3_plain stablelm starcoder2_plain
"""
# The numbers of a tensor: those of its elements, and an even distance, so that a norm with 1 added shows.
ELEMENTS = 1 << 15


def coded(index: int, shape: list[int]) -> torch.Tensor:
    count = int(np.prod(shape))
    assert count <= ELEMENTS, shape
    assert index < 1 << 8, shape
    return torch.arange(count, dtype=torch.float32).add(index * ELEMENTS).mul(2).reshape(shape)


def folder(path: Path, golden: dict[str, Any]) -> list[str]:
    """Writes a model whose numbers say where they are, and returns the names of its tensors."""
    config = golden["config"]
    (path / "config.json").write_text(json.dumps(config))
    # Gemma's counts the tokens.
    vocab = {str(index): index for index in range(config.get("vocab_size", 0))}
    (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": []}))
    names = list(golden["tensors"])
    tensors = {name: coded(index, golden["tensors"][name]) for index, name in enumerate(names)}
    for name in names:
        # These become metadata.
        if ".act_fn." in name:
            tensors[name] = torch.from_numpy(weight(name, golden["tensors"][name], norms_around_0=False))
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return names


def convert(path: Path, fields: dict[str, Any]) -> Path:
    """Runs llama.cpp's converter, without a vocabulary."""
    import conversion
    from conversion.base import ModelBase

    hparams = ModelBase.load_hparams(path, False)
    architecture = hparams["architectures"][0]
    model_class = conversion.get_model_class(architecture)
    out = path / "model.gguf"
    import gguf

    model = model_class(path, gguf.LlamaFileType.ALL_F32, out)
    target = getattr(model, "impl", model)
    target.set_vocab = lambda: target.gguf_writer.add_tokenizer_model("none")
    target.hparams.update(fields)
    model.write()
    return out


def sources(tensor: Any, names: list[str], shapes: dict[str, list[int]]) -> dict[str, Any]:
    """The rows of transformers' tensors that a stored one consists of.

    Each part is a name, the first elements of its rows, and the distance of elements in a row.
    """
    data = np.asarray(tensor.data, dtype=np.float32).reshape([int(n) for n in reversed(tensor.shape)])
    plus_one = bool(data.reshape(-1)[0] % 2 == 1)
    codes = ((data - plus_one) / 2).astype(np.int64)
    rows = codes.reshape(-1, codes.shape[-1]) if codes.ndim > 1 else codes.reshape(-1, 1)
    step = int(rows[0, 1] - rows[0, 0]) if rows.shape[1] > 1 else 1
    assert (np.diff(rows, axis=1) == step).all()
    assert (rows // ELEMENTS == rows[:, :1] // ELEMENTS).all()
    parts: list[Any] = []
    for row in rows[:, 0].tolist():
        name, at = names[row // ELEMENTS], row % ELEMENTS
        if parts and parts[-1][0] == name:
            parts[-1][1].append(at)
        else:
            parts.append([name, [at]])
    # Experts follow each other: one entry for all.
    first, numbered = parts[0], [re.sub(r"experts\.\d+", "experts.+", part[0]) for part in parts]
    if all(one == numbered[0] and part[1] == first[1] for one, part in zip(numbered, parts, strict=True)):
        expected = [numbered[0].replace("+", str(index)) for index in range(len(parts))]
        if len(parts) > 1 and [part[0] for part in parts] == expected:
            parts = [[numbered[0], first[1], len(parts)]]
    return {"plus_one": plus_one, "width": int(rows.shape[1]), "step": step, "parts": parts}


def compact(tensors: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One entry for the same tensor of all layers, and orders that come more than once by their place."""
    orders: list[list[int]] = []
    entries: dict[str, Any] = {}
    for name, tensor in tensors.items():
        layer = re.match(r"blk\.(\d+)\.", name)
        stars = (lambda text, layer=layer: text.replace(f".{layer[1]}.", ".*.", 1)) if layer else str
        parts = []
        for part in tensor["parts"]:
            rows = part[1]
            distance = rows[1] - rows[0] if len(rows) > 1 else tensor["width"]
            if rows == list(range(rows[0], rows[0] + distance * len(rows), distance)):
                order: Any = [rows[0], distance, len(rows)]
            else:
                if rows not in orders:
                    orders.append(rows)
                order = orders.index(rows)
            parts.append([stars(part[0]), order, *part[2:]])
        entry = {key: tensor[key] for key in ("plus_one", "width", "step")} | {"parts": parts}
        assert entries.setdefault(stars(name), entry) == entry, name
    return {"orders": orders, "tensors": entries}


def golden(name: str) -> dict[str, Any]:
    family = json.loads((GOLDENS / "families" / f"{name}.json").read_text())
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary)
        names = folder(path, family)
        family_type = family["config"]["model_type"]
        out = convert(path, LEGACY.get(name, LEGACY.get(family_type, {})))
        import gguf

        reader = gguf.GGUFReader(out)
        header = out.read_bytes()[: reader.data_offset]
        tensors = {
            tensor.name: sources(tensor, names, family["tensors"])
            for tensor in reader.tensors
            if not tensor.name.startswith("rope_f")
        }
        rotary = {
            tensor.name: [float(x) for x in np.asarray(tensor.data).reshape(-1)]
            for tensor in reader.tensors
            if tensor.name.startswith("rope_f")
        }
        size = out.stat().st_size
    return {
        "header": base64.b64encode(header).decode(),
        "size": size,
        "rotary": rotary,
        **compact(tensors),
    }


#: Models whose matrices are stored in blocks: the configuration, and the types that its matrices have in turn.
SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
MIXED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "F16", "BF16"]
BLOCKS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "llama": ({"model_type": "llama", **SMALL}, MIXED),
    "qwen2": ({"model_type": "qwen2", **SMALL, "tie_word_embeddings": True}, ["Q5_0", "Q8_0"]),
    "qwen3": ({"model_type": "qwen3", **SMALL}, ["Q4_0"]),
    "gemma3": (
        {
            "model_type": "gemma3_text",
            **SMALL,
            "query_pre_attn_scalar": 8,
            "sliding_window": 6,
            "tie_word_embeddings": True,
        },
        ["Q8_0"],
    ),
    "gpt2": (
        {"model_type": "gpt2", "vocab_size": 61, "n_embd": 32, "n_head": 4, "n_layer": 1, "n_positions": 80},
        ["Q4_0", "Q8_0"],
    ),
    "qwen3_moe": ({"model_type": "qwen3_moe", **SMALL, **EXPERTS, "num_hidden_layers": 1}, ["Q8_0", "Q4_1"]),
    "gpt_oss": (
        {
            "model_type": "gpt_oss",
            **SMALL,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 6,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1.5e5,
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 16,
            },
        },
        ["Q8_0"],
    ),
}


def stored(entry: dict[str, Any], tensors: dict[str, np.ndarray], shape: list[int]) -> np.ndarray:
    """The numbers of a stored tensor."""
    rows = []
    for name, firsts, *count in entry["parts"]:
        for expert in range(count[0] if count else 1):
            flat = tensors[name.replace("experts.+", f"experts.{expert}")].reshape(-1)
            rows += [flat[first : first + entry["width"] * entry["step"] : entry["step"]] for first in firsts]
    return (np.stack(rows) + np.float32(entry["plus_one"])).astype(np.float32).reshape(shape)


def unstored(entry: dict[str, Any], data: np.ndarray, tensors: dict[str, np.ndarray]) -> None:
    """Puts the numbers of a stored tensor back where they come from."""
    rows = iter((data.astype(np.float32) - np.float32(entry["plus_one"])).reshape(-1, entry["width"]))
    for name, firsts, *count in entry["parts"]:
        for expert in range(count[0] if count else 1):
            flat = tensors[name.replace("experts.+", f"experts.{expert}")].reshape(-1)
            for first in firsts:
                flat[first : first + entry["width"] * entry["step"] : entry["step"]] = next(rows)


def blocks(name: str, config: dict[str, Any], types: list[str]) -> tuple[bytes, dict[str, Any]]:
    """A file of blocks, and what transformers computes with its weights."""
    import gguf
    from gguf.quants import dequantize, quantize
    from transformers import AutoConfig, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).float().eval()
    around_0 = config["model_type"].startswith("gemma")
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary)
        model.save_pretrained(path)
        saved = json.loads((path / "config.json").read_text())
        tensors = load_file(path / "model.safetensors")
        shapes = {key: list(tensor.shape) for key, tensor in tensors.items()}
        names = folder(path, {"config": saved, "tensors": shapes})
        out = convert(path, LEGACY.get(config["model_type"], {}))
        reader = gguf.GGUFReader(out)
        architecture = reader.get_field("general.architecture").contents()
        writer = gguf.GGUFWriter(path / "blocks.gguf", architecture)
        for field in reader.fields.values():
            if field.name != "general.architecture" and not field.name.startswith("GGUF."):
                kinds = field.types
                sub = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(field.name, field.contents(), kinds[0], sub_type=sub)
        weights = {key: weight(key, shapes[key], norms_around_0=around_0) for key in names}
        weights = {key: np.array(value) for key, value in weights.items()}
        matrices = 0
        for tensor in reader.tensors:
            shape = [int(n) for n in reversed(tensor.shape)]
            if tensor.name.startswith("rope_f"):
                writer.add_tensor(tensor.name, np.array(tensor.data))
                continue
            entry = sources(tensor, names, shapes)
            data = stored(entry, weights, shape)
            is_matrix = (
                len(shape) > 1 and tensor.name.endswith(".weight") and "ffn_gate_inp" not in tensor.name
            )
            kind = gguf.GGMLQuantizationType.F32
            if is_matrix:
                kind = gguf.GGMLQuantizationType[types[matrices % len(types)]]
                matrices += 1
            if "_exps.weight" in tensor.name and architecture == "gpt-oss":
                kind = gguf.GGMLQuantizationType.MXFP4
            packed = quantize(data, kind)
            writer.add_tensor(tensor.name, packed, raw_dtype=kind)
            unstored(entry, dequantize(packed, kind), weights)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        file = (path / "blocks.gguf").read_bytes()
        save_file(
            {key: torch.from_numpy(value) for key, value in weights.items()},
            path / "model.safetensors",
            metadata={"format": "pt"},
        )
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    ids = (np.abs(numbers(name, PROMPT)) * 58).astype(int) + 3
    with torch.no_grad():
        logits = model(torch.tensor([ids.tolist()])).logits[0]
        greedy = model.generate(
            torch.tensor([ids.tolist()]),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=None,
            pad_token_id=0,
        )
    positions = [0, PROMPT // 2, PROMPT - 1]
    return file, {
        "input_ids": ids.tolist(),
        "positions": positions,
        "logits": [[round(float(x), 6) for x in logits[p]] for p in positions],
        "greedy": greedy[0, PROMPT:].tolist(),
    }


def main() -> None:
    sources_of = Path(sys.argv[1])
    sys.path[:0] = [str(sources_of), str(sources_of / "gguf-py")]
    importlib.invalidate_caches()
    out = GOLDENS / "gguf"
    out.mkdir(exist_ok=True)
    of_blocks = GOLDENS / "gguf_blocks"
    of_blocks.mkdir(exist_ok=True)
    for name, (config, types) in BLOCKS.items():
        if sys.argv[2:] and f"blocks/{name}" not in sys.argv[2:]:
            continue
        file, made = blocks(name, config, types)
        (of_blocks / f"{name}.gguf").write_bytes(file)
        (of_blocks / f"{name}.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")
        print(name, len(file), flush=True)
    for name in sys.argv[2:] or CHOSEN.split():
        if name.startswith("blocks/"):
            continue
        made = golden(name)
        (out / f"{name}.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")
        print(name, len(json.dumps(made)), flush=True)


if __name__ == "__main__":
    main()
