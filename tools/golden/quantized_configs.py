"""The `quantization_config` objects of published models, by the style of who publishes them: `quantized/configs.json`.

They are written down here as the hub has them. `expected` says whether such a model is opened, or refused by the name in
`method`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quantized_config_parts import arguments, awq, bitsandbytes, compressed, gptq
from quantized_refused import refused


def opened() -> dict[str, Any]:
    """Configurations of models that open."""
    group = {"group_size": 128}
    token = {"dynamic": True, "observer": None}
    return {
        "gptq_thebloke_act_order": gptq(desc_act=True),
        "gptq_thebloke_8bit_channel": gptq(bits=8, group_size=-1, desc_act=True),
        "gptq_qwen2.5_int4": {
            "batch_size": 1,
            "bits": 4,
            "block_name_to_quantize": None,
            "cache_block_outputs": True,
            "damp_percent": 0.01,
            "dataset": None,
            "desc_act": False,
            "exllama_config": {"version": 1},
            "group_size": 128,
            "max_input_length": None,
            "model_seqlen": None,
            "module_name_preceding_first_block": None,
            "modules_in_block_to_quantize": None,
            "pad_token_id": None,
            "quant_method": "gptq",
            "sym": True,
            "tokenizer": None,
            "true_sequential": True,
            "use_cuda_fp16": False,
            "use_exllama": True,
        },
        "gptq_gptqmodel": {
            "bits": 4,
            "checkpoint_format": "gptq",
            "desc_act": True,
            "dynamic": None,
            "group_size": 128,
            "lm_head": False,
            "meta": {
                "damp_auto_increment": 0.0025,
                "damp_percent": 0.1,
                "mse": 0.0,
                "quantizer": ["gptqmodel:2.2.0"],
                "static_groups": False,
                "true_sequential": True,
                "uri": "https://github.com/modelcloud/gptqmodel",
            },
            "pack_dtype": "int32",
            "quant_method": "gptq",
            "sym": True,
        },
        "gptq_autoround": gptq(
            autoround_version="0.5.1",
            block_name_to_quantize="model.layers",
            damp_percent=0.01,
            iters=200,
            low_gpu_mem_usage=True,
            nsamples=128,
            provider="auto-round",
            seqlen=2048,
        ),
        "awq_qwen2.5": awq(),
        "awq_autoawq_old": {key: awq()[key] for key in ("bits", "group_size", "version", "zero_point")}
        | {"quant_method": "awq", "version": "GEMM"},
        "awq_mixtral_gate": awq(modules_to_not_convert=["gate"]),
        "awq_hugging_quants": {
            **awq(),
            "backend": "autoawq",
            "do_fuse": False,
            "exllama_config": None,
            "fuse_max_seq_len": None,
            "modules_to_fuse": None,
        },
        "ct_w4a16": compressed(
            "pack-quantized", arguments(4, "int", "group", actorder="weight", **group), None
        ),
        "ct_w4a16_asym": compressed(
            "pack-quantized", arguments(4, "int", "group", symmetric=False, **group), None
        ),
        "ct_w4a16_actorder_group": compressed(
            "pack-quantized", arguments(4, "int", "group", actorder="group", **group), None
        ),
        "ct_w8a16_channel": compressed("pack-quantized", arguments(8, "int", "channel"), None),
        "ct_w8a8": compressed(
            "int-quantized", arguments(8, "int", "channel"), arguments(8, "int", "token", **token)
        ),
        "ct_fp8_dynamic": compressed(
            "float-quantized",
            arguments(8, "float", "channel"),
            arguments(8, "float", "token", **token),
            ignore=["re:.*lm_head", "re:vision_model.*", "re:multi_modal_projector.*"],
        ),
        "ct_fp8_static": compressed(
            "float-quantized", arguments(8, "float", "tensor"), arguments(8, "float", "tensor")
        ),
        "ct_fp8_block": compressed(
            "float-quantized",
            arguments(8, "float", "block", block_structure=[128, 128]),
            arguments(8, "float", "group", group_size=128, **token),
        ),
        "ct_naive": compressed("naive-quantized", arguments(8, "int", "tensor"), None),
        "fp8_deepseek_v3": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
        },
        "fp8_deepseek_v3.1": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "scale_fmt": "ue8m0",
            "weight_block_size": [128, 128],
        },
        "fp8_qwen3": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "modules_to_not_convert": [
                "lm_head",
                "model.layers.0.input_layernorm",
                "model.layers.0.post_attention_layernorm",
            ],
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
        },
        "fp8_ministral": {
            "activation_scheme": "static",
            "dequantize": False,
            "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
            "quant_method": "fp8",
            "weight_block_size": None,
        },
        "mxfp4_gpt_oss": {
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
            "quant_method": "mxfp4",
        },
        "bnb_unsloth_4bit": bitsandbytes(),
        "bnb_unsloth_dynamic_4bit": bitsandbytes(
            llm_int8_skip_modules=[
                "lm_head",
                "multi_modal_projector",
                "model.layers.1.mlp",
                "model.layers.3.self_attn",
            ]
        ),
        "bnb_fp4": bitsandbytes(bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=False),
        "bnb_int8": bitsandbytes(
            _load_in_4bit=False,
            _load_in_8bit=True,
            bnb_4bit_compute_dtype="float32",
            bnb_4bit_quant_type="fp4",
            bnb_4bit_use_double_quant=False,
            load_in_4bit=False,
            load_in_8bit=True,
        ),
        "mlx_4bit": {"bits": 4, "group_size": 64},
        "mlx_8bit": {"bits": 8, "group_size": 64, "mode": "affine"},
        "mlx_3bit": {"bits": 3, "group_size": 64},
        "mlx_dwq_6bit": {"bits": 6, "group_size": 64, "mode": "affine", "lm_head": False},
        "mlx_mxfp4": {"bits": 4, "group_size": 32, "mode": "mxfp4"},
        "mlx_gpt_oss_mxfp4_q8": {
            "bits": 4,
            "group_size": 32,
            "mode": "mxfp4",
            "model.embed_tokens": {"bits": 8, "group_size": 64, "mode": "affine"},
            "model.layers.0.self_attn.q_proj": {"bits": 8, "group_size": 64, "mode": "affine"},
        },
        "mlx_mixed_4_8": {
            "bits": 4,
            "group_size": 64,
            "lm_head": {"bits": 8, "group_size": 64},
            "model.layers.0.mlp.down_proj": {"bits": 8, "group_size": 64},
        },
    }


def main() -> None:
    configs: dict[str, Any] = {
        name: {"expected": "opened", "quantization_config": config} for name, config in opened().items()
    }
    for name, (method, config) in refused().items():
        configs[name] = {"expected": "refused", "method": method, "quantization_config": config}
    body = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(config, sort_keys=True)}" for name, config in configs.items()
    )
    path = Path(__file__).parents[2] / "tests/golden/quantized/configs.json"
    path.write_text(f"{{\n{body}\n}}\n")


if __name__ == "__main__":
    main()
