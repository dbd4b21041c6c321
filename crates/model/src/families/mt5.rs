//! mT5 (Xue et al., arXiv:2010.11934): T5 v1.1 of many languages, whose outputs are never scaled.

use serde_json::{Map, Value};

use super::Family;
use super::t5::{self, T5};
use crate::weights::FamilyConfig;

/// The family.
pub(super) const MT5: Family = Family {
    config: FamilyConfig {
        architecture: "MT5ForConditionalGeneration",
        model_type: "mt5",
        defaults: DEFAULTS,
        derive,
        ..T5.config
    },
    spec: T5.spec,
};

/// Those of umT5, too.
pub(super) const DEFAULTS: &str = r#"{
    "vocab_size": 250112, "hidden_size": 512, "head_dim": 64, "intermediate_size": 1024, "num_hidden_layers": 8,
    "num_layers": 8, "num_attention_heads": 6, "rms_norm_eps": 1e-6, "feed_forward_proj": "gated-gelu",
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "tie_word_embeddings": true,
    "bos_token_id": null, "eos_token_id": 1, "pad_token_id": 0
}"#;

fn derive(fields: &mut Map<String, Value>) {
    t5::derive(fields);
    fields.insert("scale_decoder_outputs".to_owned(), false.into());
}
