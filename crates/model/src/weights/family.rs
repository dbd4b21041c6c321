//! The defaults and rules of config.json for a family of models.
//!
//! The values of a family are in its file of `model`, from its configuration class in transformers 5.23. The
//! ranges of fields are the same for all families and are in `config`.

use super::fields::Fields;
use super::rope::RopeRule;
use super::window::WindowRule;
use rsgen_core::error::Result;

/// The configuration class of a family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyConfig {
    /// The class that models are written by, such as `LlamaForCausalLM`.
    pub architecture: &'static str,
    /// The default of `vocab_size`.
    pub vocab_size: usize,
    /// The default of `hidden_size`.
    pub hidden_size: usize,
    /// The default of `intermediate_size`.
    pub intermediate_size: usize,
    /// The default of `num_hidden_layers`.
    pub num_hidden_layers: usize,
    /// The default of `num_attention_heads`.
    pub num_attention_heads: usize,
    /// The default of `num_key_value_heads`; as many as query heads if `None`, and where the file says null.
    pub num_key_value_heads: Option<usize>,
    /// The default of `head_dim`; `hidden_size / num_attention_heads` if `None`.
    pub head_dim: Option<usize>,
    /// The default of `max_position_embeddings`.
    pub max_position_embeddings: usize,
    /// The default of `rms_norm_eps`.
    pub rms_norm_eps: f64,
    /// The default of `bos_token_id`.
    pub bos_token_id: Option<u32>,
    /// The default of `eos_token_id`.
    pub eos_token_id: Option<u32>,
    /// The default of `pad_token_id`.
    pub pad_token_id: Option<u32>,
    /// Whether queries, keys and values have biases: `attention_bias`.
    pub attention_bias: Switch,
    /// Whether the MLP has biases: `mlp_bias`.
    pub mlp_bias: Switch,
    /// Which layers have a sliding window.
    pub window: WindowRule,
    /// Which rotary embeddings there are.
    pub rope: RopeRule,
}

/// A switch that some families read from config.json.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// As the field says; absent is off.
    Configured,
    /// On, whatever the file says.
    On,
    /// Off, whatever the file says.
    Off,
}

impl Switch {
    /// The property as a file has it.
    pub(super) fn read(self, fields: Fields<'_>, name: &str) -> Result<bool> {
        let configured = fields.flag(name)?.unwrap_or(false);
        Ok(match self {
            Self::Configured => configured,
            Self::On => true,
            Self::Off => false,
        })
    }
}
