"""Folders of GPTQ and AWQ, whose codes are packed into words of 32 bits."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from quantized_models import WIDE, Made, in_float32, llama, modules, same, write
from quantized_packing import as_torch, awq_tensors, awq_weight, gptq_tensors, gptq_weight

GPTQ_META = {
    "meta": {
        "quantizer": ["gptqmodel:2.2.0"],
        "uri": "https://github.com/modelcloud/gptqmodel",
        "damp_percent": 0.1,
        "damp_auto_increment": 0.0025,
        "static_groups": False,
        "true_sequential": True,
        "mse": 0.0,
    }
}


def autogptq_weight(stored: dict[str, np.ndarray], bits: int) -> torch.Tensor:
    """What AutoGPTQ's module of torch makes of stored tensors of version 1: its outputs for unit inputs."""
    package = importlib.util.find_spec("auto_gptq")
    assert package
    assert package.submodule_search_locations
    path = Path(package.submodule_search_locations[0]) / "nn_modules/qlinear/qlinear_cuda.py"
    spec = importlib.util.spec_from_file_location("qlinear_cuda", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inputs, outputs = stored["g_idx"].shape[0], stored["scales"].shape[1]
    group_size = inputs // stored["scales"].shape[0]
    linear = module.QuantLinear(bits, group_size, inputs, outputs, bias=False)
    for name, array in stored.items():
        setattr(linear, name, torch.from_numpy(array.copy()))
    linear.scales = linear.scales.float()
    return linear(torch.eye(inputs)).T.contiguous()


def gptq(
    folder: Path,
    *,
    bits: int = 4,
    group_size: int = 32,
    desc_act: bool = False,
    sym: bool = True,
    version: int = 1,
    lm_head: bool = False,
    dynamic: dict[str, Any] | None = None,
    config: str = "autogptq",
    **changes: Any,
) -> Made:
    """A folder of GPTQ."""
    model = llama(folder.name, **changes)
    weights, tensors, offset = in_float32(model), dict(model.state_dict()), 2 - version
    drawn = np.random.default_rng(7)
    for module in modules(model) + (["lm_head"] if lm_head else []):
        rules = [rule for pattern, rule in (dynamic or {}).items() if re.match(pattern[2:], module)]
        if rules and not rules[0]:
            continue
        settings = {"bits": bits, "group_size": group_size, "sym": sym, **(rules[0] if rules else {})}
        weight = tensors.pop(f"{module}.weight").float().numpy()
        inputs = weight.shape[1]
        size = inputs if settings["group_size"] == -1 else settings["group_size"]
        g_idx = np.arange(inputs) // size
        if desc_act:
            g_idx = g_idx[drawn.permutation(inputs)]
        stored = gptq_tensors(weight, settings["bits"], g_idx, settings["sym"], offset)
        tensors.update(as_torch(stored, module))
        weights[f"{module}.weight"] = torch.from_numpy(gptq_weight(stored, settings["bits"], offset))
        judged = stored if version == 1 else gptq_tensors(weight, settings["bits"], g_idx, settings["sym"], 1)
        same(weights[f"{module}.weight"], autogptq_weight(judged, settings["bits"]), module)
    common = {"bits": bits, "group_size": group_size, "desc_act": desc_act, "sym": sym}
    old = {
        **common,
        "damp_percent": 0.1,
        "true_sequential": True,
        "model_name_or_path": None,
        "model_file_base_name": "model",
    }
    new = {
        **common,
        "lm_head": lm_head,
        "quant_method": "gptq",
        "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
        "pack_dtype": "int32",
        **GPTQ_META,
    }
    if dynamic:
        new["dynamic"] = dynamic
    if config == "beside":
        write(folder, model, tensors, None)
        (folder / "quantize_config.json").write_text(json.dumps(old, indent=2) + "\n")
    else:
        write(folder, model, tensors, {**old, "quant_method": "gptq"} if config == "autogptq" else new)
    oracle = "AutoGPTQ 0.7.1's qlinear_cuda.py, scales widened to float32"
    if version == 2:
        oracle += ", of the same weights in version 1"
    return Made(model, weights, "model.layers.0.mlp.down_proj", oracle)


def awq(folder: Path, *, keep: list[str] | None = None, **changes: Any) -> Made:
    """A folder of AutoAWQ's GEMM version."""
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter

    model = llama(folder.name, **changes)
    weights, tensors = in_float32(model), dict(model.state_dict())
    for module in modules(model):
        if any(kept in module for kept in keep or []):
            continue
        stored = awq_tensors(tensors.pop(f"{module}.weight").float().numpy(), 32)
        of_module = as_torch(stored, module)
        tensors.update(of_module)
        weights[f"{module}.weight"] = torch.from_numpy(awq_weight(stored, 32))

        converted = AutoAWQConverter(group_size=32).process(dict(of_module))
        shape = converted[f"{module}.weight_shape"]
        scales = converted[f"{module}.weight_scale"].float()
        codes = unpack_from_int32(converted[f"{module}.weight_packed"], 4, shape)
        zeros = unpack_from_int32(converted[f"{module}.weight_zero_point"], 4, scales.shape, packed_dim=0)
        codes = codes.float().unflatten(1, (-1, 32)) - zeros.float()[:, :, None]
        same(weights[f"{module}.weight"], (codes * scales[:, :, None]).flatten(1), module)
    quantization_config = {
        "bits": 4,
        "group_size": 32,
        "modules_to_not_convert": keep,
        "quant_method": "awq",
        "version": "gemm",
        "zero_point": True,
    }
    write(folder, model, tensors, quantization_config)
    oracle = "compressed-tensors 0.20.0's AutoAWQConverter"
    return Made(model, weights, "model.layers.0.mlp.down_proj", oracle)


def folders() -> dict[str, Any]:
    """The folders of this file: a function and its arguments by name."""
    return {
        "gptq_4bit_sym": (gptq, {}),
        "gptq_4bit_asym_desc_act": (gptq, {"sym": False, "desc_act": True, **WIDE}),
        "gptq_8bit_sym_channel": (gptq, {"bits": 8, "group_size": -1}),
        "gptq_3bit_asym": (gptq, {"bits": 3, "sym": False, "head_dim": 32}),
        "gptq_2bit_asym": (gptq, {"bits": 2, "sym": False}),
        "gptq_v2": (gptq, {"sym": False, "version": 2, "config": "gptqmodel"}),
        "gptq_quantize_config": (gptq, {"sym": False, "config": "beside"}),
        "gptq_lm_head": (gptq, {"lm_head": True, "config": "gptqmodel", "tie_word_embeddings": False}),
        "gptq_dynamic": (
            gptq,
            {
                "config": "gptqmodel",
                "num_hidden_layers": 2,
                "dynamic": {
                    r"-:model\.layers\.1\.self_attn\..*": {},
                    r"+:.*\.down_proj": {"bits": 8, "group_size": -1},
                },
            },
        ),
        "awq_gemm": (awq, {"head_dim": 32}),
        "awq_modules_to_not_convert": (awq, {"keep": ["self_attn"], "tie_word_embeddings": False}),
    }
