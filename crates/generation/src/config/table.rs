//! The table of fields: a setter and a descriptor for each, and access by name.

use super::field::FieldType;
use super::{
    AssistantTokensSchedule, Compat, DolaLayers, EarlyStopping, FieldValue, ForcedWord, GenerationConfig,
    JsonSchema, LogitBias, NegativePromptIds, NegativePromptMask, OneOrMany, SequenceBias, Watermarking,
    docs, unsupported,
};
use rsgen_core::error::{Error, Result};
use rsgen_core::message;
use rsgen_core::types::TokenId;

/// A field, for help pages and bindings.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FieldInfo {
    /// The name, as in transformers.
    pub name: &'static str,
    /// Describes valid values, to complete "must be …".
    pub kind: &'static str,
    /// The default.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
    python: fn() -> String,
    get: fn(&GenerationConfig) -> Option<FieldValue>,
    set: fn(&mut GenerationConfig, &FieldValue) -> Result<()>,
    explain: fn(&FieldValue) -> Option<String>,
}

impl FieldInfo {
    /// The field of that name.
    pub fn of(name: &str) -> Option<&'static Self> {
        GenerationConfig::FIELDS.iter().find(|field| field.name == name)
    }

    /// What is wrong within a value that is nearly one of the field's, to follow its name.
    pub fn explain(&self, value: &FieldValue) -> Option<String> {
        (self.explain)(value)
    }

    /// The type as Python's annotations write it.
    pub fn python_type(&self) -> String {
        (self.python)()
    }
}

/// Writes the setters and the table. A line holds a field, the argument type of its setter, and its default.
macro_rules! fields {
    ($( $name:ident: $argument:ty = $default:literal; )*) => {
        impl GenerationConfig {
            /// Every field, in the order of their documentation.
            pub const FIELDS: &'static [FieldInfo] = &[$( FieldInfo {
                name: stringify!($name),
                kind: kind(|config| &config.$name),
                default: $default,
                doc: docs::$name,
                python: || python(|config| &config.$name),
                get: |config| config.$name.as_ref().map(FieldType::to_value),
                set: |config, value| {
                    config.$name = parse(stringify!($name), value)?;
                    Ok(())
                },
                explain: explain(|config| &config.$name),
            } ),*];

            $(
                #[doc = concat!("Sets [`", stringify!($name), "`](#structfield.", stringify!($name), ").")]
                #[must_use]
                pub fn $name(mut self, $name: $argument) -> Self {
                    self.$name = Some($name.into());
                    self.switched_off.remove(stringify!($name));
                    self
                }
            )*

            /// This configuration, with fields that are unset and not switched off taken from `base`.
            #[must_use]
            pub fn merged_over(&self, base: &Self) -> Self {
                let off = |name| self.switched_off.contains(name);
                let mut switched_off = self.switched_off.clone();
                switched_off.extend(base.switched_off.iter().filter(|name| self.get(name).is_none()));
                let mut extra = base.extra.clone();
                extra.extend(self.extra.iter().map(|(name, value)| (name.clone(), value.clone())));
                Self {
                    $( $name: match &self.$name {
                        None if !off(stringify!($name)) => base.$name.clone(),
                        own => own.clone(),
                    }, )*
                    extra,
                    switched_off,
                }
            }
        }
    };
}

fields! {
    max_length: usize = "prompt + 20";
    max_new_tokens: usize = "unset";
    min_length: usize = "0";
    min_new_tokens: usize = "unset";
    max_time: f64 = "unset";
    stop_strings: impl Into<OneOrMany<String>> = "unset";
    do_sample: bool = "false";
    num_beams: usize = "1";
    low_memory: bool = "false";
    num_return_sequences: usize = "1";
    pad_token_id: impl Into<TokenId> = "the first eos_token_id";
    bos_token_id: impl Into<TokenId> = "unset";
    eos_token_id: impl Into<OneOrMany<TokenId>> = "unset";
    output_scores: bool = "false";
    output_logits: bool = "false";
    output_hidden_states: bool = "false";
    output_attentions: bool = "false";
    top_logprobs: usize = "0";
    output_events: bool = "false";
    return_dict_in_generate: bool = "true";
    compat: Compat = "unset";
    use_cache: bool = "true";
    prefill_chunk_size: usize = "chosen by the engine";
    attention_sinks: usize = "unset";
    window: usize = "unset";
    seed: impl Into<OneOrMany<u64>> = "drawn, and reported in the output";
    token_healing: bool = "false";
    penalty_alpha: f64 = "unset";
    dola_layers: impl Into<DolaLayers> = "unset";
    prompt_lookup_num_tokens: usize = "unset";
    max_matching_ngram_size: usize = "2";
    num_assistant_tokens: usize = "20";
    num_assistant_tokens_schedule: AssistantTokensSchedule = "\"constant\"";
    assistant_confidence_threshold: f64 = "0.4";
    assistant_lookbehind: usize = "10";
    target_lookbehind: usize = "10";
    assistant_early_exit: usize = "unset";
    assistant_ensemble_weight: f64 = "unset";
    early_stopping: impl Into<EarlyStopping> = "false";
    length_penalty: f64 = "1.0";
    num_beam_groups: usize = "1";
    force_words_ids: impl Into<Vec<ForcedWord>> = "unset";
    guidance_scale: f64 = "1.0";
    negative_prompt: impl Into<OneOrMany<String>> = "unset";
    negative_prompt_ids: impl Into<NegativePromptIds> = "unset";
    negative_prompt_attention_mask: NegativePromptMask = "unset";
    sequence_bias: SequenceBias = "unset";
    logit_bias: LogitBias = "unset";
    diversity_penalty: f64 = "0.0";
    encoder_repetition_penalty: f64 = "1.0";
    repetition_penalty: f64 = "1.0";
    frequency_penalty: f64 = "0.0";
    presence_penalty: f64 = "0.0";
    no_repeat_ngram_size: usize = "0";
    encoder_no_repeat_ngram_size: usize = "0";
    bad_words_ids: Vec<Vec<TokenId>> = "unset";
    forced_bos_token_id: impl Into<TokenId> = "unset";
    forced_eos_token_id: impl Into<OneOrMany<TokenId>> = "unset";
    remove_invalid_values: bool = "false";
    exponential_decay_length_penalty: (usize, f64) = "unset";
    suppress_tokens: Vec<TokenId> = "unset";
    begin_suppress_tokens: Vec<TokenId> = "unset";
    json_schema: impl Into<JsonSchema> = "unset";
    regex: impl Into<String> = "unset";
    grammar: impl Into<String> = "unset";
    temperature: f64 = "1.0";
    top_h: f64 = "unset";
    top_k: usize = "50";
    top_p: f64 = "1.0";
    min_p: f64 = "unset";
    typical_p: f64 = "1.0";
    epsilon_cutoff: f64 = "0.0";
    eta_cutoff: f64 = "0.0";
    watermarking_config: impl Into<Watermarking> = "unset";
    renormalize_logits: bool = "false";
}

const fn kind<T: FieldType>(_field: fn(&GenerationConfig) -> &Option<T>) -> &'static str {
    T::KIND
}

fn python<T: FieldType>(_field: fn(&GenerationConfig) -> &Option<T>) -> String {
    T::python()
}

const fn explain<T: FieldType>(
    _field: fn(&GenerationConfig) -> &Option<T>,
) -> fn(&FieldValue) -> Option<String> {
    T::explain
}

fn parse<T: FieldType>(name: &str, value: &FieldValue) -> Result<Option<T>> {
    if *value == FieldValue::Null {
        return Ok(None);
    }
    let parsed = T::parse(value).ok_or_else(|| {
        let why = T::explain(value).unwrap_or_else(|| format!("must be {}, but is {value}", T::KIND));
        Error::config(message!("{why}; " {None} " leaves it unset")).about(name)
    })?;
    Ok(Some(parsed))
}

impl GenerationConfig {
    /// Whether there is a field of that name.
    pub fn is_field(name: &str) -> bool {
        FieldInfo::of(name).is_some()
    }

    /// The value of a field; `None` when it is unset, or there is no such field.
    pub fn get(&self, name: &str) -> Option<FieldValue> {
        FieldInfo::of(name).and_then(|field| (field.get)(self))
    }

    /// Sets a field by its name; [`FieldValue::Null`] unsets it, so that the model's file decides. As in
    /// transformers, an `eos_token_id` of -1 is no token. Values of unsupported fields are ignored where they change
    /// nothing.
    ///
    /// # Errors
    /// When there is no such field, with the name that was probably meant, or a remedy for a field of transformers;
    /// and when the value has another type.
    pub fn set(&mut self, name: &str, value: &FieldValue) -> Result<()> {
        match FieldInfo::of(name) {
            Some(field) => {
                self.switched_off.remove(name);
                let none = FieldValue::List(Vec::new());
                let no_token = name == "eos_token_id" && *value == FieldValue::Int(-1);
                (field.set)(self, if no_token { &none } else { value })
            }
            None if unsupported::is_noop(name, value) => Ok(()),
            None => Err(Error::config(Self::unknown_field(name)).concerning(name)),
        }
    }

    /// Sets a field as the keyword of a call does: [`FieldValue::Null`] switches it off.
    ///
    /// # Errors
    /// As for [`GenerationConfig::set`].
    pub fn set_in_call(&mut self, name: &str, value: &FieldValue) -> Result<()> {
        self.set(name, value)?;
        if *value == FieldValue::Null {
            self.switched_off.extend(FieldInfo::of(name).map(|field| field.name));
        }
        Ok(())
    }

    /// Switches a field off, also where the model's file sets it: what `None` means in a call of transformers. Without an
    /// `eos_token_id` nothing ends a row before its limit; without `top_k` all tokens may be drawn.
    ///
    /// # Errors
    /// When there is no such field.
    pub fn switch_off(mut self, name: &str) -> Result<Self> {
        self.set_in_call(name, &FieldValue::Null)?;
        Ok(self)
    }
}
