//! The defaults and rules of config.json for a family of models.
//!
//! The values of a family are in its file of `families`, from its configuration class in transformers 5.24. The
//! ranges of fields are the same for all families and are in `config`.

use serde_json::{Map, Value};

use super::fields::Fields;
use super::rope::RopeRule;
use super::window::WindowRule;
use rsgen_core::error::Result;

/// The configuration class of a family.
#[derive(Debug, Clone, Copy)]
pub struct FamilyConfig {
    /// The class that models are written by, such as `LlamaForCausalLM`.
    pub architecture: &'static str,
    /// Transformers' short name, such as `llama`.
    pub model_type: &'static str,
    /// The defaults of absent fields, a JSON object. Those of llama count where it says nothing.
    pub defaults: &'static str,
    /// Names of fields that other families call differently: llama's name, and the family's own, which wins.
    pub aliases: &'static [(&'static str, &'static str)],
    /// The names of fields that the encoder has for itself; `None` without an encoder. A file's value under llama's
    /// name is the encoder's.
    pub encoder: Option<&'static [(&'static str, &'static str)]>,
    /// Whether queries, keys and values have biases: `attention_bias`.
    pub attention_bias: Switch,
    /// Whether the MLP has biases: `mlp_bias`.
    pub mlp_bias: Switch,
    /// Which layers have a sliding window.
    pub window: WindowRule,
    /// Which rotary embeddings there are.
    pub rope: RopeRule,
    /// Completes fields that follow from others.
    pub derive: fn(&mut Map<String, Value>),
}

/// The defaults of llama, and of fields that not all classes have.
const LLAMA: &str = r#"{
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "max_position_embeddings": 2048, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": false
}"#;

/// Fields that have their default where a file says null.
const NEVER_NULL: [&str; 9] = [
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "hidden_act",
    "rms_norm_eps",
    "rope_theta",
    "rope_parameters",
];

impl FamilyConfig {
    /// Llama, from which the others differ.
    pub const LLAMA: Self = Self {
        architecture: "LlamaForCausalLM",
        model_type: "llama",
        defaults: r#"{"bos_token_id": 1, "eos_token_id": 2}"#,
        aliases: &[],
        encoder: None,
        attention_bias: Switch::Configured,
        mlp_bias: Switch::Configured,
        window: WindowRule::Never,
        rope: RopeRule::WholeHead,
        derive: |_| {},
    };

    /// The class of the model without its head, which some checkpoints name.
    pub(super) fn is_base(&self, class: &str) -> bool {
        let suffixes = ["ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"];
        let stem = suffixes.iter().find_map(|suffix| self.architecture.strip_suffix(suffix));
        stem.is_some_and(|stem| class.strip_suffix("Model") == Some(stem))
    }

    /// All fields of a file by llama's names, with the defaults of absent ones.
    pub(super) fn complete(&self, file: &Map<String, Value>) -> Map<String, Value> {
        let parse = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
        let defaults = || parse(LLAMA).into_iter().chain(parse(self.defaults));
        let mut fields: Map<String, Value> = defaults().chain(file.clone()).collect();
        for (name, _) in self.encoder.unwrap_or_default().iter().filter(|(name, own)| name != own) {
            let default = defaults().rfind(|(field, _)| field == name);
            fields.insert((*name).to_owned(), default.map_or(Value::Null, |(_, value)| value));
        }
        for (name, own) in self.aliases {
            if let Some(value) = file.get(*own) {
                fields.insert((*name).to_owned(), value.clone());
            }
        }
        for (name, default) in defaults() {
            if NEVER_NULL.contains(&&*name) && fields.get(&name).is_none_or(Value::is_null) {
                fields.insert(name, default);
            }
        }
        (self.derive)(&mut fields);
        fields
    }

    /// The fields of the encoder: those of the decoder but for its own; `None` without an encoder.
    pub(super) fn complete_encoder(
        &self,
        file: &Map<String, Value>,
        decoder: &Map<String, Value>,
    ) -> Option<Map<String, Value>> {
        let own = self.encoder?;
        let defaults = self.complete(&Map::new());
        let mut fields = decoder.clone();
        for (name, own) in own {
            let given =
                [name, own].into_iter().find_map(|name| file.get(*name).filter(|value| !value.is_null()));
            fields.insert((*name).to_owned(), given.unwrap_or(&defaults[*name]).clone());
        }
        Some(fields)
    }
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
