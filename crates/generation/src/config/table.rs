//! The table of fields: all that is said about each, a setter for it, and access by name.
//!
//! The parsers, JSON schemas, options, signatures and checks of all interfaces are made from it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::field::FieldType;
use super::info::{FieldInfo, Heading, MAX_ENTRIES, MAX_ROWS, MAX_STOPS, MAX_TEXT, Searches};
use super::kind::FieldKind::{self, Float, Id, Int, List, Text};
use super::kind::MAX_COUNT;
use super::{
    AssistantTokensSchedule, Compat, DolaLayers, EarlyStopping, FieldValue, ForcedWord, Glossary, JsonSchema,
    LogitBias, NegativePromptIds, NegativePromptMask, OneOrMany, SequenceBias, Watermarking, unsupported,
};
use rsgen_core::{Error, Result, TokenId, message};

const ROWS: FieldKind = Int(1, MAX_ROWS as i128);
const DRAFTED: FieldKind = Int(1, 256);
const PART: FieldKind = Float(0.0, 1.0);
const SOME: FieldKind = Float(0.001, 1.0);
const CUTOFF: FieldKind = Float(0.0, 0.999);
const FACTOR: FieldKind = Float(0.01, 100.0);
const OPENAI_PENALTY: FieldKind = Float(-2.0, 2.0);
const TEXTS: FieldKind = FieldKind::OneOrMany(&Text(1, MAX_TEXT), MAX_STOPS);
const WORDS: FieldKind = FieldKind::OneOrMany(&Text(1, MAX_TEXT), MAX_ENTRIES);

/// The first of these: what the setter of a line takes, or its type.
macro_rules! first_type {
    ($first:ty $(, $type:ty)?) => {
        $first
    };
}

/// Writes the struct, its setters and the table. Above a line stands what a field does. The line holds its
/// type, what its setter takes if that is more, the range that a service allows where the type does not say
/// it, its default, its heading, and the searches that read it.
macro_rules! fields {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty $(as $argument:ty)? $([$served:expr])? = $default:literal; $heading:ident, $searches:ident;
    )*) => {
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
            $(
                $(#[doc = $doc])+
                pub $name: Option<$type>,
            )*
            /// The keys of a file that are no fields, as they were read.
            pub extra: Map<String, Value>,
            /// The fields that are off whatever the model's file says: what `None` means in a call of
            /// transformers. See [`GenerationConfig::switch_off`].
            pub switched_off: BTreeSet<&'static str>,
        }

        impl GenerationConfig {
            /// Every field, in the order of their documentation.
            #[expect(clippy::large_stack_arrays, reason = "it is a part of the program, and on no stack")]
            pub const FIELDS: &'static [FieldInfo] = &[$( FieldInfo {
                name: stringify!($name),
                kind: within(<$type>::KIND, first(&[$($served,)? <$type>::KIND])),
                served: first(&[$($served,)? <$type>::KIND]),
                default: $default,
                doc: concat!($($doc),+),
                heading: Heading::$heading,
                searches: Searches::$searches,
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
                pub fn $name(mut self, $name: first_type!($($argument,)? $type)) -> Self {
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
    /// The most tokens of a sequence, prompt included; `max_new_tokens` has precedence over it.
    max_length: usize [Int(1, MAX_COUNT)] = "prompt + 20"; Length, All;
    /// The most tokens to generate.
    max_new_tokens: usize [Int(1, MAX_COUNT)] = "unset"; Length, All;
    /// The length, prompt included, before which no end-of-sequence token is generated.
    min_length: usize = "0"; Length, All;
    /// The number of new tokens before which no end-of-sequence token is generated.
    min_new_tokens: usize = "unset"; Length, All;
    /// Seconds after which generation stops, at the end of the step that is running.
    max_time: f64 [Float(0.001, 86_400.0)] = "unset"; Length, All;
    /// Texts that end a row when they are completed; they stay in the output, see `include_stop_str_in_output`.
    stop_strings: OneOrMany<String> as impl Into<OneOrMany<String>> [TEXTS] = "unset"; Length, All;
    /// Whether the text of a row includes the stop string that ended it; its tokens do in any case.
    include_stop_str_in_output: bool = "true"; Length, All;
    /// Whether to draw each token at random instead of taking the most probable one.
    do_sample: bool = "false"; Decoding, All;
    /// The number of beams; 1 is no beam search.
    num_beams: usize [ROWS] = "1"; Decoding, All;
    /// Accepted for transformers' sake, without effect: candidates share the memory of what they have in
    /// common.
    low_memory: bool = "false"; Accepted, All;
    /// The number of rows generated for each prompt.
    num_return_sequences: usize [ROWS] = "1"; Decoding, All;
    /// The token that fills rows up to equal length.
    pad_token_id: TokenId as impl Into<TokenId> = "the first eos_token_id"; SpecialTokens, All;
    /// The token that begins a text, used when there is no prompt.
    bos_token_id: TokenId as impl Into<TokenId> = "unset"; SpecialTokens, All;
    /// The token, or tokens, that end a row; an empty list: none.
    eos_token_id: OneOrMany<TokenId> as impl Into<OneOrMany<TokenId>> = "unset"; SpecialTokens, All;
    /// The token that the decoder of a model with an encoder begins with, or a list of one for each prompt.
    decoder_start_token_id: OneOrMany<TokenId> as impl Into<OneOrMany<TokenId>> = "bos_token_id"; SpecialTokens, All;
    /// The text that the output of a model with an encoder begins with, or one for each prompt; it goes on from
    /// there.
    target_prefix: OneOrMany<String> as impl Into<OneOrMany<String>> [TEXTS] = "unset"; Decoding, All;
    /// Whether to keep the processed scores of every step.
    output_scores: bool = "false"; Results, All;
    /// Whether to keep the model's own logits of every step.
    output_logits: bool = "false"; Results, All;
    /// Whether to keep the hidden states of all layers at every step.
    output_hidden_states: bool = "false"; Arrays, All;
    /// Whether to keep the attention weights of all layers at every step.
    output_attentions: bool = "false"; Arrays, All;
    /// How many of the likeliest tokens to keep; each generated token gets them, with their log-probabilities
    /// under the model's own logits.
    top_logprobs: usize [Int(0, 100)] = "0"; Results, All;
    /// Whether to tell how each token was found: alternatives and what removed them, nodes of beams, drafts.
    output_events: bool = "false"; Results, All;
    /// Accepted for transformers' sake, without effect: results are always objects.
    return_dict_in_generate: bool = "true"; Accepted, All;
    /// An older transformers whose results are wanted where they differ from those of 5.24: "4.49" or "5.23".
    compat: Compat = "unset"; Decoding, All;
    /// Accepted for transformers' sake: the KV cache is always used.
    use_cache: bool = "true"; Accepted, All;
    /// The most prompt tokens computed in one pass; changes no result.
    prefill_chunk_size: usize [Int(16, MAX_COUNT)] = "chosen by the engine"; Decoding, All;
    /// Lets a text go on past the context: how many of its first tokens stay in the cache, beside the newest;
    /// 4 if only `window` is set.
    attention_sinks: usize = "unset"; Length, All;
    /// The most tokens in the cache of a text with `attention_sinks`, these included; the model's context if
    /// only those are set. The oldest others leave it, and positions are those within it.
    window: usize = "unset"; Length, All;
    /// The seed of sampling: the tokens that `torch.manual_seed(seed)` gives transformers. For a list of
    /// prompts, one seed each, or one from which prompt `i` takes `seed + i`.
    seed: OneOrMany<u64> as impl Into<OneOrMany<u64>> = "drawn, and reported in the output"; Decoding, Sampling;
    /// Whether the last token of the prompt is chosen again, among those that extend its text, before
    /// generation begins.
    token_healing: bool = "false"; Decoding, All;
    /// Contrastive search: how much likeness to earlier states counts against a token, from 0 to 1.
    penalty_alpha: f64 [PART] = "unset"; Searches, Contrastive;
    /// `DoLa`: the inner layers to contrast with: `"low"`, `"high"` or a list of layers, 0 being the
    /// embedding.
    dola_layers: DolaLayers as impl Into<DolaLayers> = "unset"; Searches, Dola;
    /// Prompt lookup: how many tokens are looked up and checked in one pass. The result of greedy search is
    /// the same.
    prompt_lookup_num_tokens: usize [DRAFTED] = "unset"; Drafts, PromptLookup;
    /// Prompt lookup: how many of the newest tokens have to have occurred before, at most.
    max_matching_ngram_size: usize [DRAFTED] = "2"; Drafts, PromptLookup;
    /// Assisted decoding: how many tokens the assistant drafts at most before the model checks them.
    num_assistant_tokens: usize [DRAFTED] = "20"; Drafts, Assisted;
    /// Assisted decoding: whether the number of drafted tokens grows when all of them are accepted and
    /// shrinks when not; `"heuristic"` keeps it for later calls with the assistant, `"heuristic_transient"`
    /// does not. `"adaptive"`, also for prompt lookup, drafts as many as measured times make fastest, or
    /// none, and changes no token.
    num_assistant_tokens_schedule: AssistantTokensSchedule = "\"constant\""; Drafts, Drafts;
    /// Assisted decoding: a draft ends with the first token that is less probable to the assistant. It adapts
    /// during a call to what is accepted; 0 switches it off.
    assistant_confidence_threshold: f64 [PART] = "0.4"; Drafts, Assisted;
    /// Assisted decoding, with another tokenizer: how many tokens of the assistant are encoded again with
    /// each draft.
    assistant_lookbehind: usize = "10"; Drafts, Assisted;
    /// Assisted decoding, with another tokenizer: how many tokens of the model are encoded again with each
    /// draft.
    target_lookbehind: usize = "10"; Drafts, Assisted;
    /// Assisted decoding without an assistant: how many layers of the model itself draft.
    assistant_early_exit: usize = "unset"; Drafts, Assisted;
    /// Assisted decoding: the weight of the model, between 0 and 1, in a mixture with the assistant that
    /// drafts are checked against. It accepts more drafts and changes the tokens.
    assistant_ensemble_weight: f64 [Float(0.01, 0.99)] = "unset"; Drafts, Assisted;
    /// When beam search ends: `false` once it is unlikely that a better hypothesis follows, `true` with
    /// as many hypotheses as beams, `"never"` only when no better one can follow.
    early_stopping: EarlyStopping as impl Into<EarlyStopping> = "false"; Searches, Beams;
    /// The power of its length that the score of a hypothesis is divided by: above 0 favours long ones.
    length_penalty: f64 [Float(-10.0, 10.0)] = "1.0"; Searches, Beams;
    /// The number of groups that the beams are split into, which are kept apart by `diversity_penalty`.
    num_beam_groups: usize [ROWS] = "1"; Searches, Beams;
    /// What the output of a constrained beam search has to hold: phrases of token ids, or lists of
    /// phrases of which one is enough.
    force_words_ids: Vec<ForcedWord> as impl Into<Vec<ForcedWord>> = "unset"; Searches, Constrained;
    /// What the output of a constrained beam search has to hold, as texts.
    force_words: OneOrMany<String> as impl Into<OneOrMany<String>> [WORDS] = "unset"; Searches, Constrained;
    /// Terms and their translations, or lists of forms of which one is enough: the output for a prompt that
    /// holds a term as whole words has to hold its translation. Such prompts get a constrained beam search,
    /// others the search of the other fields.
    glossary: Glossary as impl Into<Glossary> [Glossary::SERVED] = "unset"; Searches, Constrained;
    /// Guidance: how far log-probabilities move away from those after the negative prompt; 1 is no guidance,
    /// 1.5 is usual. Each row takes a second row of the model.
    guidance_scale: f64 [Float(-100.0, 100.0)] = "1.0"; Guidance, All;
    /// Guidance: the text to move away from, or one for each prompt. Without it, the last token of the
    /// prompt.
    negative_prompt: OneOrMany<String> as impl Into<OneOrMany<String>> [TEXTS] = "unset"; Guidance, All;
    /// Guidance: the negative prompt as token ids, or one for each prompt.
    negative_prompt_ids: NegativePromptIds as impl Into<NegativePromptIds> = "unset"; Guidance, All;
    /// Guidance: which ids of `negative_prompt_ids` are real (1) and which are padding (0); all are real
    /// without it.
    negative_prompt_attention_mask: NegativePromptMask = "unset"; Guidance, All;
    /// Adds a bias to the score of a sequence's last token when its other tokens have just occurred.
    sequence_bias: SequenceBias = "unset"; Penalties, All;
    /// Adds a number from -100 to 100 to the score of a token, as OpenAI's field of that name.
    logit_bias: LogitBias [FieldKind::Map(&Id, &Float(-100.0, 100.0), MAX_ENTRIES)] = "unset"; Penalties, All;
    /// Subtracts a number for each earlier group of beams that has chosen the token in this step.
    diversity_penalty: f64 [Float(0.0, 100.0)] = "0.0"; Searches, BeamGroups;
    /// Divides the negative and multiplies the other scores of the prompt's tokens, once each.
    encoder_repetition_penalty: f64 [FACTOR] = "1.0"; Penalties, All;
    /// Multiplies the negative and divides the other scores of tokens that have occurred, once each.
    repetition_penalty: f64 [FACTOR] = "1.0"; Penalties, All;
    /// Subtracts a number from -2 to 2 for each time a token was generated, as OpenAI's field of that
    /// name.
    frequency_penalty: f64 [OPENAI_PENALTY] = "0.0"; Penalties, All;
    /// Subtracts a number from -2 to 2 if a token was generated, as OpenAI's field of that name.
    presence_penalty: f64 [OPENAI_PENALTY] = "0.0"; Penalties, All;
    /// Allows no n-gram of this size to occur twice, prompt included; 0 allows all.
    no_repeat_ngram_size: usize = "0"; Penalties, All;
    /// Allows no n-gram of this size that occurs in the prompt to occur again; 0 allows all.
    encoder_no_repeat_ngram_size: usize = "0"; Penalties, All;
    /// Allows no sequence of this list to occur; end-of-sequence tokens are exempt.
    bad_words_ids: Vec<Vec<TokenId>> [List(&FieldKind::IDS, MAX_ENTRIES)] = "unset"; Penalties, All;
    /// Texts that must not occur, as vLLM's field of that name: each with and without a space before it.
    bad_words: OneOrMany<String> as impl Into<OneOrMany<String>> [WORDS] = "unset"; Penalties, All;
    /// Forces the token that follows a prompt of a single token.
    forced_bos_token_id: TokenId as impl Into<TokenId> = "unset"; SpecialTokens, All;
    /// Forces one of these tokens as the last when the most tokens are reached.
    forced_eos_token_id: OneOrMany<TokenId> as impl Into<OneOrMany<TokenId>> = "unset"; SpecialTokens, All;
    /// Replaces NaN by 0 and the infinities by the largest and the least number.
    remove_invalid_values: bool = "false"; Penalties, All;
    /// Raises the scores of end-of-sequence tokens by a factor to the power of the new tokens after a
    /// start.
    exponential_decay_length_penalty: (usize, f64) = "unset"; Penalties, All;
    /// Allows none of these tokens.
    suppress_tokens: Vec<TokenId> = "unset"; Penalties, All;
    /// Allows none of these tokens as the first.
    begin_suppress_tokens: Vec<TokenId> = "unset"; Penalties, All;
    /// A JSON schema that the new text follows: an object, or its text; in Python also a pydantic model.
    json_schema: JsonSchema as impl Into<JsonSchema> = "unset"; Structure, All;
    /// A regular expression that the whole new text matches, in the syntax of Rust's crate `regex`.
    regex: String as impl Into<String> = "unset"; Structure, All;
    /// A grammar that the new text follows, in the notation of Lark as llguidance takes it.
    grammar: String as impl Into<String> = "unset"; Structure, All;
    /// The most tokens that the model thinks before it answers, as vLLM's field of that name; then the tokens
    /// that end the thinking are forced. 0 lets it think nothing.
    thinking_token_budget: usize = "unset"; Structure, All;
    /// The tokens that thinking begins with; none where the prompt has begun it. Chats take them from the
    /// template.
    think_start_token_ids: Vec<TokenId> = "unset"; SpecialTokens, All;
    /// The tokens that thinking ends with. A grammar begins behind them. Chats take them from the template.
    think_end_token_ids: Vec<TokenId> = "unset"; SpecialTokens, All;
    /// The tokens between thinking and an answer that a grammar holds. Chats take them from the template.
    answer_start_token_ids: Vec<TokenId> = "unset"; SpecialTokens, All;
    /// Divides the scores by a number: below 1 sharpens, above 1 flattens.
    temperature: f64 [Float(0.01, 100.0)] = "1.0"; Decoding, Sampling;
    /// Keeps only the most probable tokens, up to 100, within this fraction of the entropy.
    top_h: f64 [SOME] = "unset"; Sampling, Sampling;
    /// Keeps only this many of the most probable tokens, and ties with the last of them; 0 keeps all.
    top_k: usize = "50"; Decoding, SamplingOrContrastive;
    /// Keeps only the most probable tokens that together reach this probability.
    top_p: f64 [PART] = "1.0"; Decoding, Sampling;
    /// Keeps only tokens that reach this fraction of the most probable one's probability.
    min_p: f64 [PART] = "unset"; Sampling, Sampling;
    /// Keeps only the tokens nearest to the expected surprise that together reach this probability.
    typical_p: f64 [SOME] = "1.0"; Sampling, Sampling;
    /// Keeps only tokens of at least this probability.
    epsilon_cutoff: f64 [CUTOFF] = "0.0"; Sampling, Sampling;
    /// Keeps only tokens of at least this probability, or less where the entropy is high.
    eta_cutoff: f64 [CUTOFF] = "0.0"; Sampling, Sampling;
    /// The watermark of the text; a detector with the same settings finds it. Favours tokens of pseudorandom
    /// green lists, or lets tokens win SynthID's tournaments.
    watermarking_config: Watermarking as impl Into<Watermarking> = "unset"; Penalties, All;
    /// Replaces the scores by the logarithms of their softmax, after all other processors.
    renormalize_logits: bool = "false"; Sampling, All;
}

/// A number of which a service takes none below 1 is nowhere 0.
const fn within(kind: FieldKind, served: FieldKind) -> FieldKind {
    match (kind, served) {
        (Int(0, most), Int(1.., _)) => Int(1, most),
        (kind, _) => kind,
    }
}

/// The first of these: the range of a line, or the kind of its type.
const fn first(kinds: &[FieldKind]) -> FieldKind {
    kinds[0]
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
        let kind = FieldInfo::of(name).map_or(T::KIND, |field| field.kind);
        let why = T::explain(value).unwrap_or_else(|| format!("must be {}, but is {value}", kind.describe()));
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
    /// transformers, an `eos_token_id` of -1 is no token. Values of unsupported fields are ignored where they
    /// change nothing.
    ///
    /// # Errors
    /// When there is no such field, with the name that was probably meant, or a remedy for a field of
    /// transformers; and when the value has another type.
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

    /// Switches a field off, also where the model's file sets it: what `None` means in a call of
    /// transformers. Without an `eos_token_id` nothing ends a row before its limit; without `top_k` all
    /// tokens may be drawn.
    ///
    /// # Errors
    /// When there is no such field.
    pub fn switch_off(mut self, name: &str) -> Result<Self> {
        self.set_in_call(name, &FieldValue::Null)?;
        Ok(self)
    }
}
