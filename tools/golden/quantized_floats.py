"""Folders of compressed-tensors, FP8 and MXFP4."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from quantized_models import Made, in_float32, llama, modules, same, write


def compressed(
    folder: Path,
    *,
    weights: dict[str, Any],
    activations: dict[str, Any] | None = None,
    ignore: list[str] | None = None,
    is_ordered: bool = False,
    has_plain_zeros: bool = False,
    **changes: Any,
) -> Made:
    """A folder that compressed-tensors itself writes, as LLM Compressor does.

    With `is_ordered` the groups are of inputs here and there, as versions before 0.20 wrote them with actorder "group".
    With `has_plain_zeros` the zero points are int8, as version 0.9.2 wrote them.
    """
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams, is_module_quantized

    model = llama(folder.name, torch.bfloat16, **changes)
    expected = in_float32(model)
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    apply_quantization_config(
        model,
        QuantizationConfig(
            config_groups={"group_0": group}, ignore=["lm_head"] if ignore is None else ignore
        ),
    )
    schemes = {
        name: module.quantization_scheme
        for name, module in model.named_modules()
        if is_module_quantized(module)
    }
    drawn, orders = torch.Generator().manual_seed(7), {}
    for name, scheme in schemes.items():
        module, arguments = model.get_submodule(name), scheme.weights
        inputs = module.weight.shape[1]
        if is_ordered:
            orders[name] = torch.randperm(inputs, generator=drawn)
            module.weight.data = module.weight.data[:, orders[name]].contiguous()
        weight = module.weight.detach()
        if arguments.strategy == "block":
            rows, columns = arguments.block_structure
            padded = torch.nn.functional.pad(weight, (0, -inputs % columns, 0, -weight.shape[0] % rows))
            parts = padded.unflatten(1, (-1, columns)).unflatten(0, (-1, rows))
            low, high = parts.amin((1, 3)), parts.amax((1, 3))
        elif arguments.strategy == "tensor":
            low, high = weight.min().reshape(1), weight.max().reshape(1)
        else:
            size = arguments.group_size if arguments.strategy == "group" else inputs
            parts = weight.unflatten(1, (-1, size))
            low, high = parts.amin(2), parts.amax(2)
        scale, zero = calculate_qparams(low, high, arguments)
        module.weight_scale.data.copy_(scale)
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data.copy_(zero)
        if hasattr(module, "input_scale"):
            module.input_scale.data.fill_(0.03)
    compressor = ModelCompressor.from_pretrained_model(model)
    with torch.no_grad():
        compressor.compress_model(model)
    stored = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for name, scheme in schemes.items():
        of_module = {key[len(name) + 1 :]: stored[key] for key in stored if key.startswith(f"{name}.")}
        judge = BaseCompressor.get_value_from_registry(scheme.format)
        widened = {**of_module, "weight_scale": of_module["weight_scale"].float()}
        judged = judge.decompress(widened, scheme)["weight"].contiguous()
        if name in orders:
            places = orders[name].argsort()
            bits, shape = scheme.weights.num_bits, of_module["weight_shape"]
            codes = unpack_from_int32(of_module["weight_packed"], bits, shape)[:, places].contiguous()
            of_module["weight_packed"] = pack_to_int32(codes, bits)
            of_module["weight_g_idx"] = (places // scheme.weights.group_size).int()
            stored.update({f"{name}.{key}": tensor for key, tensor in of_module.items()})
            judged = judged[:, places].contiguous()
        if has_plain_zeros:
            of_module["weight_zero_point"] = unpack_from_int32(
                of_module["weight_zero_point"],
                scheme.weights.num_bits,
                widened["weight_scale"].shape,
                packed_dim=0,
            )
            stored[f"{name}.weight_zero_point"] = of_module["weight_zero_point"]
        expected[f"{name}.weight"] = compressed_weight(of_module, scheme.weights)
        same(expected[f"{name}.weight"], judged, name)
    plain = llama(folder.name, torch.bfloat16, **changes)
    with tempfile.TemporaryDirectory() as written:
        compressor.update_config(written)
        quantization_config = json.loads((Path(written) / "config.json").read_text())["quantization_config"]
    if ignore:
        # The library writes the names that match; many published models have the patterns.
        quantization_config["ignore"] = ignore
    if is_ordered:
        quantization_config["version"] = "0.12.2"
        quantization_config["config_groups"]["group_0"]["weights"]["actorder"] = "group"
    if has_plain_zeros:
        quantization_config["version"] = "0.9.2"
    write(folder, plain, stored, quantization_config)
    oracle = "compressed-tensors 0.20.0, written and decompressed (scales widened to float32)"
    return Made(plain, expected, list(schemes)[-1], oracle)


def compressed_weight(stored: dict[str, torch.Tensor], arguments: Any) -> torch.Tensor:
    """The float32 weight of a module of compressed-tensors, from its tensors alone."""
    bits, scale = arguments.num_bits, stored["weight_scale"].float()
    if "weight_packed" not in stored:
        codes = stored["weight"].float()
        if arguments.strategy == "block":
            rows, columns = arguments.block_structure
            scale = scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
            scale = scale[: codes.shape[0], : codes.shape[1]]
        return codes * scale

    def unpacked(words: torch.Tensor, count: int) -> torch.Tensor:
        stream = (words.long()[:, :, None] >> torch.arange(32)) & 1
        stream = stream.flatten(1)[:, : count * bits].unflatten(1, (count, bits))
        return (stream << torch.arange(bits)).sum(2) - 2 ** (bits - 1)

    rows, inputs = stored["weight_shape"].tolist()
    codes = unpacked(stored["weight_packed"], inputs)
    size = inputs // scale.shape[1]
    g_idx = stored.get("weight_g_idx", torch.arange(inputs) // size).long()
    if "weight_zero_point" in stored:
        zeros = stored["weight_zero_point"]
        if zeros.dtype == torch.int32:
            zeros = unpacked(zeros.T.contiguous(), rows).T
        codes = codes - zeros[:, g_idx]
    return codes.float() * scale[:, g_idx]


def fp8(
    folder: Path,
    *,
    block: int | None,
    scales: torch.dtype = torch.float32,
    keep: list[str] | None = None,
    **changes: Any,
) -> Made:
    """A folder of FP8 with a scale for each block, or one for each matrix."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    model = llama(folder.name, torch.bfloat16, **changes)
    expected, tensors = in_float32(model), dict(model.state_dict())
    keep = ["lm_head"] if keep is None else keep
    for module in modules(model):
        if any(kept in module for kept in keep):
            continue
        weight = tensors[f"{module}.weight"].float()
        rows, columns = weight.shape
        across = block or max(rows, columns)
        padded = torch.nn.functional.pad(weight, (0, -columns % across, 0, -rows % across))
        parts = padded.unflatten(1, (-1, across)).unflatten(0, (-1, across))
        scale = parts.abs().amax((1, 3)) / 448
        if scales == torch.float8_e8m0fnu:
            scale = scale.log2().ceil().exp2()
        scale = scale.to(scales)
        codes = (parts / scale.float()[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
        # The judge wants whole blocks: it takes the size of a block from the number of scales.
        judged = Fp8Dequantize(None)._dequantize_one(codes.flatten(2).flatten(0, 1), scale, torch.float32)
        codes = codes.flatten(2).flatten(0, 1)[:rows, :columns].contiguous()
        wide = scale.float().repeat_interleave(across, 0).repeat_interleave(across, 1)[:rows, :columns]
        expected[f"{module}.weight"] = codes.float() * wide
        same(expected[f"{module}.weight"], judged[:rows, :columns].contiguous(), module)
        tensors[f"{module}.weight"] = codes
        tensors[f"{module}.weight_scale_inv"] = scale if block else scale.reshape(())
        if not block:
            tensors[f"{module}.activation_scale"] = torch.tensor(0.03, dtype=scales)
    quantization_config: dict[str, Any] = {
        "activation_scheme": "dynamic" if block else "static",
        "quant_method": "fp8",
        "weight_block_size": [block, block] if block else None,
    }
    if block:
        quantization_config["fmt"] = "e4m3"
    else:
        quantization_config["dequantize"] = False
    if scales == torch.float8_e8m0fnu:
        quantization_config["scale_fmt"] = "ue8m0"
    if not block or keep != ["lm_head"]:
        quantization_config["modules_to_not_convert"] = keep
    write(folder, model, tensors, quantization_config)
    return Made(
        model, expected, "model.layers.0.mlp.down_proj", "transformers' Fp8Dequantize (on whole blocks)"
    )


def mxfp4(folder: Path, seed: int = 11) -> Made:
    """A gpt-oss whose experts are codes of 4 bits."""
    from transformers import GptOssConfig, GptOssForCausalLM, Mxfp4Config
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    config = GptOssConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        vocab_size=48,
        sliding_window=8,
        max_position_embeddings=64,
        initial_context_length=16,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 4.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 16,
        },
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        dtype=torch.bfloat16,
    )
    model = GptOssForCausalLM._from_config(config, attn_implementation="eager").eval()
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            around = 1.0 if key.endswith("norm.weight") else 0.0
            std = 2.0 / weight.shape[-1] ** 0.5 if weight.dim() == 2 else 0.3
            weight.copy_(around + std * torch.randn(weight.shape, generator=drawn))
    model = model.to(torch.bfloat16)
    expected, tensors = in_float32(model), dict(model.state_dict())
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, rows = tensors.pop(name).shape
        shape = (experts, rows, inputs // 32)
        blocks = torch.randint(0, 256, (*shape, 16), generator=drawn, dtype=torch.uint8)
        scales = torch.randint(121, 126, shape, generator=drawn, dtype=torch.uint8)
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks, scales
        codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2).long()
        weight = (table[codes] * (scales.float() - 127).exp2()[..., None]).flatten(-2)
        expected[name] = weight.transpose(1, 2).contiguous()
        same(expected[name], convert_moe_packed_tensors(blocks, scales, dtype=torch.float32), name)
    quantization_config = {
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
        "quant_method": "mxfp4",
    }
    write(folder, model, tensors, quantization_config)
    loaded = GptOssForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=Mxfp4Config(dequantize=True)
    )
    for name, parameter in loaded.named_parameters():
        same(expected[name], parameter.detach().float(), name)
    oracle = "transformers' convert_moe_packed_tensors, and from_pretrained with dequantize=True"
    return Made(model, expected, "model.layers.0.mlp.experts.down_proj", oracle)


def folders() -> dict[str, Any]:
    """The folders of this file: a function and its arguments by name."""
    group = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    whole = {"num_bits": 8, "type": "int", "symmetric": True}
    float8 = {"num_bits": 8, "type": "float", "symmetric": True}
    return {
        "ct_w4a16_sym": (compressed, {"weights": group}),
        "ct_w4a16_asym": (compressed, {"weights": {**group, "symmetric": False}}),
        "ct_w4a16_asym_int8_zeros": (
            compressed,
            {"weights": {**group, "symmetric": False}, "has_plain_zeros": True},
        ),
        "ct_w8a16_channel": (compressed, {"weights": {**whole, "strategy": "channel"}}),
        "ct_w4a16_actorder": (compressed, {"weights": {**group, "symmetric": False}, "is_ordered": True}),
        "ct_w8a8_int": (
            compressed,
            {
                "weights": {**whole, "strategy": "channel"},
                "activations": {**whole, "strategy": "token", "dynamic": True},
            },
        ),
        "ct_fp8_tensor": (
            compressed,
            {
                "weights": {**float8, "strategy": "tensor"},
                "activations": {**float8, "strategy": "tensor", "dynamic": False},
            },
        ),
        "ct_fp8_channel": (
            compressed,
            {
                "weights": {**float8, "strategy": "channel"},
                "activations": {**float8, "strategy": "token", "dynamic": True},
            },
        ),
        "ct_fp8_block": (
            compressed,
            {
                "intermediate_size": 48,
                "weights": {**float8, "strategy": "block", "block_structure": [32, 32]},
                "activations": {**float8, "strategy": "group", "group_size": 32, "dynamic": True},
            },
        ),
        "ct_ignore": (
            compressed,
            {
                "num_hidden_layers": 2,
                "tie_word_embeddings": False,
                "weights": group,
                "ignore": ["lm_head", "re:.*layers\\.1\\.self_attn.*", "model.layers.0.mlp.down_proj"],
            },
        ),
        "fp8_block": (fp8, {"block": 32, "intermediate_size": 96}),
        "fp8_block_partial": (fp8, {"block": 32, "intermediate_size": 48, "keep": ["lm_head", "q_proj"]}),
        "fp8_ue8m0": (fp8, {"block": 128, "scales": torch.float8_e8m0fnu}),
        "fp8_tensor_static": (fp8, {"block": None, "scales": torch.bfloat16, "tie_word_embeddings": False}),
        "mxfp4_gpt_oss": (mxfp4, {}),
    }
