//! [`GenerationConfig`]: transformers' generation fields as plain data.
//!
//! Every field is an `Option`, so that the precedence call > passed config > model's file > default works field by
//! field. Only types are checked here. A plan ([`GenerationPlan`](super::GenerationPlan)) checks values, because
//! their validity depends on the prompt, the model and the other fields. To add a field: its line in the struct
//! below, and its line in the table of `table.rs`, which all interfaces are made from.

mod biases;
mod choices;
mod field;
mod file;
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

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_core::json;
use rsgen_core::types::TokenId;

pub use biases::{LogitBias, SequenceBias};
pub use choices::{AssistantTokensSchedule, Compat, DolaLayers, EarlyStopping, ForcedWord};
pub(super) use field::FieldType;
pub use field::OneOrMany;
pub use json_schema::JsonSchema;
pub use kind::{FieldKind, MAX_COUNT, integer};
pub use negative_prompt::{NegativePromptIds, NegativePromptMask};
pub use suggest::suggest;
pub use table::{FieldInfo, Heading, MAX_ENTRIES, MAX_ROWS, MAX_STOPS, MAX_TEXT, Searches};
pub use value::FieldValue;
pub use watermarking::{SeedingScheme, SynthIDTextWatermarkingConfig, Watermarking, WatermarkingConfig};

/// Leaves the struct as it is written, and copies the documentation of each field into a constant of its name.
macro_rules! documented {
    ($(#[$attribute:meta])* pub struct $struct:ident { $( $(#[doc = $doc:literal])+ pub $name:ident: $type:ty, )+ }) => {
        $(#[$attribute])*
        pub struct $struct { $( $(#[doc = $doc])+ pub $name: $type, )+ }

        /// What each field does.
        #[allow(non_upper_case_globals, dead_code)]
        mod docs {
            $( pub(super) const $name: &str = concat!($($doc),+); )+
        }
    };
}

documented! {
    /// How to generate: transformers' `GenerationConfig`, with every field unset until somebody sets it.
    ///
    /// ```
    /// use rsgen_generation::GenerationConfig;
    ///
    /// let config = GenerationConfig::new().max_new_tokens(60).do_sample(true).top_p(0.9);
    /// assert_eq!(config.top_p, Some(0.9));
    /// assert_eq!(config.temperature, None);
    /// ```
    #[derive(Debug, Clone, Default, PartialEq)]
    #[non_exhaustive]
    pub struct GenerationConfig {
        /// The most tokens of a sequence, prompt included; `max_new_tokens` has precedence over it.
        pub max_length: Option<usize>,
        /// The most tokens to generate.
        pub max_new_tokens: Option<usize>,
        /// The length, prompt included, before which no end-of-sequence token is generated.
        pub min_length: Option<usize>,
        /// The number of new tokens before which no end-of-sequence token is generated.
        pub min_new_tokens: Option<usize>,
        /// Seconds after which generation stops, at the end of the step that is running.
        pub max_time: Option<f64>,
        /// Texts that end a row when they are completed; they stay in the output.
        pub stop_strings: Option<OneOrMany<String>>,
        /// Whether to draw each token at random instead of taking the most probable one.
        pub do_sample: Option<bool>,
        /// The number of beams; 1 is no beam search.
        pub num_beams: Option<usize>,
        /// Accepted for transformers' sake, without effect: candidates share the memory of what they have in
        /// common.
        pub low_memory: Option<bool>,
        /// The number of rows generated for each prompt.
        pub num_return_sequences: Option<usize>,
        /// The token that fills rows up to equal length.
        pub pad_token_id: Option<TokenId>,
        /// The token that begins a text, used when there is no prompt.
        pub bos_token_id: Option<TokenId>,
        /// The token, or tokens, that end a row; an empty list: none.
        pub eos_token_id: Option<OneOrMany<TokenId>>,
        /// Whether to keep the processed scores of every step.
        pub output_scores: Option<bool>,
        /// Whether to keep the model's own logits of every step.
        pub output_logits: Option<bool>,
        /// Whether to keep the hidden states of all layers at every step.
        pub output_hidden_states: Option<bool>,
        /// Whether to keep the attention weights of all layers at every step.
        pub output_attentions: Option<bool>,
        /// How many of the likeliest tokens to keep; each generated token gets them, with their log-probabilities under
        /// the model's own logits.
        pub top_logprobs: Option<usize>,
        /// Whether to tell how each token was found: alternatives and what removed them, nodes of beams, drafts.
        pub output_events: Option<bool>,
        /// Accepted for transformers' sake, without effect: results are always objects.
        pub return_dict_in_generate: Option<bool>,
        /// An older transformers whose results are wanted where they differ: "4.49".
        pub compat: Option<Compat>,
        /// Accepted for transformers' sake: the KV cache is always used.
        pub use_cache: Option<bool>,
        /// The most prompt tokens computed in one pass; changes no result.
        pub prefill_chunk_size: Option<usize>,
        /// Lets a text go on past the context: how many of its first tokens stay in the cache, beside the newest; 4 if only
        /// `window` is set.
        pub attention_sinks: Option<usize>,
        /// The most tokens in the cache of a text with `attention_sinks`, these included; the model's context if only those
        /// are set. The oldest others leave it, and positions are those within it.
        pub window: Option<usize>,
        /// The seed of sampling: the tokens that `torch.manual_seed(seed)` gives transformers. For a list of
        /// prompts, one seed each, or one from which prompt `i` takes `seed + i`.
        pub seed: Option<OneOrMany<u64>>,
        /// Whether the last token of the prompt is chosen again, among those that extend its text, before generation begins.
        pub token_healing: Option<bool>,
        /// Contrastive search: how much likeness to earlier states counts against a token, from 0 to 1.
        pub penalty_alpha: Option<f64>,
        /// `DoLa`: the inner layers to contrast with: `"low"`, `"high"` or a list of layers, 0 being the
        /// embedding.
        pub dola_layers: Option<DolaLayers>,
        /// Prompt lookup: how many tokens are looked up and checked in one pass. The result of greedy search is the same.
        pub prompt_lookup_num_tokens: Option<usize>,
        /// Prompt lookup: how many of the newest tokens have to have occurred before, at most.
        pub max_matching_ngram_size: Option<usize>,
        /// Assisted decoding: how many tokens the assistant drafts at most before the model checks them.
        pub num_assistant_tokens: Option<usize>,
        /// Assisted decoding: whether the number of drafted tokens grows when all of them are accepted and shrinks when not;
        /// `"heuristic"` keeps it for later calls with the assistant, `"heuristic_transient"` does not. `"adaptive"`, also for
        /// prompt lookup, drafts as many as measured times make fastest, or none, and changes no token.
        pub num_assistant_tokens_schedule: Option<AssistantTokensSchedule>,
        /// Assisted decoding: a draft ends with the first token that is less probable to the assistant. It adapts during a
        /// call to what is accepted; 0 switches it off.
        pub assistant_confidence_threshold: Option<f64>,
        /// Assisted decoding, with another tokenizer: how many tokens of the assistant are encoded again with each draft.
        pub assistant_lookbehind: Option<usize>,
        /// Assisted decoding, with another tokenizer: how many tokens of the model are encoded again with each draft.
        pub target_lookbehind: Option<usize>,
        /// Assisted decoding without an assistant: how many layers of the model itself draft.
        pub assistant_early_exit: Option<usize>,
        /// Assisted decoding: the weight of the model, between 0 and 1, in a mixture with the assistant that drafts are checked
        /// against. It accepts more drafts and changes the tokens.
        pub assistant_ensemble_weight: Option<f64>,
        /// When beam search ends: `false` once it is unlikely that a better hypothesis follows, `true` with
        /// as many hypotheses as beams, `"never"` only when no better one can follow.
        pub early_stopping: Option<EarlyStopping>,
        /// The power of its length that the score of a hypothesis is divided by: above 0 favours long ones.
        pub length_penalty: Option<f64>,
        /// The number of groups that the beams are split into, which are kept apart by `diversity_penalty`.
        pub num_beam_groups: Option<usize>,
        /// What the output of a constrained beam search has to hold: phrases of token ids, or lists of
        /// phrases of which one is enough.
        pub force_words_ids: Option<Vec<ForcedWord>>,
        /// Guidance: how far log-probabilities move away from those after the negative prompt; 1 is no guidance, 1.5 is usual.
        /// Each row takes a second row of the model.
        pub guidance_scale: Option<f64>,
        /// Guidance: the text to move away from, or one for each prompt. Without it, the last token of the prompt.
        pub negative_prompt: Option<OneOrMany<String>>,
        /// Guidance: the negative prompt as token ids, or one for each prompt.
        pub negative_prompt_ids: Option<NegativePromptIds>,
        /// Guidance: which ids of `negative_prompt_ids` are real (1) and which are padding (0); all are real without it.
        pub negative_prompt_attention_mask: Option<NegativePromptMask>,
        /// Adds a bias to the score of a sequence's last token when its other tokens have just occurred.
        pub sequence_bias: Option<SequenceBias>,
        /// Adds a number from -100 to 100 to the score of a token, as OpenAI's field of that name.
        pub logit_bias: Option<LogitBias>,
        /// Subtracts a number for each earlier group of beams that has chosen the token in this step.
        pub diversity_penalty: Option<f64>,
        /// Divides the negative and multiplies the other scores of the prompt's tokens, once each.
        pub encoder_repetition_penalty: Option<f64>,
        /// Multiplies the negative and divides the other scores of tokens that have occurred, once each.
        pub repetition_penalty: Option<f64>,
        /// Subtracts a number from -2 to 2 for each time a token was generated, as OpenAI's field of that
        /// name.
        pub frequency_penalty: Option<f64>,
        /// Subtracts a number from -2 to 2 if a token was generated, as OpenAI's field of that name.
        pub presence_penalty: Option<f64>,
        /// Allows no n-gram of this size to occur twice, prompt included; 0 allows all.
        pub no_repeat_ngram_size: Option<usize>,
        /// Allows no n-gram of this size that occurs in the prompt to occur again; 0 allows all.
        pub encoder_no_repeat_ngram_size: Option<usize>,
        /// Allows no sequence of this list to occur; end-of-sequence tokens are exempt.
        pub bad_words_ids: Option<Vec<Vec<TokenId>>>,
        /// Forces the token that follows a prompt of a single token.
        pub forced_bos_token_id: Option<TokenId>,
        /// Forces one of these tokens as the last when the most tokens are reached.
        pub forced_eos_token_id: Option<OneOrMany<TokenId>>,
        /// Replaces NaN by 0 and the infinities by the largest and the least number.
        pub remove_invalid_values: Option<bool>,
        /// Raises the scores of end-of-sequence tokens by a factor to the power of the new tokens after a
        /// start.
        pub exponential_decay_length_penalty: Option<(usize, f64)>,
        /// Allows none of these tokens.
        pub suppress_tokens: Option<Vec<TokenId>>,
        /// Allows none of these tokens as the first.
        pub begin_suppress_tokens: Option<Vec<TokenId>>,
        /// A JSON schema that the new text follows: an object, or its text; in Python also a pydantic model.
        pub json_schema: Option<JsonSchema>,
        /// A regular expression that the whole new text matches, in the syntax of Rust's crate `regex`.
        pub regex: Option<String>,
        /// A grammar that the new text follows, in the notation of Lark as llguidance takes it.
        pub grammar: Option<String>,
        /// Divides the scores by a number: below 1 sharpens, above 1 flattens.
        pub temperature: Option<f64>,
        /// Keeps only the most probable tokens, up to 100, within this fraction of the entropy.
        pub top_h: Option<f64>,
        /// Keeps only this many of the most probable tokens, and ties with the last of them; 0 keeps all.
        pub top_k: Option<usize>,
        /// Keeps only the most probable tokens that together reach this probability.
        pub top_p: Option<f64>,
        /// Keeps only tokens that reach this fraction of the most probable one's probability.
        pub min_p: Option<f64>,
        /// Keeps only the tokens nearest to the expected surprise that together reach this probability.
        pub typical_p: Option<f64>,
        /// Keeps only tokens of at least this probability.
        pub epsilon_cutoff: Option<f64>,
        /// Keeps only tokens of at least this probability, or less where the entropy is high.
        pub eta_cutoff: Option<f64>,
        /// The watermark of the text; a detector with the same settings finds it. Favours tokens of pseudorandom green lists,
        /// or lets tokens win SynthID's tournaments.
        pub watermarking_config: Option<Watermarking>,
        /// Replaces the scores by the logarithms of their softmax, after all other processors.
        pub renormalize_logits: Option<bool>,
        /// The keys of a file that are no fields, as they were read.
        pub extra: Map<String, Value>,
        /// The fields that are off whatever the model's file says: what `None` means in a call of transformers. See
        /// [`GenerationConfig::switch_off`].
        pub switched_off: BTreeSet<&'static str>,
    }
}

/// The longest file that is read.
const MAX_FILE_BYTES: usize = 16 << 20;

impl GenerationConfig {
    /// A configuration with every field unset.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a `generation_config.json`. Keys that are no fields are kept in `extra`, and those that transformers does not
    /// know either are logged.
    ///
    /// # Errors
    /// `Load` when the text is longer than 16 MiB, no JSON object, has a key twice, or a field has a value of another
    /// type. The caller names the file.
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

    /// The generation fields of a model's `config.json`: transformers' method of that name.
    ///
    /// # Errors
    /// When a field has a value of another type.
    pub fn from_model_config(model_config: Map<String, Value>) -> Result<Self> {
        let mut config = Self::new();
        for (name, json) in model_config.into_iter().filter(|(name, _)| Self::is_field(name)) {
            let value = without_negative_ids(&name, json.into());
            config.set(&name, &value)?;
        }
        Ok(config)
    }

    /// Whether a text may outgrow the context: `window` alone gives it attention sinks, too.
    pub fn has_sinks(&self) -> bool {
        self.attention_sinks.is_some() || self.window.is_some()
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
            + self.watermarking_config.as_ref().map_or(0, Watermarking::num_keys)
    }

    /// The entries of a file that would change the tokens and that this version does not support; empty for most
    /// models.
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

    /// This configuration, the fields of a call, with those that are unset taken from one that was passed as a whole.
    ///
    /// In transformers 4.49 a `max_length` of 20 that was not given in the call counts as unset, since that is its default.
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

    /// The fields that are set, those that are switched off as null, and the extra keys, as `generation_config.json` holds
    /// them.
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
