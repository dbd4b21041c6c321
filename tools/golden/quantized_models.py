"""Tiny models whose weights are quantized: what each folder of `tests/golden/quantized/` is made from."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "head_dim": 16}
WIDE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32}


@dataclass
class Made:
    """A folder that is written, the float32 weights it stands for, and who agreed with them."""

    model: Any
    weights: dict[str, torch.Tensor]
    matrix: str
    oracle: str


def llama(name: str, dtype: torch.dtype = torch.float16, **changes: Any) -> LlamaForCausalLM:
    """A llama whose weights are drawn from its name, rounded to `dtype`, with groups that are off zero."""
    config = LlamaConfig(
        **{
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "vocab_size": 48,
            "max_position_embeddings": 64,
            "tie_word_embeddings": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "dtype": dtype,
            **SMALL,
            **changes,
        }
    )
    model = LlamaForCausalLM(config).eval()
    drawn = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.copy_(1 + 0.2 * torch.randn(weight.shape, generator=drawn))
                continue
            weight.normal_(std=1.0 if "embed" in key else 2.0 / weight.shape[1] ** 0.5, generator=drawn)
            if "_proj" in key:
                shifts = torch.randn((weight.shape[0], weight.shape[1] // 16, 1), generator=drawn)
                shifts = shifts.expand(-1, -1, 16).reshape(weight.shape)
                weight.add_(0.5 / weight.shape[1] ** 0.5 * shifts)
    return model.to(dtype)


def modules(model: torch.nn.Module) -> list[str]:
    """The names of the linear modules, but the head."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    ]


def in_float32(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a model in float32, where a tied head counts once."""
    return {name: weight.detach().float().clone() for name, weight in model.named_parameters()}


def write(
    folder: Path,
    model: Any,
    tensors: dict[str, torch.Tensor],
    quantization_config: dict[str, Any] | None,
) -> None:
    """Writes config.json and model.safetensors as a hub's folder has them."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**json.loads(model.config.to_json_string()), "architectures": [type(model).__name__]}
    config["dtype"] = str(model.dtype).removeprefix("torch.")
    if quantization_config is not None:
        config["quantization_config"] = quantization_config
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tensors = {
        name: tensor.contiguous()
        for name, tensor in tensors.items()
        if name != "lm_head.weight" or not model.config.tie_word_embeddings
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_weights(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> Any:
    """A float32 copy of a model with other weights."""
    plain = type(model)._from_config(model.config, attn_implementation=model.config._attn_implementation)
    plain = plain.float().eval()
    parameters = dict(plain.named_parameters())
    assert parameters.keys() == weights.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    return plain


def same(ours: torch.Tensor, judged: torch.Tensor, what: str) -> None:
    """Fails where two weights differ in a bit."""
    assert ours.dtype == judged.dtype == torch.float32, what
    assert ours.shape == judged.shape, (what, ours.shape, judged.shape)
    assert np.array_equal(ours.numpy().view(np.uint32), judged.contiguous().numpy().view(np.uint32)), what
