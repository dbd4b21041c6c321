//! Granite 4 (IBM, 2025) whose layers are all attention: dense, or a mixture with an expert that all tokens take.

use super::Family;
use crate::spec::{DecoderSpec, RotarySpec};
use crate::weights::{FamilyConfig, ModelConfig, Switch};
use rsgen_core::error::Result;
use serde_json::{Map, Value};

/// The family.
pub(super) const GRANITE_MOE_HYBRID: Family = Family {
    config: FamilyConfig {
        architecture: "GraniteMoeHybridForCausalLM",
        model_type: "granitemoehybrid",
        defaults: r#"{
            "num_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024, "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
            "logits_scaling": 1.0, "bos_token_id": 1, "eos_token_id": 2
        }"#,
        aliases: &[("num_experts", "num_local_experts")],
        mlp_bias: Switch::Off,
        derive: dense_width,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let fields = config.fields();
    let names =
        fields.get("layer_types").or_else(|| fields.get("layers_block_type")).and_then(Value::as_array);
    let is_attention = |name: &Value| matches!(name.as_str(), Some("attention" | "full_attention"));
    if !names.is_some_and(|names| names.iter().all(is_attention)) {
        let rule =
            "\"attention\" for all layers: Mamba layers are not supported; use Granite 4 micro without \"h\"";
        return Err(fields.wrong("layer_types", rule));
    }
    let has_experts = fields.get("num_experts").and_then(Value::as_u64) != Some(0);
    let family =
        if has_experts { super::granitemoeshared::GRANITE_MOE_SHARED } else { super::granite::GRANITE };
    let mut spec = (family.spec)(config)?;
    if fields.text("position_embedding_type")? != Some("rope") {
        spec.rotary = RotarySpec::none(config);
    }
    if !has_experts {
        spec.names.mlp = super::granitemoeshared::SHARED;
        spec.mlp = super::granitemoeshared::SHARED_MLP;
    }
    Ok(spec)
}

/// Without experts, the MLP of a layer is the one that all tokens take.
fn dense_width(fields: &mut Map<String, Value>) {
    if fields.get("num_experts").and_then(Value::as_u64) == Some(0) {
        let width = fields.get("shared_intermediate_size").cloned().unwrap_or(Value::Null);
        fields.insert("intermediate_size".to_owned(), width);
    }
}
