//! The table of fields: all that is said about each, a setter for it, and access by name.
//!
//! The parsers, JSON schemas, options, signatures and checks of all interfaces are made from it.

use super::field::FieldType;
use super::kind::FieldKind::{self, Float, Id, Int, List, Map, Text};
use super::kind::MAX_COUNT;
use super::{
    AssistantTokensSchedule, Compat, DolaLayers, EarlyStopping, FieldValue, ForcedWord, GenerationConfig,
    JsonSchema, LogitBias, NegativePromptIds, NegativePromptMask, OneOrMany, SequenceBias, Watermarking,
    docs, unsupported,
};
use crate::mode::GenerationMode;
use rsgen_core::error::{Error, Result};
use rsgen_core::types::TokenId;

/// The most rows that a request to a service computes: prompts, times the rows or beams of each.
pub const MAX_ROWS: usize = 64;
/// The most entries of a list or a map in a request.
pub const MAX_ENTRIES: usize = 1024;
/// The most stop strings of a request.
pub const MAX_STOPS: usize = 16;
/// The longest text of a request that is no prompt, in bytes.
pub const MAX_TEXT: usize = 4096;

/// A field, for help pages, bindings and checks.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FieldInfo {
    /// The name, as in transformers.
    pub name: &'static str,
    /// Its values.
    pub kind: FieldKind,
    /// The values that a service allows: with these no computation leaves the real numbers, and no request is too large. The
    /// library itself has wider ranges, which depend on other fields and on the model.
    pub served: FieldKind,
    /// The default.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The group of its option.
    pub heading: Heading,
    /// The searches that read it.
    pub searches: Searches,
    get: fn(&GenerationConfig) -> Option<FieldValue>,
    set: fn(&mut GenerationConfig, &FieldValue) -> Result<()>,
}

impl FieldInfo {
    /// The field of that name.
    pub fn of(name: &str) -> Option<&'static Self> {
        GenerationConfig::FIELDS.iter().find(|field| field.name == name)
    }
}

/// A group of fields, in the order of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Heading {
    /// When a text ends.
    Length,
    /// What most calls set.
    Decoding,
    /// What may be drawn.
    Sampling,
    /// Beams and other searches.
    Searches,
    /// Drafts of tokens.
    Drafts,
    /// What a text follows.
    Structure,
    /// Penalties and biases.
    Penalties,
    /// Guidance by a negative prompt.
    Guidance,
    /// The ids of special tokens.
    SpecialTokens,
    /// What an output holds besides.
    Results,
    /// Arrays of an output, for programs alone.
    Arrays,
    /// Accepted without effect.
    Accepted,
}

impl Heading {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Length => "Length",
            Self::Decoding => "Decoding",
            Self::Sampling => "Sampling",
            Self::Searches => "Beams and other searches",
            Self::Drafts => "Drafts",
            Self::Structure => "Structured output",
            Self::Penalties => "Penalties and biases",
            Self::Guidance => "Guidance",
            Self::SpecialTokens => "Special tokens",
            Self::Results => "More results",
            Self::Arrays => "Arrays",
            Self::Accepted => "Without effect",
        }
    }
}

/// The searches that read a field. Others check its value and go on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Searches {
    /// Every search.
    All,
    /// Wherever tokens are drawn.
    Sampling,
    /// Sampling, and contrastive search.
    SamplingOrContrastive,
    /// Contrastive search.
    Contrastive,
    /// Decoding by contrasting layers.
    Dola,
    /// Prompt lookup.
    PromptLookup,
    /// Assisted decoding.
    Assisted,
    /// Both that draft.
    Drafts,
    /// Searches with beams.
    Beams,
    /// Beam search in groups.
    BeamGroups,
    /// Constrained beam search.
    Constrained,
}

impl Searches {
    /// Whether a search is one of them; `samples` is whether it draws.
    pub const fn includes(self, mode: GenerationMode, samples: bool) -> bool {
        use GenerationMode as Mode;
        match self {
            Self::All => true,
            Self::Sampling => samples,
            Self::SamplingOrContrastive => samples || matches!(mode, Mode::ContrastiveSearch),
            Self::Contrastive => matches!(mode, Mode::ContrastiveSearch),
            Self::Dola => matches!(mode, Mode::Dola),
            Self::PromptLookup => matches!(mode, Mode::PromptLookup),
            Self::Assisted => matches!(mode, Mode::AssistedDecoding),
            Self::Drafts => matches!(mode, Mode::PromptLookup | Mode::AssistedDecoding),
            Self::Beams => mode.has_beams(),
            Self::BeamGroups => matches!(mode, Mode::GroupBeamSearch),
            Self::Constrained => matches!(mode, Mode::ConstrainedBeamSearch),
        }
    }
}

const ROWS: FieldKind = Int(1, MAX_ROWS as i128);
const DRAFTED: FieldKind = Int(1, 256);
const PART: FieldKind = Float(0.0, 1.0);
const SOME: FieldKind = Float(0.001, 1.0);
const CUTOFF: FieldKind = Float(0.0, 0.999);
const FACTOR: FieldKind = Float(0.01, 100.0);
const OPENAI_PENALTY: FieldKind = Float(-2.0, 2.0);
const TEXTS: FieldKind = FieldKind::OneOrMany(&Text(1, MAX_TEXT), MAX_STOPS);

/// Writes the setters and the table. A line holds a field, the type of its setter's argument, the range that a service allows
/// where its type does not say it, its default, its heading, and the searches that read it.
macro_rules! fields {
    ($( $name:ident: $argument:ty $([$served:expr])? = $default:literal; $heading:ident, $searches:ident; )*) => {
        impl GenerationConfig {
            /// Every field, in the order of their documentation.
            pub const FIELDS: &'static [FieldInfo] = &[$( FieldInfo {
                name: stringify!($name),
                kind: kind(|config| &config.$name),
                served: served(&[$($served,)? kind(|config| &config.$name)]),
                default: $default,
                doc: docs::$name,
                heading: Heading::$heading,
                searches: Searches::$searches,
                get: |config| config.$name.as_ref().map(FieldType::to_value),
                set: |config, value| {
                    config.$name = parse(stringify!($name), value)?;
                    Ok(())
                },
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
    max_length: usize [Int(1, MAX_COUNT)] = "prompt + 20"; Length, All;
    max_new_tokens: usize [Int(1, MAX_COUNT)] = "unset"; Length, All;
    min_length: usize = "0"; Length, All;
    min_new_tokens: usize = "unset"; Length, All;
    max_time: f64 [Float(0.001, 86_400.0)] = "unset"; Length, All;
    stop_strings: impl Into<OneOrMany<String>> [TEXTS] = "unset"; Length, All;
    do_sample: bool = "false"; Decoding, All;
    num_beams: usize [ROWS] = "1"; Decoding, All;
    low_memory: bool = "false"; Accepted, All;
    num_return_sequences: usize [ROWS] = "1"; Decoding, All;
    pad_token_id: impl Into<TokenId> = "the first eos_token_id"; SpecialTokens, All;
    bos_token_id: impl Into<TokenId> = "unset"; SpecialTokens, All;
    eos_token_id: impl Into<OneOrMany<TokenId>> = "unset"; SpecialTokens, All;
    output_scores: bool = "false"; Results, All;
    output_logits: bool = "false"; Results, All;
    output_hidden_states: bool = "false"; Arrays, All;
    output_attentions: bool = "false"; Arrays, All;
    top_logprobs: usize [Int(0, 100)] = "0"; Results, All;
    output_events: bool = "false"; Results, All;
    return_dict_in_generate: bool = "true"; Accepted, All;
    compat: Compat = "unset"; Decoding, All;
    use_cache: bool = "true"; Accepted, All;
    prefill_chunk_size: usize [Int(16, MAX_COUNT)] = "chosen by the engine"; Decoding, All;
    attention_sinks: usize = "unset"; Length, All;
    window: usize = "unset"; Length, All;
    seed: impl Into<OneOrMany<u64>> = "drawn, and reported in the output"; Decoding, Sampling;
    token_healing: bool = "false"; Decoding, All;
    penalty_alpha: f64 [PART] = "unset"; Searches, Contrastive;
    dola_layers: impl Into<DolaLayers> = "unset"; Searches, Dola;
    prompt_lookup_num_tokens: usize [DRAFTED] = "unset"; Drafts, PromptLookup;
    max_matching_ngram_size: usize [DRAFTED] = "2"; Drafts, PromptLookup;
    num_assistant_tokens: usize [DRAFTED] = "20"; Drafts, Assisted;
    num_assistant_tokens_schedule: AssistantTokensSchedule = "\"constant\""; Drafts, Drafts;
    assistant_confidence_threshold: f64 [PART] = "0.4"; Drafts, Assisted;
    assistant_lookbehind: usize = "10"; Drafts, Assisted;
    target_lookbehind: usize = "10"; Drafts, Assisted;
    assistant_early_exit: usize = "unset"; Drafts, Assisted;
    assistant_ensemble_weight: f64 [Float(0.01, 0.99)] = "unset"; Drafts, Assisted;
    early_stopping: impl Into<EarlyStopping> = "false"; Searches, Beams;
    length_penalty: f64 [Float(-10.0, 10.0)] = "1.0"; Searches, Beams;
    num_beam_groups: usize [ROWS] = "1"; Searches, Beams;
    force_words_ids: impl Into<Vec<ForcedWord>> = "unset"; Searches, Constrained;
    guidance_scale: f64 [Float(-100.0, 100.0)] = "1.0"; Guidance, All;
    negative_prompt: impl Into<OneOrMany<String>> [TEXTS] = "unset"; Guidance, All;
    negative_prompt_ids: impl Into<NegativePromptIds> = "unset"; Guidance, All;
    negative_prompt_attention_mask: NegativePromptMask = "unset"; Guidance, All;
    sequence_bias: SequenceBias = "unset"; Penalties, All;
    logit_bias: LogitBias [Map(&Id, &Float(-100.0, 100.0), MAX_ENTRIES)] = "unset"; Penalties, All;
    diversity_penalty: f64 [Float(0.0, 100.0)] = "0.0"; Searches, BeamGroups;
    encoder_repetition_penalty: f64 [FACTOR] = "1.0"; Penalties, All;
    repetition_penalty: f64 [FACTOR] = "1.0"; Penalties, All;
    frequency_penalty: f64 [OPENAI_PENALTY] = "0.0"; Penalties, All;
    presence_penalty: f64 [OPENAI_PENALTY] = "0.0"; Penalties, All;
    no_repeat_ngram_size: usize = "0"; Penalties, All;
    encoder_no_repeat_ngram_size: usize = "0"; Penalties, All;
    bad_words_ids: Vec<Vec<TokenId>> [List(&FieldKind::IDS, MAX_ENTRIES)] = "unset"; Penalties, All;
    forced_bos_token_id: impl Into<TokenId> = "unset"; SpecialTokens, All;
    forced_eos_token_id: impl Into<OneOrMany<TokenId>> = "unset"; SpecialTokens, All;
    remove_invalid_values: bool = "false"; Penalties, All;
    exponential_decay_length_penalty: (usize, f64) = "unset"; Penalties, All;
    suppress_tokens: Vec<TokenId> = "unset"; Penalties, All;
    begin_suppress_tokens: Vec<TokenId> = "unset"; Penalties, All;
    json_schema: impl Into<JsonSchema> = "unset"; Structure, All;
    regex: impl Into<String> = "unset"; Structure, All;
    grammar: impl Into<String> = "unset"; Structure, All;
    temperature: f64 [Float(0.01, 100.0)] = "1.0"; Decoding, Sampling;
    top_h: f64 [SOME] = "unset"; Sampling, Sampling;
    top_k: usize = "50"; Decoding, SamplingOrContrastive;
    top_p: f64 [PART] = "1.0"; Decoding, Sampling;
    min_p: f64 [PART] = "unset"; Sampling, Sampling;
    typical_p: f64 [SOME] = "1.0"; Sampling, Sampling;
    epsilon_cutoff: f64 [CUTOFF] = "0.0"; Sampling, Sampling;
    eta_cutoff: f64 [CUTOFF] = "0.0"; Sampling, Sampling;
    watermarking_config: impl Into<Watermarking> = "unset"; Penalties, All;
    renormalize_logits: bool = "false"; Sampling, All;
}

const fn kind<T: FieldType>(_field: fn(&GenerationConfig) -> &Option<T>) -> FieldKind {
    T::KIND
}

/// The first of these: the range of a line, or the kind of its type.
const fn served(kinds: &[FieldKind]) -> FieldKind {
    kinds[0]
}

fn parse<T: FieldType>(name: &str, value: &FieldValue) -> Result<Option<T>> {
    if *value == FieldValue::Null {
        return Ok(None);
    }
    let parsed = T::parse(value).ok_or_else(|| {
        let why =
            T::explain(value).unwrap_or_else(|| format!("must be {}, but is {value}", T::KIND.describe()));
        Error::config(format!("`{name}` {why}; None leaves it unset"))
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
            None => Err(Error::config(Self::unknown_field(name))),
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
