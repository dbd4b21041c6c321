"""Parts of the `quantization_config` objects of published models."""

from __future__ import annotations

from typing import Any


def compressed(
    format: str, weights: dict[str, Any], activations: dict[str, Any] | None, **others: Any
) -> dict[str, Any]:
    """A configuration as LLM Compressor writes it."""
    return {
        "config_groups": {
            "group_0": {
                "input_activations": activations,
                "output_activations": None,
                "targets": ["Linear"],
                "weights": weights,
            }
        },
        "format": format,
        "global_compression_ratio": None,
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        **others,
    }


def arguments(
    num_bits: int, type: str, strategy: str, *, symmetric: bool = True, **others: Any
) -> dict[str, Any]:
    """The arguments of weights or activations of compressed-tensors."""
    return {
        "actorder": None,
        "block_structure": None,
        "dynamic": False,
        "group_size": None,
        "num_bits": num_bits,
        "observer": "minmax",
        "observer_kwargs": {},
        "strategy": strategy,
        "symmetric": symmetric,
        "type": type,
        **others,
    }


def gptq(**others: Any) -> dict[str, Any]:
    """A configuration as AutoGPTQ writes it."""
    return {
        "bits": 4,
        "damp_percent": 0.1,
        "desc_act": False,
        "group_size": 128,
        "model_file_base_name": "model",
        "model_name_or_path": None,
        "quant_method": "gptq",
        "sym": True,
        "true_sequential": True,
        **others,
    }


def awq(**others: Any) -> dict[str, Any]:
    """A configuration as AutoAWQ writes it."""
    return {
        "bits": 4,
        "group_size": 128,
        "modules_to_not_convert": None,
        "quant_method": "awq",
        "version": "gemm",
        "zero_point": True,
        **others,
    }


def bitsandbytes(**others: Any) -> dict[str, Any]:
    """A configuration as transformers writes it for bitsandbytes."""
    return {
        "_load_in_4bit": True,
        "_load_in_8bit": False,
        "bnb_4bit_compute_dtype": "bfloat16",
        "bnb_4bit_quant_storage": "uint8",
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "llm_int8_enable_fp32_cpu_offload": False,
        "llm_int8_has_fp16_weight": False,
        "llm_int8_skip_modules": None,
        "llm_int8_threshold": 6.0,
        "load_in_4bit": True,
        "load_in_8bit": False,
        "quant_method": "bitsandbytes",
        **others,
    }
