//! Fields of config.json that architectures have beside the common ones, or that llama.cpp implies.

use serde_json::{Map, Value, json};

use super::config::Description;
use rsgen_core::error::Result;

#[expect(clippy::unnecessary_wraps, reason = "ends what may fail")]
pub(super) fn set(config: &mut Map<String, Value>, name: &str, value: Value) -> Result<()> {
    config.insert(name.to_owned(), value);
    Ok(())
}

/// The numbers of experts.
pub(super) fn experts(model: &Description<'_>, config: &mut Map<String, Value>) -> Result<()> {
    set(config, "num_experts", json!(model.count("expert_count")?))?;
    set(config, "num_experts_per_tok", json!(model.count("expert_used_count")?))
}

/// Experts in some layers. `normalizes` is what the architecture implies where the file does not say it.
pub(super) fn sparse_experts(
    model: &Description<'_>,
    config: &mut Map<String, Value>,
    normalizes: bool,
) -> Result<()> {
    experts(model, config)?;
    set(config, "moe_intermediate_size", json!(model.expert_width()?))?;
    set(config, "norm_topk_prob", json!(model.flag("expert_weights_norm")?.unwrap_or(normalizes)))?;
    let is_dense = |layer: &usize| !model.has(&format!("blk.{layer}.ffn_gate_inp.weight"));
    let dense: Vec<usize> = (0..model.num_layers()?).filter(is_dense).collect();
    set(config, "mlp_only_layers", json!(dense))
}

/// The window, and the types of layers where the file has them; the architecture implies them where not.
pub(super) fn window(model: &Description<'_>, config: &mut Map<String, Value>) -> Result<()> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let size = model.count("attention.sliding_window")?.filter(|&size| size > 0);
    set(config, "sliding_window", json!(size))?;
    if config.get("model_type") == Some(&json!("olmo3")) {
        let base = model.float("rope.freq_base_swa")?.or(model.float("rope.freq_base")?);
        set(config, "rope_local_base_freq", json!(base.unwrap_or(10_000.0)))?;
    }
    match model.numbers(PATTERN)? {
        Some(pattern) if size.is_some() && pattern.len() > 1 => {
            let slides: Option<Vec<bool>> = pattern
                .iter()
                .map(|number| number.as_bool().or_else(|| number.as_count().map(|count| count != 0)))
                .collect();
            let slides = slides.ok_or_else(|| model.wrong(PATTERN, "a list of true or false"))?;
            let name = |slides| if slides { "sliding_attention" } else { "full_attention" };
            let types: Vec<&str> = slides.into_iter().map(name).collect();
            set(config, "layer_types", json!(types))
        }
        Some(pattern) if size.is_some() && pattern.len() == 1 && pattern[0].as_count().is_some() => {
            let every = pattern[0].as_count().filter(|&every| every > 0);
            let every = every.ok_or_else(|| model.wrong(PATTERN, "at least 1"))?;
            let slides = |layer: usize| !(layer as u64 + 1).is_multiple_of(every);
            let name = |layer| if slides(layer) { "sliding_attention" } else { "full_attention" };
            let types: Vec<&str> = (0..model.num_layers()?).map(name).collect();
            set(config, "layer_types", json!(types))
        }
        _ => Ok(()),
    }
}

/// The factors of Gemma 2 and 3. That of scores is not stored: llama.cpp knows the models that have another
/// than the width of a head by their number of layers.
pub(super) fn gemma(model: &Description<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let (layers, heads) = (model.num_layers()?, model.num_heads()?);
    let is_largest = matches!((model.architecture, layers), ("gemma2", 46) | ("gemma3", 62));
    let scalar = if is_largest { model.hidden_size()? / heads } else { model.head_dim()? };
    set(config, "query_pre_attn_scalar", json!(scalar))?;
    if model.architecture == "gemma2" {
        let size = model.count("attention.sliding_window")?.unwrap_or(4096);
        set(config, "sliding_window", json!(size))?;
        let cap = model.float("attn_logit_softcapping")?.unwrap_or(50.0);
        set(config, "attn_logit_softcapping", json!(cap))?;
        let cap = model.float("final_logit_softcapping")?.unwrap_or(30.0);
        return set(config, "final_logit_softcapping", json!(cap));
    }
    set(config, "final_logit_softcapping", json!(model.float("final_logit_softcapping")?))
}

pub(super) fn granite(model: &Description<'_>, config: &mut Map<String, Value>) -> Result<()> {
    for (key, name) in [
        ("attention.scale", "attention_multiplier"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ] {
        set(config, name, json!(model.float(key)?.filter(|&factor| factor != 0.0).unwrap_or(1.0)))?;
    }
    if model.has("blk.0.ffn_up_shexp.weight") {
        set(config, "shared_intermediate_size", json!(model.rows_of("ffn_up_shexp")?))?;
    }
    if model.count("expert_count")?.unwrap_or(0) > 0 { experts(model, config) } else { Ok(()) }
}

pub(super) fn cohere(model: &Description<'_>, config: &mut Map<String, Value>) -> Result<()> {
    set(config, "logit_scale", json!(model.float("logit_scale")?.unwrap_or(0.0625)))?;
    set(config, "use_qk_norm", json!(model.has("blk.0.attn_q_norm.weight")))
}
