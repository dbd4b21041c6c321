"""The configurations of the tiny models of `family_goldens.py`: for each family the flags that checkpoints differ in."""

from __future__ import annotations

from typing import Any

BASE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
GPT: dict[str, Any] = {
    "vocab_size": 61,
    "n_embd": 24,
    "n_head": 3,
    "n_layer": 4,
    "n_positions": 80,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GRANITE = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.3,
    "logits_scaling": 3.0,
}
YARN = {"rope_type": "yarn", "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
NO_HEAD_DIM = {"hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": None}


def base(model_type: str, **fields: Any) -> dict[str, Any]:
    """A small configuration; None leaves a field out."""
    config = {"model_type": model_type, **BASE, **fields}
    return {name: value for name, value in config.items() if value is not None or name == "sliding_window"}


def plain(model_type: str, **fields: Any) -> dict[str, Any]:
    """A small configuration of a family without `head_dim`."""
    return base(model_type, **{**NO_HEAD_DIM, **fields})


def draws() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Each model: its configuration, and how it is made."""
    tied = {"tie_word_embeddings": True}
    gemma = {"norms_around_0": True}
    legacy = {"legacy": True}
    windows = {"sliding_window": 6}
    experts = {"num_local_experts": 6, "num_experts_per_tok": 2}
    qwen_experts = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
    gemma3 = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 24,
        "num_hidden_layers": 5,
        "sliding_window": 6,
        "final_logit_softcapping": 4.0,
        "hidden_activation": "gelu_pytorch_tanh",
    }
    ministral = {
        "rope_theta": 1e6,
        "original_max_position_embeddings": 8,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
        **YARN,
    }
    oss = {**YARN, "rope_theta": 150000.0, "truncate": False, "original_max_position_embeddings": 32}
    hybrid = {
        "num_local_experts": 0,
        "shared_intermediate_size": 40,
        "mamba_n_heads": 6,
        "mamba_d_head": 8,
        "layer_types": ["attention"] * 4,
        **GRANITE,
    }
    opt = {
        "model_type": "opt",
        "vocab_size": 61,
        "hidden_size": 24,
        "ffn_dim": 40,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "max_position_embeddings": 80,
    }
    neox = {
        "model_type": "gpt_neox",
        "vocab_size": 61,
        "hidden_size": 48,
        "intermediate_size": 40,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "max_position_embeddings": 128,
    }
    falcon = {
        "model_type": "falcon",
        "vocab_size": 61,
        "hidden_size": 48,
        "num_attention_heads": 6,
        "num_hidden_layers": 4,
        "bias": False,
        "alibi": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    text = base("mistral", **windows)
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
        "head_dim": 8,
    }
    siglip = {
        "model_type": "siglip_vision_model",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
    }
    return {
        "gemma": (base("gemma", **tied), gemma),
        "gemma_mqa": (
            base("gemma", **tied, num_key_value_heads=1, head_dim=12, hidden_act="gelu"),
            gemma | legacy,
        ),
        "gemma2": (
            base(
                "gemma2",
                **tied,
                **windows,
                query_pre_attn_scalar=24,
                attn_logit_softcapping=3.0,
                final_logit_softcapping=4.0,
            ),
            gemma,
        ),
        "gemma2_plain": (base("gemma2", **tied, sliding_window=7, num_hidden_layers=3), gemma),
        "gemma3": (base("gemma3_text", **tied, **gemma3), gemma | legacy),
        "gemma3_nested": (base("gemma3_text", **tied, **gemma3), gemma),
        "gemma3_wrapper": (
            {
                "model_type": "gemma3",
                "text_config": base("gemma3_text", **gemma3),
                "vision_config": siglip,
                "mm_tokens_per_image": 4,
                "image_token_index": 60,
                "tie_word_embeddings": True,
            },
            gemma | {"wrapper": True},
        ),
        "gpt2": ({"model_type": "gpt2", **GPT}, legacy),
        "gpt2_inverse": (
            {
                "model_type": "gpt2",
                **GPT,
                "scale_attn_by_inverse_layer_idx": True,
                "activation_function": "gelu",
                "n_inner": 30,
            },
            {},
        ),
        "qwen3_moe": (base("qwen3_moe", **qwen_experts, norm_topk_prob=True, decoder_sparse_step=2), {}),
        "qwen3_moe_window": (
            base("qwen3_moe", **qwen_experts, mlp_only_layers=[0], use_sliding_window=True, sliding_window=6),
            {},
        ),
        # Of plain form, as llama.cpp's converter takes them.
        "llama3": (base("llama", rope_parameters=LLAMA3 | {"rope_theta": 5e5}), {}),
        "llama_bias": (base("llama", attention_bias=True, mlp_bias=True, **tied), {}),
        "qwen2": (base("qwen2", **tied), {}),
        "qwen3": (base("qwen3"), {}),
        "qwen2_moe_all": (
            plain("qwen2_moe", **qwen_experts, shared_expert_intermediate_size=16, norm_topk_prob=False),
            {},
        ),
        "qwen3_moe_all": (base("qwen3_moe", **qwen_experts, norm_topk_prob=True), {}),
        "phi3": (
            plain(
                "phi3",
                sliding_window=None,
                rope_parameters={
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "short_factor": [1.0, 1.25, 1.5, 1.75],
                    "long_factor": [1.5, 3.5, 5.5, 7.5],
                },
                original_max_position_embeddings=40,
            ),
            {},
        ),
        "hunyuan_plain": (base("hunyuan_v1_dense"), {}),
        "gemma2_heads": (base("gemma2", **tied, **windows, query_pre_attn_scalar=8), gemma),
        "gemma3_heads": (
            base(
                "gemma3_text",
                **tied,
                **windows,
                query_pre_attn_scalar=8,
                num_hidden_layers=7,
                rope_parameters={
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
            ),
            gemma,
        ),
        "mistral3_full": (
            {
                "model_type": "mistral3",
                "text_config": text | {"sliding_window": None},
                "vision_config": {"model_type": "pixtral", **vision},
                "image_token_index": 60,
                "tie_word_embeddings": False,
            },
            {"wrapper": True},
        ),
        "olmoe_plain": (plain("olmoe", num_experts=6, num_experts_per_tok=3), {}),
        "smollm3_plain": (base("smollm3", **tied), {}),
        "nemotron_plain": (plain("nemotron"), gemma),
        "glm_heads": (
            base("glm", hidden_size=48, attention_bias=True, rms_norm_eps=1e-6, partial_rotary_factor=0.5),
            {},
        ),
        "phi_heads": (plain("phi", partial_rotary_factor=0.5), {}),
        "mixtral": (base("mixtral", **experts, **windows), {}),
        "mixtral_three": (plain("mixtral", num_local_experts=4, num_experts_per_tok=3), {}),
        "qwen2_moe": (
            plain(
                "qwen2_moe",
                **qwen_experts,
                shared_expert_intermediate_size=30,
                mlp_only_layers=[1],
                use_sliding_window=True,
                sliding_window=6,
                max_window_layers=3,
            ),
            {},
        ),
        "olmoe": (plain("olmoe", num_experts=6, num_experts_per_tok=3, clip_qkv=0.7), {}),
        "granitemoe": (plain("granitemoe", **experts, **GRANITE), {}),
        "granitemoeshared": (
            plain("granitemoeshared", **experts, **GRANITE, shared_intermediate_size=30),
            {},
        ),
        "granite4": (plain("granitemoehybrid", **hybrid, position_embedding_type="rope"), {}),
        "granite4_nope": (plain("granitemoehybrid", **hybrid), {}),
        "gpt_oss": (base("gpt_oss", **experts, **windows, rope_parameters=oss, head_dim=16), {}),
        "ministral3": (base("ministral3", rope_parameters=ministral), {}),
        "ministral": (
            base("ministral", **windows, layer_types=["sliding_attention", "full_attention"] * 2),
            {},
        ),
        "mistral3": (
            {
                "model_type": "mistral3",
                "text_config": text,
                "vision_config": {"model_type": "pixtral", **vision},
                "image_token_index": 60,
                "tie_word_embeddings": False,
            },
            {"wrapper": True},
        ),
        "gpt_neox": ({**neox, "rotary_pct": 0.25, "rotary_emb_base": 10000}, legacy),
        "gpt_neox_serial": (
            {**neox, "rotary_pct": 0.5, "use_parallel_residual": False, "attention_bias": False},
            {},
        ),
        "opt": (opt, {}),
        "opt_350m": (
            {**opt, "word_embed_proj_dim": 16, "do_layer_norm_before": False, "activation_function": "gelu"},
            {},
        ),
        "opt_plain": ({**opt, "enable_bias": False, "layer_norm_elementwise_affine": False}, {}),
        "smollm3": (
            base("smollm3", **tied, no_rope_layer_interval=3, use_sliding_window=True, sliding_window=6),
            {},
        ),
        "granite": (plain("granite", **GRANITE, attention_bias=True, mlp_bias=True), {}),
        "olmo": (plain("olmo", clip_qkv=0.5), {}),
        "olmo2": (
            base("olmo2", head_dim=None, num_attention_heads=6, num_key_value_heads=2, hidden_size=48),
            {},
        ),
        "olmo3": (
            base(
                "olmo3",
                head_dim=None,
                hidden_size=48,
                num_hidden_layers=5,
                sliding_window=6,
                rope_theta=5e5,
                rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16},
            ),
            legacy,
        ),
        "phi": (plain("phi", qk_layernorm=True), {}),
        "phi_plain": (plain("phi", partial_rotary_factor=0.75, num_key_value_heads=1), legacy),
        "starcoder2": (plain("starcoder2", **windows, **tied, use_bias=True), {}),
        "starcoder2_plain": (plain("starcoder2", use_bias=False), {}),
        "cohere": (plain("cohere", **tied, logit_scale=0.25, attention_bias=True), {}),
        "cohere_norms": (plain("cohere", **tied, use_qk_norm=True), {}),
        "cohere2": (plain("cohere2", **tied, **windows, num_hidden_layers=5), {}),
        "stablelm": (plain("stablelm", use_qkv_bias=True), {}),
        "stablelm_12b": (
            plain("stablelm", qk_layernorm=True, use_parallel_residual=True, num_key_value_heads=1),
            {},
        ),
        "glm": (base("glm", attention_bias=True, rms_norm_eps=1e-6, partial_rotary_factor=0.5), {}),
        "glm4": (base("glm4", attention_bias=True, rms_norm_eps=1e-6, partial_rotary_factor=0.5), {}),
        "exaone4": (plain("exaone4", **windows, sliding_window_pattern=3), {}),
        "exaone4_dense": (plain("exaone4", sliding_window=None, layer_types=["full_attention"] * 4), {}),
        "seed_oss": (base("seed_oss", attention_bias=True, attention_out_bias=False), {}),
        "ernie4_5": (base("ernie4_5", **tied, use_bias=True), {}),
        "arcee": (base("arcee"), {}),
        "apertus": (
            plain(
                "apertus",
                rope_parameters=LLAMA3 | {"rope_theta": 1e4, "original_max_position_embeddings": 32},
            ),
            {},
        ),
        "hunyuan": (
            base(
                "hunyuan_v1_dense",
                rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 1000.0, "factor": 1.0},
            ),
            {},
        ),
        "nemotron": (base("nemotron"), gemma),
        "helium": (base("helium", hidden_size=48, num_key_value_heads=6), {}),
        "gptj": ({"model_type": "gptj", **GPT, "rotary_dim": 4}, legacy),
        "gpt_neo": (
            {
                "model_type": "gpt_neo",
                "vocab_size": 61,
                "hidden_size": 24,
                "num_heads": 3,
                "num_layers": 4,
                "attention_types": [[["global", "local"], 2]],
                "window_size": 6,
                "max_position_embeddings": 80,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
            legacy,
        ),
        "bloom": (
            {
                "model_type": "bloom",
                "vocab_size": 61,
                "hidden_size": 24,
                "n_head": 3,
                "n_layer": 4,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
            {},
        ),
        "falcon_7b": ({**falcon, "multi_query": True, "parallel_attn": True}, {}),
        "falcon_40b": ({**falcon, "new_decoder_architecture": True, "num_kv_heads": 2}, {}),
        "falcon_serial": ({**falcon, "multi_query": False, "parallel_attn": False, "bias": True}, legacy),
        "falcon_alibi": (
            {**falcon, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
            {},
        ),
        "gpt_bigcode": ({"model_type": "gpt_bigcode", **GPT}, {}),
        "gpt_bigcode_heads": ({"model_type": "gpt_bigcode", **GPT, "multi_query": False}, {}),
        "cwm": (base("cwm", **windows), {}),
    }
