//! The metadata of a GGUF file that is written: from transformers' fields to llama.cpp's keys.
//!
//! Keys are written where the configuration has their field; whether the reader makes the same model of them is
//! checked afterwards, so that nothing here needs to know what an architecture implies.

use super::super::architecture::Architecture;
use super::entries::{Entries, Entry};
use super::tensors::{Planned, given};
use crate::weights::config::ModelConfig;
use crate::weights::rope::{RopeKind, RopeParameters};
use crate::weights::shards::Weights;
use crate::weights::window::LayerType;
use rsgen_core::error::{Error, Result};

/// Numbers of a family: their field, and their key.
const NUMBERS: [(&str, &str); 10] = [
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("attention_multiplier", "attention.scale"),
    ("embedding_multiplier", "embedding_scale"),
    ("residual_multiplier", "residual_scale"),
    ("logits_scaling", "logit_scale"),
    ("logit_scale", "logit_scale"),
    ("clip_qkv", "attention.clamp_kqv"),
    ("layer_norm_clamp", "attention.layer_norm_clamp"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
];
/// Sizes of a family.
const COUNTS: [(&str, &str); 4] = [
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
];
/// Switches of a family.
const FLAGS: [(&str, &str); 2] =
    [("norm_topk_prob", "expert_weights_norm"), ("use_parallel_residual", "use_parallel_residual")];

/// The entries of a model. `with_pattern` writes which layers have a window, which most architectures imply.
pub(super) fn entries(
    config: &ModelConfig,
    entry: &Architecture,
    weights: &Weights,
    with_pattern: bool,
) -> Result<Entries> {
    let fields = config.fields();
    let mut entries = Entries::default();
    let name = entry.name;
    entries.set("general.architecture", Entry::Text(name.to_owned()));
    let mut set = |key: &str, value: Entry| entries.set(format!("{name}.{key}"), value);
    let count = |value: usize| Entry::U32(u32::try_from(value).unwrap_or(u32::MAX));
    set("block_count", count(config.num_hidden_layers));
    set("context_length", count(config.max_position_embeddings));
    set("embedding_length", count(config.hidden_size));
    set("feed_forward_length", count(config.intermediate_size));
    set("attention.head_count", count(config.num_attention_heads));
    set("attention.head_count_kv", count(config.num_key_value_heads));
    set("attention.key_length", count(config.head_dim));
    set("attention.value_length", count(config.head_dim));
    let eps =
        if entry.layer_norm { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
    set(eps, Entry::F32(config.rms_norm_eps as f32));
    set("vocab_size", count(config.vocab_size));
    if let Some(rope) = &config.rope {
        set("rope.dimension_count", count(rope.dim));
        set("rope.freq_base", Entry::F32(rope.theta as f32));
        for (key, value) in scaling(rope, config.context_len()) {
            set(key, value);
        }
    }
    for (field, key) in COUNTS {
        if let Some(size) = fields.integer(field, 1..=1 << 30)? {
            set(key, count(size));
        }
    }
    if fields.get("num_experts").is_some() && fields.get("moe_intermediate_size").is_none() {
        // The field is that of the experts then.
        set("expert_feed_forward_length", count(config.intermediate_size));
    }
    for (field, key) in NUMBERS {
        if let Some(value) = fields.number(field, -1e30, 1e30)? {
            set(key, Entry::F32(value as f32));
        }
    }
    for (field, key) in FLAGS {
        if let Some(flag) = fields.flag(field)? {
            set(key, Entry::Bool(flag));
        }
    }
    if let Some(rope) = fields.object("rope_parameters")
        && let Some(beta) = rope.number("llama_4_scaling_beta", 0.0, 1e6)?
    {
        set("attention.temperature_scale", Entry::F32(beta as f32));
        if let Some(factor) = rope.number("mscale_all_dim", 0.0, 1e6)? {
            set("rope.scaling.yarn_log_multiplier", Entry::F32(factor as f32));
        }
    }
    if let Some(local) = config.local_rope.as_ref().filter(|_| fields.get("rope_local_base_freq").is_none()) {
        set("rope.freq_base_swa", Entry::F32(local.theta as f32));
    }
    let window = config.window.size;
    if let Some(size) = window.or((name == "phi3").then_some(0)) {
        set("attention.sliding_window", count(size));
    }
    if with_pattern {
        let slides = config.window.layer_types.iter().map(|kind| *kind == LayerType::SlidingAttention);
        set("attention.sliding_window_pattern", Entry::Bools(slides.collect()));
    }
    if entry.model_type == "apertus" {
        for factor in ["alpha_n", "alpha_p", "beta", "eps"] {
            let number = |layer: usize| -> Result<Option<f32>> {
                let name = format!("{}.{layer}.mlp.act_fn.{factor}", entry.layers);
                let Some(tensor) = weights.tensor(&name)? else { return Ok(None) };
                Ok(tensor.row().to_f32()?.first().copied())
            };
            let numbers: Result<Option<Vec<f32>>> = (0..config.num_hidden_layers).map(number).collect();
            if let Some(numbers) = numbers? {
                entries.set(format!("xielu.{factor}"), Entry::F32s(numbers));
            }
        }
    }
    Ok(entries)
}

/// The keys of a scaling. `context` is the longest sequence.
fn scaling(rope: &RopeParameters, context: usize) -> Vec<(&'static str, Entry)> {
    let kind = |name: &str| ("rope.scaling.type", Entry::Text(name.to_owned()));
    let number = |value: f64| Entry::F32(value as f32);
    let original = |value: usize| {
        ("rope.scaling.original_context_length", Entry::U32(u32::try_from(value).unwrap_or(u32::MAX)))
    };
    match &rope.kind {
        // Of Llama 3's the file has the divisors as a tensor. Nothing says that the base grows.
        RopeKind::Default | RopeKind::Llama3 { .. } | RopeKind::Dynamic { .. } => Vec::new(),
        RopeKind::Linear { factor } => vec![kind("linear"), ("rope.scaling.factor", number(*factor))],
        RopeKind::Yarn {
            factor,
            attention_factor,
            beta_fast,
            beta_slow,
            original_max_position_embeddings,
            ..
        } => {
            let mut entries = vec![
                kind("yarn"),
                ("rope.scaling.factor", number(*factor)),
                original(*original_max_position_embeddings),
                ("rope.scaling.yarn_beta_fast", number(*beta_fast)),
                ("rope.scaling.yarn_beta_slow", number(*beta_slow)),
            ];
            entries.extend(attention_factor.map(|value| ("rope.scaling.yarn_attn_factor", number(value))));
            entries
        }
        RopeKind::LongRope { attention_factor, original_max_position_embeddings, .. } => {
            let short = *original_max_position_embeddings as f64;
            let implied = if context as f64 > short {
                (1.0 + (context as f64 / short).ln() / short.ln()).sqrt()
            } else {
                1.0
            };
            let factor = attention_factor.unwrap_or(implied);
            vec![("rope.scaling.attn_factor", number(factor)), original(*original_max_position_embeddings)]
        }
    }
}

/// The tensors that belong to the rotary embedding.
///
/// # Errors
/// `Load` for a scaling that no key and no tensor states.
pub(super) fn rotary(config: &ModelConfig) -> Result<Vec<Planned>> {
    let floats = |list: &[f64]| list.iter().map(|&factor| factor as f32).collect::<Vec<_>>();
    let Some(rope) = &config.rope else { return Ok(Vec::new()) };
    match &rope.kind {
        RopeKind::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
            let original = *original_max_position_embeddings as f64;
            let divisor = |place: usize| {
                let power = 2.0 * place as f64 / rope.dim as f64;
                let wavelength = 2.0 * std::f64::consts::PI * rope.theta.powf(power);
                if wavelength < original / high_freq_factor {
                    1.0
                } else if wavelength > original / low_freq_factor {
                    *factor as f32
                } else {
                    let ramp =
                        (original / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    (1.0 / ((1.0 - ramp) / factor + ramp)) as f32
                }
            };
            let divisors: Vec<f32> = (0..rope.dim / 2).map(divisor).collect();
            Ok(vec![given("rope_freqs.weight", &divisors)?])
        }
        RopeKind::LongRope { short_factor, long_factor, .. } => Ok(vec![
            given("rope_factors_long.weight", &floats(long_factor))?,
            given("rope_factors_short.weight", &floats(short_factor))?,
        ]),
        RopeKind::Dynamic { .. } => {
            Err(Error::load("rope_parameters: no GGUF file states a dynamic base; use the model as it is"))
        }
        RopeKind::Default | RopeKind::Linear { .. } | RopeKind::Yarn { .. } => Ok(Vec::new()),
    }
}
