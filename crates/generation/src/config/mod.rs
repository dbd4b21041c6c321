//! [`GenerationConfig`]: transformers' generation fields as plain data.
//!
//! Every field is an `Option`, so that the precedence call > passed config > model's file > default works
//! field by field. Only types are checked here. A plan ([`GenerationPlan`](super::GenerationPlan)) checks
//! values, because their validity depends on the prompt, the model and the other fields. To add a field: its
//! line in `table.rs`, which all interfaces are made from.

mod biases;
mod choices;
mod field;
mod file;
mod glossary;
mod info;
mod json_schema;
mod kind;
mod negative_prompt;
mod suggest;
mod table;
#[cfg(test)]
mod tests;
mod unsupported;
mod value;
mod watermarking;

use serde_json::{Map, Value};

use rsgen_core::{Error, Result, TokenId, escape, json};

pub use biases::{Biases, LogitBias, SequenceBias};
pub use choices::{AssistantTokensSchedule, Compat, DolaLayers, EarlyStopping, ForcedWord};
pub(super) use field::FieldType;
pub use field::OneOrMany;
pub use glossary::Glossary;
pub use info::{FieldInfo, Heading, MAX_ENTRIES, MAX_ROWS, MAX_STOPS, MAX_TEXT, Searches};
pub use json_schema::JsonSchema;
pub use kind::{FieldKind, MAX_COUNT, integer};
pub use negative_prompt::{NegativePromptIds, NegativePromptMask, NegativeRows};
pub use suggest::suggest;
pub use table::GenerationConfig;
pub use value::FieldValue;
pub use watermarking::{SeedingScheme, SynthIDTextWatermarkingConfig, Watermarking, WatermarkingConfig};

/// The longest file that is read.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The fields that transformers does not have.
const OWN: [&str; 23] = [
    "answer_start_token_ids",
    "attention_sinks",
    "bad_words",
    "compat",
    "force_words",
    "frequency_penalty",
    "glossary",
    "grammar",
    "json_schema",
    "logit_bias",
    "negative_prompt",
    "negative_prompt_attention_mask",
    "negative_prompt_ids",
    "output_events",
    "presence_penalty",
    "regex",
    "seed",
    "target_prefix",
    "think_end_token_ids",
    "think_start_token_ids",
    "thinking_token_budget",
    "top_logprobs",
    "window",
];

impl GenerationConfig {
    /// A configuration with every field unset.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a `generation_config.json`. Keys that are no fields are kept in `extra`, and those that
    /// transformers does not know either are logged.
    ///
    /// # Errors
    /// `Load` when the text is longer than 16 MiB, no JSON object, has a key twice, or a field has a value of
    /// another type. The caller names the file.
    pub fn from_json_file(text: &str) -> Result<Self> {
        let map = json::object(text.as_bytes(), MAX_FILE_BYTES)?;
        let mut config = Self::new();
        for (name, json) in map {
            if Self::is_field(&name) {
                let value = without_negative_ids(&name, json.into());
                config.set(&name, &value).map_err(|error| Error::load(error.to_string()))?;
            } else {
                config.extra.insert(name, json);
            }
        }
        let is_bookkeeping = |name: &str| name.starts_with('_') || name == "transformers_version";
        let unknown = |(name, value): &(&String, &Value)| {
            !value.is_null() && !Self::is_known(name) && !is_bookkeeping(name)
        };
        let unknown: Vec<_> =
            config.extra.iter().filter(unknown).map(|(name, _)| format!("{name:?}")).collect();
        if !unknown.is_empty() {
            log::warn!("generation_config.json: no field is called {}", escape::message(&unknown.join(", ")));
        }
        Ok(config)
    }

    /// The generation fields of a model's `config.json`: transformers' method of that name. Those that are
    /// unset come from the part for the decoder, and the fields of rsgen alone are not read.
    ///
    /// # Errors
    /// When a field has a value of another type.
    pub fn from_model_config(model_config: Map<String, Value>) -> Result<Self> {
        let part =
            ["decoder", "generator", "text_config"].iter().find_map(|name| match model_config.get(*name) {
                Some(Value::Object(part)) if !part.is_empty() => Some(part.clone()),
                _ => None,
            });
        let mut config = Self::new();
        for (name, json) in model_config.into_iter().chain(part.unwrap_or_default()) {
            if Self::is_field(&name) && !OWN.contains(&&*name) && config.get(&name).is_none() {
                let value = without_negative_ids(&name, json.into());
                config.set(&name, &value)?;
            }
        }
        Ok(config)
    }

    /// Whether a text may outgrow the context: `window` alone gives it attention sinks, too.
    pub fn has_sinks(&self) -> bool {
        self.attention_sinks.is_some() || self.window.is_some()
    }

    /// Whether a field is a text of the output, which a generator encodes: `bad_words`, `force_words`, `glossary`
    /// or `target_prefix`.
    pub fn has_output_texts(&self) -> bool {
        self.forces_texts() || self.bad_words.is_some() || self.target_prefix.is_some()
    }

    /// Whether the output has to hold texts.
    pub fn forces_texts(&self) -> bool {
        self.force_words.is_some() || self.glossary.is_some()
    }

    /// Unsets the fields that are texts of the output.
    pub fn clear_output_texts(&mut self) {
        (self.bad_words, self.force_words, self.glossary, self.target_prefix) = (None, None, None, None);
    }

    /// The token ids and lists in its fields, for an estimate of the memory that they take.
    pub fn num_listed_ids(&self) -> usize {
        let lists = |lists: &[Vec<TokenId>]| lists.iter().map(|list| 1 + list.len()).sum::<usize>();
        let forced = |word: &ForcedWord| match word {
            ForcedWord::Phrase(ids) => 1 + ids.len(),
            ForcedWord::AnyOf(phrases) => 1 + lists(phrases),
        };
        let biases = self.sequence_bias.iter().flat_map(SequenceBias::entries);
        lists(self.bad_words_ids.as_deref().unwrap_or_default())
            + self.force_words_ids.iter().flatten().map(forced).sum::<usize>()
            + biases.map(|(sequence, _)| 1 + sequence.len()).sum::<usize>()
            + self.negative_prompt_ids.as_ref().map_or(0, |ids| lists(ids.rows()))
            + self.logit_bias.as_ref().map_or(0, |bias| bias.entries().len())
            + self.suppress_tokens.as_ref().map_or(0, Vec::len)
            + self.begin_suppress_tokens.as_ref().map_or(0, Vec::len)
            + [&self.think_start_token_ids, &self.think_end_token_ids, &self.answer_start_token_ids]
                .iter()
                .map(|ids| ids.as_ref().map_or(0, Vec::len))
                .sum::<usize>()
            + self.watermarking_config.as_ref().map_or(0, Watermarking::num_keys)
    }

    /// The entries of a file that would change the tokens and that this version does not support; empty for
    /// most models.
    pub fn unsupported(&self) -> Vec<&str> {
        let entries = self.extra.iter().map(|(name, value)| (name.as_str(), value.clone().into()));
        entries
            .filter(|(name, value)| unsupported::changes_tokens(name, value))
            .map(|(name, _)| name)
            .collect()
    }

    /// A warning that names the unsupported entries of a file, if any.
    pub fn unsupported_warning(&self) -> Option<String> {
        let names = self.unsupported();
        (!names.is_empty()).then(|| {
            format!(
                "generation_config.json: {} would change the tokens and {} no effect in this version; \
                 generation_config=\"ignore\", in the shell `--generation-config ignore`, leaves the whole file out",
                names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
                if names.len() == 1 { "has" } else { "have" },
            )
        })
    }

    /// `top_k`: 50 if unset, and 0, which keeps all tokens, if switched off.
    pub(super) fn top_k_or_default(&self) -> usize {
        let default = if self.switched_off.contains("top_k") { 0 } else { 50 };
        self.top_k.unwrap_or(default)
    }

    /// This configuration, the fields of a call, with those that are unset taken from one that was passed as
    /// a whole.
    ///
    /// In transformers 4.49 a `max_length` of 20 that was not given in the call counts as unset, since that
    /// is its default.
    #[must_use]
    pub fn over_passed(&self, passed: &Self) -> Self {
        let mut merged = self.merged_over(passed);
        if merged.compat == Some(Compat::V4_49) && merged.max_length == Some(20) {
            merged.max_length = self.max_length;
        }
        merged
    }

    /// The configuration that the keyword arguments of a call make; null switches a field off.
    ///
    /// # Errors
    /// When a name is not a field, with the name that was probably meant, or a value has another type.
    pub fn from_call<V: Into<FieldValue>>(fields: impl IntoIterator<Item = (String, V)>) -> Result<Self> {
        let mut config = Self::new();
        for (name, value) in fields {
            config.set_in_call(&name, &value.into())?;
        }
        Ok(config)
    }

    /// The fields that are set, those that are switched off as null, and the extra keys, as
    /// `generation_config.json` holds them.
    pub fn to_json(&self) -> Map<String, Value> {
        let set = |info: &FieldInfo| {
            let off = self.switched_off.contains(info.name).then_some(FieldValue::Null);
            Some((info.name.to_owned(), self.get(info.name).or(off)?.into()))
        };
        let mut json: Map<_, _> = Self::FIELDS.iter().filter_map(set).collect();
        json.extend(self.extra.iter().map(|(name, value)| (name.clone(), value.clone())));
        json
    }

    /// Whether transformers or this version knows a name, so that `set` has a specific error for it.
    pub fn is_known(name: &str) -> bool {
        Self::is_field(name) || unsupported::reason(name).is_some()
    }

    /// The error message for a name that is not a field.
    pub fn unknown_field(name: &str) -> String {
        if let Some(reason) = unsupported::reason(name) {
            return format!("`{name}` {reason}");
        }
        let start: String = name.chars().take(64).collect();
        let shown = escape::name(&start);
        match suggest::suggest(name, Self::FIELDS.iter().map(|field| field.name)) {
            Some(meant) => format!("`{shown}` is not a field of GenerationConfig; did you mean `{meant}`?"),
            None => format!("`{shown}` is not a field of GenerationConfig, or not one of this version"),
        }
    }
}

/// Old checkpoints write -1 for "no such token": such an id is left out.
fn without_negative_ids(name: &str, value: FieldValue) -> FieldValue {
    if !name.ends_with("_token_id") {
        return value;
    }
    match value {
        FieldValue::Int(id) if id < 0 => FieldValue::Null,
        FieldValue::List(ids) => FieldValue::List(
            ids.into_iter().filter(|id| !matches!(id, FieldValue::Int(id) if *id < 0)).collect(),
        ),
        value => value,
    }
}
