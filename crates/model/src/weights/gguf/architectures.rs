//! The table of llama.cpp's architectures: the family of each, the names of its tensors there and here, the
//! order of their rows, and what its config.json has beside the common fields.

use serde_json::{Value, json};

use super::architecture::{Architecture, ExpertNames, Rows};
use super::implied::{cohere, experts, gemma, granite, set, sparse_experts, window};
use super::t5::{T5, T5_GATED, UMT5, UMT5_GATED};

pub(super) const LLAMA: Architecture = Architecture {
    name: "llama",
    class: "LlamaForCausalLM",
    model_type: "llama",
    layers: "model.layers",
    sides: &[],
    names: &[],
    experts: ExpertNames { scope: "mlp", parts: ["gate_proj", "up_proj", "down_proj"], router: "mlp.gate" },
    rows: Rows::Pairs,
    one_plus: false,
    layer_norm: false,
    config: |_, _| Ok(()),
};

/// Llama with experts.
const MIXTRAL: Architecture = Architecture {
    class: "MixtralForCausalLM",
    model_type: "mixtral",
    experts: ExpertNames {
        scope: "block_sparse_moe",
        parts: ["w1", "w3", "w2"],
        router: "block_sparse_moe.gate",
    },
    config: experts,
    ..LLAMA
};

const QWEN2: Architecture =
    Architecture { name: "qwen2", class: "Qwen2ForCausalLM", model_type: "qwen2", rows: Rows::Same, ..LLAMA };

const GEMMA2: Architecture = Architecture {
    name: "gemma2",
    class: "Gemma2ForCausalLM",
    model_type: "gemma2",
    names: &[
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
    ],
    rows: Rows::Same,
    one_plus: true,
    config: gemma,
    ..LLAMA
};

const OLMO2: Architecture = Architecture {
    name: "olmo2",
    class: "Olmo2ForCausalLM",
    model_type: "olmo2",
    names: &[
        ("post_attention_norm", "post_attention_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
    ],
    rows: Rows::Same,
    ..LLAMA
};

/// `OLMo` 2 with a window.
const OLMO3: Architecture =
    Architecture { class: "Olmo3ForCausalLM", model_type: "olmo3", config: window, ..OLMO2 };

const GRANITE: Architecture = Architecture {
    name: "granite",
    class: "GraniteForCausalLM",
    model_type: "granite",
    config: granite,
    ..LLAMA
};

const GRANITE_MOE: Architecture = Architecture {
    name: "granitemoe",
    class: "GraniteMoeForCausalLM",
    model_type: "granitemoe",
    names: &[("ffn_down_shexp", "shared_mlp.output_linear")],
    experts: ExpertNames {
        scope: "block_sparse_moe",
        router: "block_sparse_moe.router.layer",
        ..LLAMA.experts
    },
    ..GRANITE
};

/// The same with an expert of all tokens.
const GRANITE_MOE_SHARED: Architecture =
    Architecture { class: "GraniteMoeSharedForCausalLM", model_type: "granitemoeshared", ..GRANITE_MOE };

const GPT2: Architecture = Architecture {
    name: "gpt2",
    class: "GPT2LMHeadModel",
    model_type: "gpt2",
    layers: "transformer.h",
    names: &[
        ("token_embd", "transformer.wte"),
        ("position_embd", "transformer.wpe"),
        ("output_norm", "transformer.ln_f"),
        ("attn_norm", "ln_1"),
        ("attn_qkv", "attn.c_attn"),
        ("attn_output", "attn.c_proj"),
        ("ffn_norm", "ln_2"),
        ("ffn_up", "mlp.c_fc"),
        ("ffn_down", "mlp.c_proj"),
    ],
    rows: Rows::Same,
    layer_norm: true,
    ..LLAMA
};

const BLOOM: Architecture = Architecture {
    name: "bloom",
    class: "BloomForCausalLM",
    model_type: "bloom",
    layers: "transformer.h",
    names: &[
        ("token_embd", "transformer.word_embeddings"),
        ("token_embd_norm", "transformer.word_embeddings_layernorm"),
        ("output_norm", "transformer.ln_f"),
        ("attn_qkv", "self_attention.query_key_value"),
        ("attn_output", "self_attention.dense"),
        ("ffn_up", "mlp.dense_h_to_4h"),
        ("ffn_down", "mlp.dense_4h_to_h"),
    ],
    rows: Rows::Ungrouped,
    layer_norm: true,
    ..LLAMA
};

const GLM: Architecture = Architecture {
    name: "chatglm",
    class: "GlmForCausalLM",
    model_type: "glm",
    names: &[("ffn_up", "mlp.gate_up_proj")],
    rows: Rows::Same,
    ..LLAMA
};

const COHERE: Architecture = Architecture {
    name: "command-r",
    class: "CohereForCausalLM",
    model_type: "cohere",
    rows: Rows::Same,
    layer_norm: true,
    config: cohere,
    ..LLAMA
};

/// The table: an entry for each architecture, and those that [`find`] chooses by what the file has.
pub(super) const ARCHITECTURES: &[Architecture] = &[
    LLAMA,
    MIXTRAL,
    QWEN2,
    Architecture {
        name: "qwen2moe",
        class: "Qwen2MoeForCausalLM",
        model_type: "qwen2_moe",
        names: &[
            ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
            ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
            ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
        ],
        config: |model, config| {
            let width = model.rows_of("ffn_up_shexp")?;
            set(config, "shared_expert_intermediate_size", json!(width))?;
            sparse_experts(model, config, false)
        },
        ..QWEN2
    },
    Architecture { name: "qwen3", class: "Qwen3ForCausalLM", model_type: "qwen3", ..QWEN2 },
    Architecture {
        name: "qwen3moe",
        class: "Qwen3MoeForCausalLM",
        model_type: "qwen3_moe",
        config: |model, config| sparse_experts(model, config, true),
        ..QWEN2
    },
    Architecture {
        name: "gemma",
        class: "GemmaForCausalLM",
        model_type: "gemma",
        rows: Rows::Same,
        one_plus: true,
        ..LLAMA
    },
    GEMMA2,
    Architecture {
        name: "gemma3",
        class: "Gemma3ForCausalLM",
        model_type: "gemma3_text",
        config: |model, config| {
            gemma(model, config)?;
            window(model, config)?;
            let base = model.float("rope.freq_base_swa")?.unwrap_or(10_000.0);
            set(config, "rope_local_base_freq", json!(base))
        },
        ..GEMMA2
    },
    Architecture {
        name: "phi2",
        class: "PhiForCausalLM",
        model_type: "phi",
        names: &[
            ("output_norm", "model.final_layernorm"),
            ("attn_output", "self_attn.dense"),
            ("ffn_up", "mlp.fc1"),
            ("ffn_down", "mlp.fc2"),
        ],
        layer_norm: true,
        ..QWEN2
    },
    Architecture {
        name: "phi3",
        class: "Phi3ForCausalLM",
        model_type: "phi3",
        names: &[("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")],
        config: |model, config| {
            // Files say 0 for none.
            let size = model.count("attention.sliding_window")?.filter(|&size| size > 0);
            set(config, "sliding_window", json!(size))?;
            let positions = model.count("rope.scaling.original_context_length")?;
            set(
                config,
                "original_max_position_embeddings",
                json!(positions.or(model.count("context_length")?)),
            )
        },
        ..QWEN2
    },
    GPT2,
    Architecture { name: "starcoder", class: "GPTBigCodeForCausalLM", model_type: "gpt_bigcode", ..GPT2 },
    Architecture {
        name: "gptneox",
        class: "GPTNeoXForCausalLM",
        model_type: "gpt_neox",
        layers: "gpt_neox.layers",
        names: &[
            ("token_embd", "gpt_neox.embed_in"),
            ("output_norm", "gpt_neox.final_layer_norm"),
            ("output", "embed_out"),
            ("attn_qkv", "attention.query_key_value"),
            ("attn_output", "attention.dense"),
            ("ffn_up", "mlp.dense_h_to_4h"),
            ("ffn_down", "mlp.dense_4h_to_h"),
        ],
        config: |model, config| {
            set(config, "use_parallel_residual", json!(model.flag("use_parallel_residual")?.unwrap_or(true)))
        },
        ..BLOOM
    },
    BLOOM,
    Architecture {
        name: "falcon",
        class: "FalconForCausalLM",
        model_type: "falcon",
        config: |model, config| {
            let is_new = model.num_kv_heads()? > 1;
            set(config, "new_decoder_architecture", json!(is_new))?;
            set(config, "multi_query", json!(!is_new))?;
            set(config, "num_ln_in_parallel_attn", json!(if is_new { Some(1) } else { None }))
        },
        names: &[
            ("token_embd", "transformer.word_embeddings"),
            ("output_norm", "transformer.ln_f"),
            ("attn_norm", "input_layernorm"),
            ("attn_qkv", "self_attention.query_key_value"),
            ("attn_output", "self_attention.dense"),
            ("ffn_up", "mlp.dense_h_to_4h"),
            ("ffn_down", "mlp.dense_4h_to_h"),
        ],
        ..BLOOM
    },
    Architecture {
        name: "falcon",
        config: |_, config| {
            set(config, "new_decoder_architecture", json!(true))?;
            set(config, "num_ln_in_parallel_attn", json!(2))
        },
        class: "FalconForCausalLM",
        model_type: "falcon",
        names: &[
            ("token_embd", "transformer.word_embeddings"),
            ("output_norm", "transformer.ln_f"),
            ("attn_norm", "ln_mlp"),
            ("attn_norm_2", "ln_attn"),
            ("attn_qkv", "self_attention.query_key_value"),
            ("attn_output", "self_attention.dense"),
            ("ffn_up", "mlp.dense_h_to_4h"),
            ("ffn_down", "mlp.dense_4h_to_h"),
        ],
        ..BLOOM
    },
    Architecture { name: "smollm3", class: "SmolLM3ForCausalLM", model_type: "smollm3", ..LLAMA },
    Architecture { name: "arcee", class: "ArceeForCausalLM", model_type: "arcee", ..LLAMA },
    GRANITE,
    GRANITE_MOE,
    GRANITE_MOE_SHARED,
    Architecture {
        name: "mistral3",
        class: "Ministral3ForCausalLM",
        model_type: "ministral3",
        config: |model, config| {
            let beta = model.float("attention.temperature_scale")?;
            let Some(Value::Object(rope)) = config.get_mut("rope_parameters") else { return Ok(()) };
            rope.insert("llama_4_scaling_beta".to_owned(), json!(beta));
            if let Some(factor) = model.float("rope.scaling.yarn_log_multiplier")? {
                rope.insert("mscale".to_owned(), json!(factor));
                rope.insert("mscale_all_dim".to_owned(), json!(factor));
            }
            Ok(())
        },
        ..LLAMA
    },
    // Of the same name: the files of Mistral Small, without the growing queries.
    Architecture {
        name: "mistral3",
        class: "MistralForCausalLM",
        model_type: "mistral",
        config: |_, config| set(config, "sliding_window", Value::Null),
        ..LLAMA
    },
    Architecture {
        name: "olmo",
        class: "OlmoForCausalLM",
        model_type: "olmo",
        layer_norm: true,
        config: |model, config| set(config, "clip_qkv", json!(model.float("attention.clamp_kqv")?)),
        ..LLAMA
    },
    OLMO2,
    OLMO3,
    Architecture {
        name: "olmoe",
        class: "OlmoeForCausalLM",
        model_type: "olmoe",
        config: |model, config| {
            experts(model, config)?;
            set(config, "intermediate_size", json!(model.expert_width()?))?;
            set(config, "norm_topk_prob", json!(model.flag("expert_weights_norm")?.unwrap_or(false)))?;
            set(config, "clip_qkv", json!(model.float("attention.clamp_kqv")?))
        },
        ..QWEN2
    },
    Architecture {
        name: "gpt-oss",
        class: "GptOssForCausalLM",
        model_type: "gpt_oss",
        names: &[("post_attention_norm", "post_attention_layernorm")],
        experts: ExpertNames { router: "mlp.router", ..LLAMA.experts },
        config: |model, config| {
            experts(model, config)?;
            set(config, "intermediate_size", json!(model.expert_width()?))?;
            window(model, config)?;
            if let Some(Value::Object(rope)) = config.get_mut("rope_parameters") {
                rope.insert("truncate".to_owned(), json!(false));
            }
            Ok(())
        },
        ..QWEN2
    },
    Architecture {
        name: "starcoder2",
        class: "Starcoder2ForCausalLM",
        model_type: "starcoder2",
        names: &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
        layer_norm: true,
        ..QWEN2
    },
    Architecture {
        name: "stablelm",
        class: "StableLmForCausalLM",
        model_type: "stablelm",
        layer_norm: true,
        config: |model, config| {
            // llama.cpp goes by the tensors, too: the key is often wrong.
            set(config, "use_parallel_residual", json!(!model.has("blk.0.ffn_norm.weight")))?;
            set(config, "qk_layernorm", json!(model.has("blk.0.attn_q_norm.weight")))
        },
        ..QWEN2
    },
    Architecture {
        name: "exaone4",
        class: "Exaone4ForCausalLM",
        model_type: "exaone4",
        config: window,
        ..OLMO2
    },
    Architecture {
        name: "hunyuan-dense",
        class: "HunYuanDenseV1ForCausalLM",
        model_type: "hunyuan_v1_dense",
        names: &[("attn_q_norm", "self_attn.query_layernorm"), ("attn_k_norm", "self_attn.key_layernorm")],
        ..QWEN2
    },
    Architecture {
        name: "seed_oss",
        class: "SeedOssForCausalLM",
        model_type: "seed_oss",
        names: &[("post_attention_norm", "post_attention_layernorm")],
        config: |model, config| set(config, "attention_out_bias", json!(model.has("blk.0.attn_output.bias"))),
        ..QWEN2
    },
    Architecture {
        name: "nemotron",
        class: "NemotronForCausalLM",
        model_type: "nemotron",
        one_plus: true,
        layer_norm: true,
        ..QWEN2
    },
    COHERE,
    Architecture {
        name: "cohere2",
        class: "Cohere2ForCausalLM",
        model_type: "cohere2",
        config: |model, config| {
            cohere(model, config)?;
            window(model, config)
        },
        ..COHERE
    },
    T5,
    T5_GATED,
    UMT5,
    UMT5_GATED,
    GLM,
    Architecture {
        name: "glm4",
        class: "Glm4ForCausalLM",
        model_type: "glm4",
        names: &[
            ("ffn_up", "mlp.gate_up_proj"),
            ("post_attention_norm", "post_self_attn_layernorm"),
            ("post_ffw_norm", "post_mlp_layernorm"),
        ],
        ..GLM
    },
    Architecture { name: "ernie4_5", class: "Ernie4_5ForCausalLM", model_type: "ernie4_5", ..QWEN2 },
    Architecture {
        name: "apertus",
        class: "ApertusForCausalLM",
        model_type: "apertus",
        names: &[("attn_norm", "attention_layernorm"), ("ffn_norm", "feedforward_layernorm")],
        ..QWEN2
    },
];
