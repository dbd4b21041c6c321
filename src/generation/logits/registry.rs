//! The table of all processors, and what each line of it becomes.
//!
//! A line says all there is to say of a processor outside of its own file: what it does, the class, the
//! arguments of its constructor with their defaults, when it takes part, and the configuration field that it
//! alone reads, which the line makes. The order of the lines is the order of application and that of
//! transformers. To add a processor: its file, its line, its golden.

use std::sync::Arc;

use crate::error::Result;
use crate::types::TokenId;

use super::super::config::{Compat, LogitBias, OneOrMany, SequenceBias};
use super::arguments::{Argument, ArgumentInfo, Arguments};
#[allow(clippy::wildcard_imports, reason = "all classes of the table")]
use super::*;

/// Hands the table to the macro `$then`.
///
/// A line is `file::Class(argument: type = default, …)`, with `; device` where transformers takes a device,
/// `in` the searches it takes part in, and what switches it on: `field name: type = default as shown` for a
/// field that is made here, or `by name` for a field of the configuration's own table or an argument of a call.
macro_rules! for_each_processor {
    ($then:ident) => {
        $then! {
            before_callers {
                #[doc = "Adds a bias to the score of a sequence's last token when its other tokens have just occurred."]
                sequence_bias::SequenceBiasLogitsProcessor(sequence_bias: SequenceBias) in AllSearches,
                    field sequence_bias: SequenceBias = "unset";

                #[doc = "Adds a number from -100 to 100 to the score of a token, as OpenAI's field of that name."]
                logit_bias::LogitBiasLogitsProcessor(logit_bias: LogitBias) in AllSearches,
                    field logit_bias: LogitBias = "unset";

                #[doc = "Subtracts a number for each earlier group of beams that has chosen the token in this step."]
                hamming_diversity::HammingDiversityLogitsProcessor(
                    diversity_penalty: f64, num_beams: usize, num_beam_groups: usize
                ) in BeamGroups, field diversity_penalty: f64 = "0.0";

                #[doc = "Divides the negative and multiplies the other scores of the prompt's tokens, once each."]
                encoder_repetition_penalty::EncoderRepetitionPenaltyLogitsProcessor(
                    penalty: f64, encoder_input_ids: EncoderInputIds
                ) in AllSearches, field encoder_repetition_penalty: f64 = "1.0";

                #[doc = "Multiplies the negative and divides the other scores of tokens that have occurred, once each."]
                repetition_penalty::RepetitionPenaltyLogitsProcessor(
                    penalty: f64, prompt_ignore_length: Option<OneOrMany<usize>> = None
                ) in AllSearches, field repetition_penalty: f64 = "1.0";

                #[doc = "Subtracts a number from -2 to 2 for each time a token was generated, as OpenAI's field of that name."]
                frequency_penalty::FrequencyPenaltyLogitsProcessor(
                    frequency_penalty: f64, prompt_length_to_skip: usize = 0
                ) in AllSearches, field frequency_penalty: f64 = "0.0";

                #[doc = "Subtracts a number from -2 to 2 if a token was generated, as OpenAI's field of that name."]
                presence_penalty::PresencePenaltyLogitsProcessor(
                    presence_penalty: f64, prompt_length_to_skip: usize = 0
                ) in AllSearches, field presence_penalty: f64 = "0.0";

                #[doc = "Allows no n-gram of this size to occur twice, prompt included; 0 allows all."]
                no_repeat_ngram::NoRepeatNGramLogitsProcessor(ngram_size: usize) in AllSearches,
                    field no_repeat_ngram_size: usize = "0";

                #[doc = "Allows no n-gram of this size that occurs in the prompt to occur again; 0 allows all."]
                encoder_no_repeat_ngram::EncoderNoRepeatNGramLogitsProcessor(
                    encoder_ngram_size: usize, encoder_input_ids: EncoderInputIds
                ) in AllSearches, field encoder_no_repeat_ngram_size: usize = "0";

                #[doc = "Allows no sequence of this list to occur; end-of-sequence tokens are exempt."]
                no_bad_words::NoBadWordsLogitsProcessor(
                    bad_words_ids: Vec<Vec<TokenId>>, eos_token_id: Option<OneOrMany<TokenId>> = None
                ) in AllSearches, field bad_words_ids: Vec<Vec<TokenId>> = "unset";

                #[doc = "Allows no end-of-sequence token before a length, prompt included."]
                min_length::MinLengthLogitsProcessor(min_length: usize, eos_token_id: OneOrMany<TokenId>; device)
                    in AllSearches, by min_length;

                #[doc = "Allows no end-of-sequence token before a number of new tokens."]
                min_new_tokens::MinNewTokensLengthLogitsProcessor(
                    prompt_length_to_skip: usize, min_new_tokens: usize, eos_token_id: OneOrMany<TokenId>; device
                ) in AllSearches, by min_new_tokens;

                #[doc = "Allows only the tokens that a function of the ids so far returns."]
                prefix_constrained::PrefixConstrainedLogitsProcessor(
                    prefix_allowed_tokens_fn: Arc<dyn PrefixAllowedTokens>, num_beams: usize
                ) in AllSearches, by prefix_allowed_tokens_fn;

                #[doc = "Forces the token that follows a prompt of a single token."]
                forced_bos_token::ForcedBOSTokenLogitsProcessor(bos_token_id: TokenId) in AllSearches,
                    field forced_bos_token_id: TokenId as impl Into<TokenId> = "unset";

                #[doc = "Forces one of these tokens as the last when the most tokens are reached."]
                forced_eos_token::ForcedEOSTokenLogitsProcessor(
                    max_length: usize, eos_token_id: OneOrMany<TokenId>; device
                ) in AllSearches,
                    field forced_eos_token_id: OneOrMany<TokenId> as impl Into<OneOrMany<TokenId>> = "unset";

                #[doc = "Replaces NaN by 0 and the infinities by the largest and the least number."]
                inf_nan_remove::InfNanRemoveLogitsProcessor() in AllSearches,
                    field remove_invalid_values: bool = "false";

                #[doc = "Raises the scores of end-of-sequence tokens by a factor to the power of the new tokens after a start."]
                exponential_decay_length_penalty::ExponentialDecayLengthPenalty(
                    exponential_decay_length_penalty: (usize, f64),
                    eos_token_id: OneOrMany<TokenId>,
                    input_ids_seq_length: usize
                ) in AllSearches, field exponential_decay_length_penalty: (usize, f64) = "unset";

                #[doc = "Allows none of these tokens."]
                suppress_tokens::SuppressTokensLogitsProcessor(suppress_tokens: Vec<TokenId>; device) in AllSearches,
                    field suppress_tokens: Vec<TokenId> = "unset";

                #[doc = "Allows none of these tokens as the first."]
                suppress_tokens_at_begin::SuppressTokensAtBeginLogitsProcessor(
                    begin_suppress_tokens: Vec<TokenId>, begin_index: usize; device
                ) in AllSearches, field begin_suppress_tokens: Vec<TokenId> = "unset";
            }
            after_callers {
                #[doc = "Divides the scores by a number: below 1 sharpens, above 1 flattens."]
                temperature::TemperatureLogitsWarper(temperature: f64) in Sampling, field temperature: f64 = "1.0";

                #[doc = "Keeps only the most probable tokens, up to 100, within this fraction of the entropy."]
                top_h::TopHLogitsWarper(top_h: f64, filter_value: f64 = f64::NEG_INFINITY) in Sampling,
                    field top_h: f64 = "unset";

                #[doc = "Keeps only this many of the most probable tokens, and ties with the last of them; 0 keeps all."]
                top_k::TopKLogitsWarper(
                    top_k: usize, filter_value: f64 = f64::NEG_INFINITY, min_tokens_to_keep: usize = 1
                ) in Sampling, field top_k: usize = "50";

                #[doc = "Keeps only the most probable tokens that together reach this probability."]
                top_p::TopPLogitsWarper(
                    top_p: f64, filter_value: f64 = f64::NEG_INFINITY, min_tokens_to_keep: usize = 1
                ) in Sampling, field top_p: f64 = "1.0";

                #[doc = "Keeps only tokens that reach this fraction of the most probable one's probability."]
                min_p::MinPLogitsWarper(
                    min_p: f64, filter_value: f64 = f64::NEG_INFINITY, min_tokens_to_keep: usize = 1
                ) in Sampling, field min_p: f64 = "unset";

                #[doc = "Keeps only the tokens nearest to the expected surprise that together reach this probability."]
                typical::TypicalLogitsWarper(
                    mass: f64 = 0.9, filter_value: f64 = f64::NEG_INFINITY, min_tokens_to_keep: usize = 1
                ) in Sampling, field typical_p: f64 = "1.0";

                #[doc = "Keeps only tokens of at least this probability."]
                epsilon::EpsilonLogitsWarper(
                    epsilon: f64, filter_value: f64 = f64::NEG_INFINITY, min_tokens_to_keep: usize = 1
                ) in Sampling, field epsilon_cutoff: f64 = "0.0";

                #[doc = "Keeps only tokens of at least this probability, or less where the entropy is high."]
                eta::EtaLogitsWarper(
                    epsilon: f64, filter_value: f64 = f64::NEG_INFINITY, min_tokens_to_keep: usize = 1; device
                ) in Sampling, field eta_cutoff: f64 = "0.0";

                #[doc = "Replaces the scores by the logarithms of their softmax, after all other processors."]
                logit_normalization::LogitNormalization() in AllSearches,
                    field renormalize_logits: bool = "false";
            }
        }
    };
}

pub(in crate::generation) use for_each_processor;

/// When a built-in processor takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppliesTo {
    /// Every search.
    AllSearches,
    /// Searches that draw at random; elsewhere its field is checked and has no effect.
    Sampling,
    /// Beam search with groups.
    BeamGroups,
}

impl AppliesTo {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllSearches => "all searches",
            Self::Sampling => "sampling",
            Self::BeamGroups => "groups of beams",
        }
    }
}

/// A line of the table.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ProcessorInfo {
    /// Its file, which is also its name in the goldens.
    pub name: &'static str,
    /// The class, as in transformers.
    pub class: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The field of a configuration, or the argument of a call, that switches it on.
    pub switch: &'static str,
    /// When it takes part.
    pub applies_to: AppliesTo,
    /// Whether it comes after the caller's processors, which then never replace it.
    pub after_callers: bool,
    /// Whether its constructor takes a device, as in transformers.
    pub has_device: bool,
    arguments: fn() -> Vec<ArgumentInfo>,
    new: fn(&mut Arguments, Option<Compat>) -> Built,
    pub(super) from_settings: FromSettings,
}

type FromSettings = fn(&ProcessorSettings<'_>) -> Result<Option<Arc<dyn LogitsProcessor>>>;

impl ProcessorInfo {
    /// The arguments of the constructor, in order.
    pub fn arguments(&self) -> Vec<ArgumentInfo> {
        (self.arguments)()
    }

    /// A processor with these arguments, each by its name, in the form of transformers 5 or of an older one.
    ///
    /// # Errors
    /// When an argument is missing, not known, of another type, or not possible.
    pub fn construct(
        &self,
        arguments: impl IntoIterator<Item = (String, Argument)>,
        compat: Option<Compat>,
    ) -> Built {
        let mut arguments = Arguments::new(arguments);
        let processor = (self.new)(&mut arguments, compat)?;
        arguments.finish(self.has_device)?;
        Ok(processor)
    }
}

type Built = Result<Arc<dyn LogitsProcessor>>;

/// A processor of the table.
pub(super) trait BuiltIn: LogitsProcessor + Sized + 'static {
    /// Checks the values that concern it, and makes it when they ask for it.
    fn from_settings(settings: &ProcessorSettings<'_>) -> Result<Option<Self>>;

    /// The form it has in an older transformers.
    #[must_use]
    fn with_compat(self, _compat: Option<Compat>) -> Self {
        self
    }
}

/// What constructors return: a processor, or an error in its place.
trait Constructed {
    fn finish(self, compat: Option<Compat>) -> Built;
}

impl<P: BuiltIn> Constructed for P {
    fn finish(self, compat: Option<Compat>) -> Built {
        Ok(Arc::new(self.with_compat(compat)))
    }
}

impl<P: BuiltIn> Constructed for Result<P> {
    fn finish(self, compat: Option<Compat>) -> Built {
        self?.finish(compat)
    }
}

fn from_settings<P: BuiltIn>(settings: &ProcessorSettings<'_>) -> Result<Option<Arc<dyn LogitsProcessor>>> {
    match P::from_settings(settings)? {
        Some(processor) => processor.finish(settings.compat()).map(Some),
        None => Ok(None),
    }
}

macro_rules! option {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

macro_rules! table {
    ($( $place:ident { $(
        #[doc = $doc:literal]
        $module:ident::$class:ident ( $( $argument:ident: $type:ty $(= $value:expr)? ),* $(; $device:ident)? )
            in $applies_to:ident
        $(, field $field:ident: $field_type:ty $(as $field_argument:ty)? = $default:literal)?
        $(, by $switch:ident)?;
    )* } )*) => {
        /// Every processor, in order of application.
        pub const PROCESSORS: &[ProcessorInfo] = &[$($( ProcessorInfo {
            name: stringify!($module),
            class: stringify!($class),
            doc: $doc,
            switch: concat!($(stringify!($field),)? $(stringify!($switch))?),
            applies_to: AppliesTo::$applies_to,
            after_callers: matches!(stringify!($place).as_bytes(), b"after_callers"),
            has_device: matches!(concat!($(stringify!($device))?).as_bytes(), b"device"),
            arguments: || vec![$( ArgumentInfo::of::<$type>(stringify!($argument), option!($($value)?)) ),*],
            new: |_arguments, compat| {
                $( let $argument: $type = _arguments.take(stringify!($argument), option!($($value)?))?; )*
                $class::new($($argument),*).finish(compat)
            },
            from_settings: from_settings::<$class>,
        } ),*),*];
    };
}

for_each_processor!(table);
