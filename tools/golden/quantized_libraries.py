"""Folders that bitsandbytes and MLX write themselves."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from quantized_models import Made, in_float32, llama, same
from safetensors.torch import load_file


def bitsandbytes(
    folder: Path, *, options: dict[str, Any], dtype: torch.dtype = torch.bfloat16, **changes: Any
) -> Made:
    """A folder that transformers writes after it has quantized a model with bitsandbytes."""
    from bitsandbytes.functional import QuantState, dequantize_4bit, int8_vectorwise_dequant
    from transformers import BitsAndBytesConfig, LlamaForCausalLM

    model = llama(folder.name, dtype, **{"hidden_size": 64, "head_dim": 16, **changes})
    expected = in_float32(model)
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        quantized = LlamaForCausalLM.from_pretrained(
            plain, quantization_config=BitsAndBytesConfig(**options), dtype=dtype, device_map="cpu"
        )
        quantized.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    stored = load_file(folder / "model.safetensors")
    for name in expected:
        if f"{name}.quant_map" in stored:
            ours = nf4_weight(stored, name)
            parts = {
                key[len(name) + 1 :]: tensor for key, tensor in stored.items() if key.startswith(f"{name}.")
            }
            state = QuantState.from_dict(parts, torch.device("cpu"))
            state.dtype = torch.float32
            # FP4's code 8 is 0 in the file's table and -0 in the library's kernel: the file counts.
            same(ours, dequantize_4bit(stored[name], state) + 0.0, name)
            expected[name] = ours
        elif (scale := stored.get(name.removesuffix("weight") + "SCB")) is not None:
            ours = stored[name].float() * scale[:, None] * torch.tensor(1 / 127, dtype=torch.float32)
            same(ours, int8_vectorwise_dequant(stored[name], scale), name)
            expected[name] = ours
    return Made(model, expected, "model.layers.0.mlp.down_proj", "bitsandbytes 0.50.2, in float32")


def nf4_weight(stored: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """The float32 weight of a matrix of 4 bits, from its tensors alone."""
    key = next(key for key in stored if key.startswith(f"{name}.quant_state."))
    state = json.loads(stored[key].numpy().tobytes())
    absmax = stored[f"{name}.absmax"]
    if absmax.dtype == torch.uint8:
        of_block = torch.arange(len(absmax)) // state["nested_blocksize"]
        absmax = stored[f"{name}.nested_quant_map"][absmax.long()] * stored[f"{name}.nested_absmax"][of_block]
        absmax = absmax + torch.tensor(state["nested_offset"], dtype=torch.float32)
    packed = stored[name].flatten()
    codes = torch.stack([packed >> 4, packed & 15], -1).flatten().long()
    of_weight = torch.arange(len(codes)) // state["blocksize"]
    values = stored[f"{name}.quant_map"][codes] * absmax[of_weight]
    return values.reshape(state["shape"])


def mlx(
    folder: Path,
    *,
    bits: int,
    group_size: int,
    rules: dict[str, dict[str, int]] | None = None,
    **changes: Any,
) -> Made:
    """A folder that mlx-lm writes."""
    import mlx.core as mx
    from mlx_lm import utils

    model = llama(folder.name, **{"hidden_size": 64, **changes})
    expected = in_float32(model)
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        # mlx-lm writes back the configuration that it read.
        converted, config = utils.load_model(Path(plain))

        def predicate(path: str, module: Any) -> bool | dict[str, int]:
            return next((rule for suffix, rule in (rules or {}).items() if path.endswith(suffix)), True)

        converted, config = utils.quantize_model(
            converted, config, group_size, bits, quant_predicate=predicate if rules else None
        )
        utils.save_model(folder, converted)
        utils.save_config(config, folder / "config.json")
    (folder / "model.safetensors.index.json").unlink()
    stored = load_file(folder / "model.safetensors")
    for name in expected:
        module = name.removesuffix(".weight")
        if f"{module}.scales" not in stored:
            same(expected[name], stored[name].float(), name)
            continue
        settings = {"bits": bits, "group_size": group_size}
        settings.update(config["quantization"].get(module) or {})
        scales, biases = stored[f"{module}.scales"].float(), stored[f"{module}.biases"].float()
        width = settings["bits"]
        words = torch.from_numpy(stored[name].numpy().astype(np.int64))
        stream = ((words[:, :, None] >> torch.arange(32)) & 1).flatten(1).unflatten(1, (-1, width))
        codes = (stream << torch.arange(width)).sum(2).float().unflatten(1, (-1, settings["group_size"]))
        expected[name] = (codes * scales[:, :, None] + biases[:, :, None]).flatten(1)
        judged = mx.dequantize(
            mx.array(stored[name].numpy()),
            mx.array(scales.numpy()),
            mx.array(biases.numpy()),
            group_size=settings["group_size"],
            bits=width,
        )
        same(expected[name], torch.from_numpy(np.array(judged)), name)
    return Made(model, expected, "model.layers.0.mlp.down_proj", "mlx 0.32.4's dequantize, scales widened")


def folders() -> dict[str, Any]:
    """The folders of this file: a function and its arguments by name."""
    nf4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.bfloat16}
    nested = {**nf4, "bnb_4bit_use_double_quant": True}
    return {
        "bnb_nf4": (bitsandbytes, {"options": nf4, "tie_word_embeddings": False}),
        # More than one block of scales a matrix.
        "bnb_nf4_double_quant": (
            bitsandbytes,
            {"options": nested, "dtype": torch.float16, "intermediate_size": 320},
        ),
        "bnb_fp4": (bitsandbytes, {"options": {**nf4, "bnb_4bit_quant_type": "fp4"}}),
        "bnb_int8": (
            bitsandbytes,
            {"options": {"load_in_8bit": True}, "dtype": torch.float16, "hidden_size": 32},
        ),
        "mlx_4bit": (mlx, {"bits": 4, "group_size": 32}),
        "mlx_8bit": (mlx, {"bits": 8, "group_size": 64, "tie_word_embeddings": False}),
        "mlx_mixed": (
            mlx,
            {"bits": 4, "group_size": 32, "rules": {"down_proj": {"bits": 8, "group_size": 64}}},
        ),
    }
