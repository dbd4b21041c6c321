"""The `quantization_config` objects of published models that do not open."""

from __future__ import annotations

from typing import Any

from quantized_config_parts import arguments, awq, compressed, gptq


def refused() -> dict[str, tuple[str, dict[str, Any]]]:
    """The method by its name, and the configuration, of models that do not open."""
    fp8 = arguments(8, "float", "tensor")
    return {
        "hqq": (
            "hqq",
            {
                "quant_config": {
                    "offload_meta": False,
                    "scale_quant_params": None,
                    "weight_quant_params": {
                        "axis": 1,
                        "channel_wise": True,
                        "group_size": 64,
                        "nbits": 4,
                        "optimize": True,
                        "round_zero": True,
                        "view_as_float": False,
                    },
                    "zero_quant_params": None,
                },
                "quant_method": "hqq",
                "skip_modules": ["lm_head"],
            },
        ),
        "torchao": (
            "torchao",
            {
                "include_input_output_embeddings": False,
                "modules_to_not_convert": None,
                "quant_method": "torchao",
                "quant_type": {
                    "default": {
                        "_data": {"group_size": 128, "set_inductor_config": True},
                        "_type": "Int4WeightOnlyConfig",
                        "_version": 1,
                    }
                },
                "quant_type_kwargs": {},
                "untie_embedding_weights": False,
            },
        ),
        "quanto": (
            "quanto",
            {
                "activations": None,
                "modules_to_not_convert": None,
                "quant_method": "quanto",
                "weights": "int8",
            },
        ),
        "aqlm": (
            "aqlm",
            {
                "in_group_size": 8,
                "linear_weights_not_to_quantize": [
                    "model.layers.0.input_layernorm.weight",
                    "lm_head.weight",
                ],
                "nbits_per_codebook": 16,
                "num_codebooks": 1,
                "out_group_size": 1,
                "quant_method": "aqlm",
            },
        ),
        "exl2": (
            "exl2",
            {
                "bits": 4.0,
                "calibration": {"dataset": "(default)", "length": 2048, "rows": 115},
                "head_bits": 6,
                "quant_method": "exl2",
                "version": "0.1.8",
            },
        ),
        "exl3": (
            "exl3",
            {
                "bits": 4.0,
                "calibration": {"cols": 2048, "rows": 128},
                "head_bits": 6,
                "quant_method": "exl3",
                "version": "0.0.1",
            },
        ),
        "nvfp4_compressed_tensors": (
            "nvfp4-pack-quantized",
            compressed(
                "nvfp4-pack-quantized",
                arguments(4, "float", "tensor_group", group_size=16),
                arguments(4, "float", "tensor_group", group_size=16, dynamic="local"),
            ),
        ),
        "nvfp4_modelopt": (
            "modelopt",
            {
                "config_groups": {
                    "group_0": {
                        "input_activations": {
                            "dynamic": False,
                            "group_size": 16,
                            "num_bits": 4,
                            "type": "float",
                        },
                        "targets": ["Linear"],
                        "weights": {"dynamic": False, "group_size": 16, "num_bits": 4, "type": "float"},
                    }
                },
                "ignore": ["lm_head"],
                "producer": {"name": "modelopt", "version": "0.29.0"},
                "quant_algo": "NVFP4",
                "quant_method": "modelopt",
            },
        ),
        "ct_kv_cache": (
            "kv_cache_scheme",
            compressed("float-quantized", fp8, fp8, kv_cache_scheme=fp8),
        ),
        "ct_sparse24": (
            "marlin-24",
            compressed("marlin-24", arguments(4, "int", "group", group_size=128), None),
        ),
        "bitnet": (
            "bitnet",
            {
                "linear_class": "autobitlinear",
                "quant_method": "bitnet",
                "quantization_mode": "offline",
            },
        ),
        "eetq": ("eetq", {"modules_to_not_convert": None, "quant_method": "eetq", "weights": "int8"}),
        "vptq": (
            "vptq",
            {
                "config_for_layers": {
                    "model.layers.0.mlp.down_proj": {
                        "bias": None,
                        "enable_norm": True,
                        "enable_perm": False,
                        "group_num": 1,
                        "group_size": 14336,
                        "in_features": 14336,
                        "indices_as_float": False,
                        "is_indice_packed": True,
                        "num_centroids": [-1, 65536],
                        "num_res_centroids": [-1, 256],
                        "out_features": 4096,
                        "outlier_size": 0,
                        "vector_lens": [-1, 8],
                    }
                },
                "quant_method": "vptq",
            },
        ),
        "spqr": (
            "spqr",
            {
                "beta1": 16,
                "beta2": 16,
                "bits": 3,
                "modules_to_not_convert": ["lm_head"],
                "quant_method": "spqr",
                "shapes": {"model.layers.0.self_attn.q_proj.dense_weights.shape": 524288},
            },
        ),
        "higgs": (
            "higgs",
            {
                "bits": 4,
                "group_size": 256,
                "hadamard_size": 1024,
                "modules_to_not_convert": ["lm_head"],
                "p": 2,
                "quant_method": "higgs",
                "tune_metadata": {},
            },
        ),
        "fbgemm_fp8": (
            "fbgemm_fp8",
            {
                "activation_scale_ub": 1200.0,
                "modules_to_not_convert": ["model.layers.0.self_attn", "lm_head"],
                "quant_method": "fbgemm_fp8",
            },
        ),
        "fp_quant": (
            "fp_quant",
            {
                "backward_dtype": "bf16",
                "forward_dtype": "mxfp4",
                "forward_method": "abs_max",
                "hadamard_group_size": 32,
                "modules_to_not_convert": ["lm_head"],
                "quant_method": "fp_quant",
                "store_master_weights": False,
            },
        ),
        "quark": (
            "quark",
            {
                "algo_config": None,
                "exclude": ["lm_head"],
                "export": {"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized"},
                "global_quant_config": {
                    "input_tensors": None,
                    "weight": {"dtype": "uint4", "group_size": 128, "qscheme": "per_group"},
                },
                "quant_method": "quark",
            },
        ),
        "auto_round": (
            "auto-round",
            {
                "autoround_version": "0.6.0",
                "bits": 4,
                "data_type": "int",
                "group_size": 128,
                "packing_format": "auto_round:auto_gptq",
                "quant_method": "auto-round",
                "sym": True,
            },
        ),
        "awq_gemv": ("gemv", awq(version="gemv")),
        "awq_gemv_fast": ("gemv_fast", awq(version="gemv_fast")),
        "awq_marlin": ("marlin", awq(version="marlin", zero_point=False)),
        "awq_llm_awq": ("llm-awq", awq(backend="llm-awq", version=None)),
        "awq_exllama": ("exllama", awq(version="exllama")),
        "gptq_marlin": ("marlin", gptq(checkpoint_format="marlin", is_marlin_format=True)),
        "mlx_mxfp8": ("mxfp8", {"bits": 8, "group_size": 32, "mode": "mxfp8"}),
        "mlx_nvfp4_layer": (
            "nvfp4",
            {
                "bits": 4,
                "group_size": 64,
                "mode": "affine",
                "model.layers.0.mlp.up_proj": {"bits": 4, "group_size": 16, "mode": "nvfp4"},
            },
        ),
        "mlx_nvfp4": ("nvfp4", {"bits": 4, "group_size": 16, "mode": "nvfp4"}),
        "unknown": ("qserve", {"quant_method": "qserve", "wbits": 4}),
    }
