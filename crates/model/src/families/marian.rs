//! Marian (Junczys-Dowmunt et al., 2018), as the Helsinki-NLP group trains its opus-mt models: BART with sinusoids for
//! positions, no norm of the embeddings, and possibly two vocabularies.

use serde_json::{Map, Value};

use super::Family;
use super::bart::{BART, Norms, like_bart};
use crate::encoder_spec::PositionSpec;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;

/// The family.
pub(super) const MARIAN: Family = Family {
    config: FamilyConfig {
        architecture: "MarianMTModel",
        model_type: "marian",
        defaults: r#"{
            "vocab_size": 58101, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12,
            "num_attention_heads": 16, "max_position_embeddings": 1024, "hidden_act": "gelu",
            "tie_word_embeddings": true, "scale_embedding": false, "share_encoder_decoder_embeddings": true,
            "bos_token_id": null, "eos_token_id": 0, "pad_token_id": 58100
        }"#,
        encoder: Some(&[
            ("intermediate_size", "encoder_ffn_dim"),
            ("num_hidden_layers", "encoder_layers"),
            ("num_attention_heads", "encoder_attention_heads"),
            ("vocab_size", "vocab_size"),
        ]),
        derive,
        ..BART.config
    },
    spec,
};

/// The stored tables are used if there are any.
pub(super) const SINUSOIDS: PositionSpec = PositionSpec::Sinusoids("embed_positions");

/// The decoder's vocabulary, if it is another one than the encoder's.
fn derive(fields: &mut Map<String, Value>) {
    let is_own = fields.get("share_encoder_decoder_embeddings") == Some(&Value::Bool(false));
    let own = fields.get("decoder_vocab_size").filter(|size| is_own && !size.is_null() && **size != 0);
    if let Some(size) = own.cloned() {
        fields.insert("vocab_size".to_owned(), size);
    }
}

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    like_bart(config, Norms::After, SINUSOIDS, None)
}
