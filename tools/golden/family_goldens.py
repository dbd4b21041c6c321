"""Goldens of tiny models of every family, whose weights are computed from their names: no weight is committed.

`tests/suite/families.rs` computes the same weights, so that a golden is a configuration, the names and shapes of the
tensors as transformers saves them, and what transformers computes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from family_draws import draws
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from tiny_encoder_decoder import numbers

PROMPT, NEW_TOKENS = 27, 40
#: The major version of the reference.
VERSION = int(transformers.__version__.split(".")[0])
torch.set_num_threads(1)
transformers.logging.disable_progress_bar()


def weight(name: str, shape: list[int], *, norms_around_0: bool, seed: str = "") -> np.ndarray:
    """The tensor of this name: norms near 1 or 0, small biases, and matrices that keep the size of their inputs.

    The goldens have no seed; other seeds give other models of the same form.
    """
    values = numbers(seed + name, int(np.prod(shape)))
    if "sinks" in name:
        scale, shift = 2.0, 0.0
    elif "norm" in name or "ln_" in name:
        is_weight = name.endswith("weight")
        scale, shift = (0.4, 0.0 if norms_around_0 else 1.0) if is_weight else (0.2, 0.0)
    elif len(shape) == 1 or name.endswith("bias"):
        scale, shift = 0.2, 0.0
    elif "embed" in name or "wte" in name or "wpe" in name or f".{name}".endswith(".shared.weight"):
        scale, shift = 1.0, 0.0
    elif name.endswith(".q.weight"):
        # T5 does not scale its scores.
        scale, shift = 0.8 / float(np.sqrt(np.float32(shape[-1]))), 0.0
    else:
        scale, shift = 2.0 / float(np.sqrt(np.float32(shape[-1]))), 0.0
    return (values * np.float32(scale) + np.float32(shift)).astype(np.float32).reshape(shape)


def write_folder(
    golden: dict[str, Any], folder: Path, *, seed: str = "", dtype: torch.dtype = torch.float32
) -> None:
    """The model of a golden, with numbers of another seed, or rounded to another type."""
    around_0 = golden["norms_around_0"]
    tensors = {
        name: torch.from_numpy(weight(name, shape, norms_around_0=around_0, seed=seed).copy()).to(dtype)
        for name, shape in golden["tensors"].items()
    }
    for scope in [name.removesuffix("alpha_p") for name in tensors if name.endswith("alpha_p")]:
        # The constants of xIELU, which goldens leave out.
        tensors |= {
            f"{scope}beta": torch.tensor(0.5, dtype=dtype),
            f"{scope}eps": torch.tensor(-1e-6, dtype=dtype),
        }
    folder.mkdir(exist_ok=True)
    config = golden["config"] if VERSION >= 5 else older_spelling(golden["config"])
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def older_spelling(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration as transformers 4 reads it.

    It takes the class's special tokens for those that the file lacks, but not for null; 5 takes none for either.
    """
    config = {"bos_token_id": None, "eos_token_id": None} | config
    if "text_config" in config:
        config["text_config"] = older_spelling(config["text_config"])
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    if config["model_type"] == "granitemoehybrid":
        config["layer_types"] = [kind.removeprefix("full_") for kind in config["layer_types"]]
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    if rope := config.pop("rope_parameters", None):
        if "full_attention" in rope:
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            rope = rope["full_attention"]
        scaling = dict(rope)
        is_neox = config["model_type"] == "gpt_neox"
        for name, older in (("rope_theta", "rotary_emb_base"), ("partial_rotary_factor", "rotary_pct")):
            if name in scaling:
                config[older if is_neox else name] = scaling.pop(name)
        if scaling["rope_type"] == "yarn":
            # It divides this by the original context, and takes no other factor.
            trained = scaling["original_max_position_embeddings"]
            config["max_position_embeddings"] = int(scaling["factor"] * trained)
        if scaling["rope_type"] == "longrope":
            original = "original_max_position_embeddings"
            config[original] = scaling.pop(original)
            scaling["type"] = scaling.pop("rope_type")
        config["rope_scaling"] = None if scaling.get("rope_type") == "default" else scaling
    return config


def golden(name: str, config: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """What transformers computes with the model of a draw."""
    parsed = (
        AutoConfig.for_model(**config)
        if options.get("exact")
        else AutoConfig.for_model(config["model_type"]).from_dict(config)
    )
    auto = AutoModelForImageTextToText if options.get("wrapper") else AutoModelForCausalLM
    model = auto.from_config(parsed, attn_implementation=options.get("attention")).float().eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        path = Path(folder) / "model.safetensors"
        tensors = load_file(path)
        shapes = {}
        around_0 = options.get("norms_around_0", False)
        for key, tensor in tensors.items():
            if not tensor.shape:
                continue  # a constant
            shapes[key] = list(tensor.shape)
            tensors[key] = torch.from_numpy(weight(key, shapes[key], norms_around_0=around_0).copy())
        save_file(tensors, path, metadata={"format": "pt"})
        model = auto.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=options.get("attention")
        ).eval()
        shapes = {
            key: shape for key, shape in shapes.items() if "vision" not in key and "projector" not in key
        }
    vocab = model.get_input_embeddings().weight.shape[0]
    ids = (np.abs(numbers(name, PROMPT)) * (vocab - 3)).astype(int) + 3
    with torch.no_grad():
        out = model(torch.tensor([ids.tolist()]), output_hidden_states=True)
        logits, states = out.logits[0], [state[0, -1] for state in out.hidden_states]
        margins = model.generate(
            torch.tensor([ids.tolist()]),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=None,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
        beams = model.generate(
            torch.tensor([ids.tolist()]),
            do_sample=False,
            num_beams=3,
            max_new_tokens=12,
            eos_token_id=None,
            pad_token_id=0,
        )
    top = torch.stack(margins.scores)[:, 0].topk(2, -1)[0]
    margin = float((top[:, 0] - top[:, 1]).min())
    assert logits.std() > 0.05, name
    file = dict(config) if options.get("legacy") else saved
    if options.get("legacy"):
        file["architectures"] = saved["architectures"]
    return {
        "config": file,
        "norms_around_0": around_0,
        "tensors": shapes,
        "input_ids": ids.tolist(),
        "positions": [0, PROMPT // 2, PROMPT - 1],
        "logits": [[round(float(x), 6) for x in logits[p]] for p in (0, PROMPT // 2, PROMPT - 1)],
        "embedding": [round(float(x), 6) for x in model.get_input_embeddings()(torch.tensor(ids[-1]))],
        "state_sizes": [len(state) for state in states],
        "last_state": [round(float(x), 6) for x in states[-1]],
        "greedy": margins.sequences[0, PROMPT:].tolist(),
        "greedy_margin": margin,
        "beams": beams[0, PROMPT:].tolist(),
    }


def main() -> None:
    import sys

    folder = Path(__file__).parents[2] / "tests/golden/families"
    made_with = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    for name, (config, options) in draws().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        made = golden(name, config, options)
        (folder / f"{name}.json").write_text(
            json.dumps({"made_with": made_with, **made}, separators=(",", ":")) + "\n"
        )
        print(name, made["config"]["architectures"], f"margin {made['greedy_margin']:.1e}", flush=True)


if __name__ == "__main__":
    main()
