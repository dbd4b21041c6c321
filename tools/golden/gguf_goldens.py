"""Goldens of GGUF files: the headers that llama.cpp's converter writes for the tiny models of every family.

`python gguf_goldens.py LLAMA_CPP` needs the sources of llama.cpp, which the sdist of llama-cpp-python has below
`vendor/llama.cpp`, and writes `tests/golden/gguf`. The numbers of a tensor say which tensor of transformers and which row
they come from, so that a golden holds the header and that order, and no weights: `tests/suite/gguf.rs` computes those.
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
from family_goldens import weight
from safetensors.torch import save_file

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
    assert count <= ELEMENTS and index < 1 << 8, (index, shape)
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
    assert (np.diff(rows, axis=1) == step).all() and (rows // ELEMENTS == rows[:, :1] // ELEMENTS).all()
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


def main() -> None:
    sources_of = Path(sys.argv[1])
    sys.path[:0] = [str(sources_of), str(sources_of / "gguf-py")]
    importlib.invalidate_caches()
    out = GOLDENS / "gguf"
    out.mkdir(exist_ok=True)
    for name in sys.argv[2:] or CHOSEN.split():
        made = golden(name)
        (out / f"{name}.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")
        print(name, len(json.dumps(made)), flush=True)


if __name__ == "__main__":
    main()
