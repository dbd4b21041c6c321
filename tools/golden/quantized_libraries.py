"""Folders that bitsandbytes and MLX write themselves."""

from __future__ import annotations

import json
import tempfile
import zlib
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
    mode: str = "affine",
    rules: dict[str, dict[str, Any]] | None = None,
    is_moe: bool = False,
    **changes: Any,
) -> Made:
    """A folder that mlx-lm writes."""
    from mlx_lm import utils

    model = qwen3_moe(folder.name) if is_moe else llama(folder.name, **{"hidden_size": 64, **changes})
    expected = in_float32(model)
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        if is_moe:
            # The fields of transformers 4, as published models have them.
            path = Path(plain) / "config.json"
            fields = {"num_experts": model.config.num_experts, "rope_theta": 10000.0}
            path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
        # mlx-lm writes back the configuration that it read.
        converted, config = utils.load_model(Path(plain))

        def predicate(path: str, module: Any) -> bool | dict[str, Any]:
            own = next((rule for suffix, rule in (rules or {}).items() if path.endswith(suffix)), True)
            return own if hasattr(module, "to_quantized") else False

        converted, config = utils.quantize_model(
            converted, config, group_size, bits, mode=mode, quant_predicate=predicate if rules else None
        )
        utils.save_model(folder, converted)
        utils.save_config(config, folder / "config.json")
    (folder / "model.safetensors.index.json").unlink()
    stored = load_file(folder / "model.safetensors")
    settings = {"bits": bits, "group_size": group_size, "mode": mode}

    def weight(module: str) -> torch.Tensor:
        own = config["quantization"].get(module) or {}
        return mlx_weight(stored, module, {**settings, **own})

    for name in expected:
        module = name.removesuffix(".weight")
        scope = module.rsplit(".", 1)[0].replace(".experts", ".switch_mlp")
        if module.endswith("experts.gate_up_proj"):
            expected[name] = torch.cat([weight(f"{scope}.gate_proj"), weight(f"{scope}.up_proj")], 1)
        elif module.endswith("experts.down_proj"):
            expected[name] = weight(f"{scope}.down_proj")
        elif f"{module}.scales" in stored:
            expected[name] = weight(module)
        else:
            same(expected[name], stored[name].float(), name)
    matrix = "model.layers.0.self_attn.o_proj" if is_moe else "model.layers.0.mlp.down_proj"
    return Made(model, expected, matrix, "mlx 0.32.4's dequantize, scales widened")


def mlx_weight(stored: dict[str, torch.Tensor], module: str, settings: dict[str, Any]) -> torch.Tensor:
    """The float32 weight of a matrix of MLX or of a stack, from its tensors alone, as MLX computes it."""
    import mlx.core as mx

    width, group_size = settings["bits"], settings["group_size"]
    words = torch.from_numpy(stored[f"{module}.weight"].numpy().astype(np.int64))
    stream = ((words[..., None] >> torch.arange(32)) & 1).flatten(-2).unflatten(-1, (-1, width))
    codes = (stream << torch.arange(width)).sum(-1).unflatten(-1, (-1, group_size))
    scales = stored[f"{module}.scales"]
    packed = mx.array(stored[f"{module}.weight"].numpy())
    if settings["mode"] == "mxfp4":
        table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
        ours = (table[codes] * (scales.float() - 127).exp2()[..., None]).flatten(-2)
        judged = mx.dequantize(packed, mx.array(scales.numpy()), mode="mxfp4", dtype=mx.float32)
    else:
        scales, biases = scales.float(), stored[f"{module}.biases"].float()
        ours = (codes.float() * scales[..., None] + biases[..., None]).flatten(-2)
        arrays = packed, mx.array(scales.numpy()), mx.array(biases.numpy())
        judged = mx.dequantize(*arrays, group_size=group_size, bits=width)
    same(ours, torch.from_numpy(np.array(judged)), module)
    return ours


def qwen3_moe(name: str) -> Any:
    """A mixture of experts, drawn from its name."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        hidden_size=64,
        intermediate_size=96,
        moe_intermediate_size=32,
        num_experts=4,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        num_hidden_layers=2,
        mlp_only_layers=[1],
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        vocab_size=48,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        dtype=torch.float16,
    )
    model = Qwen3MoeForCausalLM(config).eval()
    drawn = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.copy_(1 + 0.2 * torch.randn(weight.shape, generator=drawn))
            else:
                weight.normal_(std=1.0 if "embed" in key else 2.0 / weight.shape[-1] ** 0.5, generator=drawn)
    return model.half()


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
        "mlx_2bit": (mlx, {"bits": 2, "group_size": 32}),
        "mlx_3bit": (mlx, {"bits": 3, "group_size": 64, "intermediate_size": 128}),
        "mlx_5bit": (mlx, {"bits": 5, "group_size": 32, "tie_word_embeddings": False}),
        "mlx_6bit": (mlx, {"bits": 6, "group_size": 128, "hidden_size": 128, "intermediate_size": 128}),
        "mlx_experts": (
            mlx,
            {
                "bits": 4,
                "group_size": 32,
                "is_moe": True,
                "rules": {"mlp.gate": {"bits": 8, "group_size": 64}},
            },
        ),
        "mlx_mxfp4": (
            mlx,
            {
                "bits": 4,
                "group_size": 32,
                "mode": "mxfp4",
                "rules": {"q_proj": {"bits": 8, "group_size": 64, "mode": "affine"}, "down_proj": False},
            },
        ),
        "mlx_mixed": (
            mlx,
            {"bits": 4, "group_size": 32, "rules": {"down_proj": {"bits": 8, "group_size": 64}}},
        ),
    }
