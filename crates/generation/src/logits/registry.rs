//! The table of all processors.
//!
//! An entry describes a processor: what it does, the class, the arguments of its constructor with their defaults,
//! when it applies, and the configuration field that switches it on. The entries are in order of application, which
//! is that of transformers. To add a processor: its file, its entry, its golden.

use std::sync::Arc;

use rsgen_core::error::{Error, Result};
use rsgen_core::types::TokenId;

use super::super::config::{
    Compat, FieldInfo, FieldValue, LogitBias, NegativePromptIds, NegativePromptMask, OneOrMany,
    SeedingScheme, SequenceBias,
};
use super::arguments::{Argument, ArgumentInfo, Arguments, Device, optional, required, word};
#[allow(clippy::wildcard_imports, reason = "all classes of the table")]
use super::*;

/// The score of tokens that warpers remove.
const FILTER_VALUE: ArgumentInfo = optional::<f64>("filter_value", FieldValue::Float(f64::NEG_INFINITY));
const EOS_TOKEN_ID: ArgumentInfo = required::<OneOrMany<TokenId>>("eos_token_id");
const ENCODER_INPUT_IDS: ArgumentInfo = required::<EncoderInputIds>("encoder_input_ids");
const PROMPT_LENGTH_TO_SKIP: ArgumentInfo = optional::<usize>("prompt_length_to_skip", FieldValue::Int(0));
const MIN_TOKENS_TO_KEEP: ArgumentInfo = optional::<usize>("min_tokens_to_keep", FieldValue::Int(1));
/// A device that is not the last argument.
const DEVICE: ArgumentInfo = word::<Device>("device", "cpu");

/// Every processor, in order of application.
pub const PROCESSORS: &[ProcessorInfo] = &[
    ProcessorInfo {
        name: "unbatched_classifier_free_guidance",
        class: "UnbatchedClassifierFreeGuidanceLogitsProcessor",
        switch: "guidance_scale",
        arguments: &[
            required::<f64>("guidance_scale"),
            optional::<OwnModel>("model", FieldValue::Null),
            optional::<Option<NegativePromptIds>>("unconditional_ids", FieldValue::Null),
            optional::<Option<NegativePromptMask>>("unconditional_attention_mask", FieldValue::Null),
            optional::<bool>("use_cache", FieldValue::Bool(true)),
        ],
        new: |a| {
            UnbatchedClassifierFreeGuidanceLogitsProcessor::new(
                a.next()?,
                a.next()?,
                a.next()?,
                a.next()?,
                a.next()?,
            )
            .finish(a)
        },
        ..ProcessorInfo::of::<UnbatchedClassifierFreeGuidanceLogitsProcessor>()
    },
    ProcessorInfo {
        name: "sequence_bias",
        class: "SequenceBiasLogitsProcessor",
        switch: "sequence_bias",
        arguments: &[required::<SequenceBias>("sequence_bias")],
        new: |a| SequenceBiasLogitsProcessor::new(a.next()?).finish(a),
        ..ProcessorInfo::of::<SequenceBiasLogitsProcessor>()
    },
    ProcessorInfo {
        name: "logit_bias",
        class: "LogitBiasLogitsProcessor",
        switch: "logit_bias",
        arguments: &[required::<LogitBias>("logit_bias")],
        new: |a| LogitBiasLogitsProcessor::new(a.next()?).finish(a),
        ..ProcessorInfo::of::<LogitBiasLogitsProcessor>()
    },
    ProcessorInfo {
        name: "hamming_diversity",
        class: "HammingDiversityLogitsProcessor",
        switch: "diversity_penalty",
        applies_to: AppliesTo::BeamGroups,
        arguments: &[
            required::<f64>("diversity_penalty"),
            required::<usize>("num_beams"),
            required::<usize>("num_beam_groups"),
        ],
        new: |a| HammingDiversityLogitsProcessor::new(a.next()?, a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::of::<HammingDiversityLogitsProcessor>()
    },
    ProcessorInfo {
        name: "encoder_repetition_penalty",
        class: "EncoderRepetitionPenaltyLogitsProcessor",
        switch: "encoder_repetition_penalty",
        arguments: &[required::<f64>("penalty"), ENCODER_INPUT_IDS],
        new: |a| EncoderRepetitionPenaltyLogitsProcessor::new(a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::of::<EncoderRepetitionPenaltyLogitsProcessor>()
    },
    ProcessorInfo {
        name: "repetition_penalty",
        class: "RepetitionPenaltyLogitsProcessor",
        switch: "repetition_penalty",
        arguments: &[
            required::<f64>("penalty"),
            optional::<Option<OneOrMany<usize>>>("prompt_ignore_length", FieldValue::Null),
        ],
        new: |a| RepetitionPenaltyLogitsProcessor::new(a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::of::<RepetitionPenaltyLogitsProcessor>()
    },
    ProcessorInfo {
        name: "frequency_penalty",
        class: "FrequencyPenaltyLogitsProcessor",
        switch: "frequency_penalty",
        arguments: &[required::<f64>("frequency_penalty"), PROMPT_LENGTH_TO_SKIP],
        new: |a| FrequencyPenaltyLogitsProcessor::new(a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::of::<FrequencyPenaltyLogitsProcessor>()
    },
    ProcessorInfo {
        name: "presence_penalty",
        class: "PresencePenaltyLogitsProcessor",
        switch: "presence_penalty",
        arguments: &[required::<f64>("presence_penalty"), PROMPT_LENGTH_TO_SKIP],
        new: |a| PresencePenaltyLogitsProcessor::new(a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::of::<PresencePenaltyLogitsProcessor>()
    },
    ProcessorInfo {
        name: "no_repeat_ngram",
        class: "NoRepeatNGramLogitsProcessor",
        switch: "no_repeat_ngram_size",
        arguments: &[required::<usize>("ngram_size")],
        new: |a| NoRepeatNGramLogitsProcessor::new(a.next()?).finish(a),
        ..ProcessorInfo::of::<NoRepeatNGramLogitsProcessor>()
    },
    ProcessorInfo {
        name: "encoder_no_repeat_ngram",
        class: "EncoderNoRepeatNGramLogitsProcessor",
        switch: "encoder_no_repeat_ngram_size",
        arguments: &[required::<usize>("encoder_ngram_size"), ENCODER_INPUT_IDS],
        new: |a| EncoderNoRepeatNGramLogitsProcessor::new(a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::of::<EncoderNoRepeatNGramLogitsProcessor>()
    },
    ProcessorInfo {
        name: "no_bad_words",
        class: "NoBadWordsLogitsProcessor",
        switch: "bad_words_ids",
        arguments: &[
            required::<Vec<Vec<TokenId>>>("bad_words_ids"),
            optional::<Option<OneOrMany<TokenId>>>("eos_token_id", FieldValue::Null),
        ],
        new: |a| NoBadWordsLogitsProcessor::new(a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::of::<NoBadWordsLogitsProcessor>()
    },
    ProcessorInfo {
        name: "min_length",
        class: "MinLengthLogitsProcessor",
        switch: "min_length",
        has_device: true,
        arguments: &[required::<usize>("min_length"), EOS_TOKEN_ID],
        new: |a| MinLengthLogitsProcessor::new(a.next()?, a.next::<OneOrMany<TokenId>>()?).finish(a),
        ..ProcessorInfo::of::<MinLengthLogitsProcessor>()
    },
    ProcessorInfo {
        name: "min_new_tokens",
        class: "MinNewTokensLengthLogitsProcessor",
        switch: "min_new_tokens",
        has_device: true,
        arguments: &[
            required::<usize>("prompt_length_to_skip"),
            required::<usize>("min_new_tokens"),
            EOS_TOKEN_ID,
        ],
        new: |a| {
            MinNewTokensLengthLogitsProcessor::new(a.next()?, a.next()?, a.next::<OneOrMany<TokenId>>()?)
                .finish(a)
        },
        ..ProcessorInfo::of::<MinNewTokensLengthLogitsProcessor>()
    },
    ProcessorInfo {
        name: "prefix_constrained",
        class: "PrefixConstrainedLogitsProcessor",
        doc: "Allows only the tokens that a function of the ids so far returns.",
        switch: "prefix_allowed_tokens_fn",
        arguments: &[
            required::<Arc<dyn PrefixAllowedTokens>>("prefix_allowed_tokens_fn"),
            required::<usize>("num_beams"),
        ],
        new: |a| PrefixConstrainedLogitsProcessor::new(a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::of::<PrefixConstrainedLogitsProcessor>()
    },
    ProcessorInfo {
        name: "forced_bos_token",
        class: "ForcedBOSTokenLogitsProcessor",
        switch: "forced_bos_token_id",
        arguments: &[required::<TokenId>("bos_token_id")],
        new: |a| ForcedBOSTokenLogitsProcessor::new(a.next()?).finish(a),
        ..ProcessorInfo::of::<ForcedBOSTokenLogitsProcessor>()
    },
    ProcessorInfo {
        name: "forced_eos_token",
        class: "ForcedEOSTokenLogitsProcessor",
        switch: "forced_eos_token_id",
        has_device: true,
        arguments: &[required::<usize>("max_length"), EOS_TOKEN_ID],
        new: |a| ForcedEOSTokenLogitsProcessor::new(a.next()?, a.next::<OneOrMany<TokenId>>()?).finish(a),
        ..ProcessorInfo::of::<ForcedEOSTokenLogitsProcessor>()
    },
    ProcessorInfo {
        name: "inf_nan_remove",
        class: "InfNanRemoveLogitsProcessor",
        switch: "remove_invalid_values",
        new: |a| InfNanRemoveLogitsProcessor::new().finish(a),
        ..ProcessorInfo::of::<InfNanRemoveLogitsProcessor>()
    },
    ProcessorInfo {
        name: "exponential_decay_length_penalty",
        class: "ExponentialDecayLengthPenalty",
        switch: "exponential_decay_length_penalty",
        arguments: &[
            required::<(usize, f64)>("exponential_decay_length_penalty"),
            EOS_TOKEN_ID,
            required::<usize>("input_ids_seq_length"),
        ],
        new: |a| {
            ExponentialDecayLengthPenalty::new(a.next()?, a.next::<OneOrMany<TokenId>>()?, a.next()?)
                .finish(a)
        },
        ..ProcessorInfo::of::<ExponentialDecayLengthPenalty>()
    },
    ProcessorInfo {
        name: "suppress_tokens",
        class: "SuppressTokensLogitsProcessor",
        switch: "suppress_tokens",
        has_device: true,
        arguments: &[required::<Vec<TokenId>>("suppress_tokens")],
        new: |a| SuppressTokensLogitsProcessor::new(a.next()?).finish(a),
        ..ProcessorInfo::of::<SuppressTokensLogitsProcessor>()
    },
    ProcessorInfo {
        name: "suppress_tokens_at_begin",
        class: "SuppressTokensAtBeginLogitsProcessor",
        switch: "begin_suppress_tokens",
        has_device: true,
        arguments: &[required::<Vec<TokenId>>("begin_suppress_tokens"), required::<usize>("begin_index")],
        new: |a| SuppressTokensAtBeginLogitsProcessor::new(a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::of::<SuppressTokensAtBeginLogitsProcessor>()
    },
    ProcessorInfo {
        name: "temperature",
        class: "TemperatureLogitsWarper",
        switch: "temperature",
        arguments: &[required::<f64>("temperature")],
        new: |a| TemperatureLogitsWarper::new(a.next()?).finish(a),
        ..ProcessorInfo::warper::<TemperatureLogitsWarper>()
    },
    ProcessorInfo {
        name: "top_h",
        class: "TopHLogitsWarper",
        switch: "top_h",
        arguments: &[required::<f64>("top_h"), FILTER_VALUE],
        new: |a| TopHLogitsWarper::new(a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::warper::<TopHLogitsWarper>()
    },
    ProcessorInfo {
        name: "top_k",
        class: "TopKLogitsWarper",
        switch: "top_k",
        arguments: &[required::<usize>("top_k"), FILTER_VALUE, MIN_TOKENS_TO_KEEP],
        new: |a| TopKLogitsWarper::new(a.next()?, a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::warper::<TopKLogitsWarper>()
    },
    ProcessorInfo {
        name: "top_p",
        class: "TopPLogitsWarper",
        switch: "top_p",
        arguments: &[required::<f64>("top_p"), FILTER_VALUE, MIN_TOKENS_TO_KEEP],
        new: |a| TopPLogitsWarper::new(a.next()?, a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::warper::<TopPLogitsWarper>()
    },
    ProcessorInfo {
        name: "min_p",
        class: "MinPLogitsWarper",
        switch: "min_p",
        arguments: &[required::<f64>("min_p"), FILTER_VALUE, MIN_TOKENS_TO_KEEP],
        new: |a| MinPLogitsWarper::new(a.next()?, a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::warper::<MinPLogitsWarper>()
    },
    ProcessorInfo {
        name: "typical",
        class: "TypicalLogitsWarper",
        switch: "typical_p",
        arguments: &[optional::<f64>("mass", FieldValue::Float(0.9)), FILTER_VALUE, MIN_TOKENS_TO_KEEP],
        new: |a| TypicalLogitsWarper::new(a.next()?, a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::warper::<TypicalLogitsWarper>()
    },
    ProcessorInfo {
        name: "epsilon",
        class: "EpsilonLogitsWarper",
        switch: "epsilon_cutoff",
        arguments: &[required::<f64>("epsilon"), FILTER_VALUE, MIN_TOKENS_TO_KEEP],
        new: |a| EpsilonLogitsWarper::new(a.next()?, a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::warper::<EpsilonLogitsWarper>()
    },
    ProcessorInfo {
        name: "eta",
        class: "EtaLogitsWarper",
        switch: "eta_cutoff",
        has_device: true,
        arguments: &[required::<f64>("epsilon"), FILTER_VALUE, MIN_TOKENS_TO_KEEP],
        new: |a| EtaLogitsWarper::new(a.next()?, a.next()?, a.next()?).finish(a),
        ..ProcessorInfo::warper::<EtaLogitsWarper>()
    },
    ProcessorInfo {
        name: "watermark",
        class: "WatermarkLogitsProcessor",
        doc: "Adds a bias to the scores of the tokens of pseudorandom green lists, which a detector finds again.",
        switch: "watermarking_config",
        after_callers: true,
        arguments: &[
            required::<usize>("vocab_size"),
            DEVICE,
            optional::<f64>("greenlist_ratio", FieldValue::Float(0.25)),
            optional::<f64>("bias", FieldValue::Float(2.0)),
            optional::<i128>("hashing_key", FieldValue::Int(15_485_863)),
            word::<SeedingScheme>("seeding_scheme", "lefthash"),
            optional::<usize>("context_width", FieldValue::Int(1)),
        ],
        new: |a| {
            let (vocab_size, _) = (a.next()?, a.next::<Device>()?);
            WatermarkLogitsProcessor::new(vocab_size, a.next()?, a.next()?, a.next()?, a.next()?, a.next()?)
                .finish(a)
        },
        ..ProcessorInfo::of::<WatermarkLogitsProcessor>()
    },
    ProcessorInfo {
        name: "synthid_text_watermark",
        class: "SynthIDTextWatermarkLogitsProcessor",
        doc: "Lets tokens win SynthID's tournaments, whose outcome depends on keys and the tokens before.",
        switch: "watermarking_config",
        after_callers: true,
        arguments: &[
            required::<usize>("ngram_len"),
            required::<Vec<i64>>("keys"),
            required::<usize>("sampling_table_size"),
            required::<u64>("sampling_table_seed"),
            required::<usize>("context_history_size"),
            DEVICE,
            optional::<bool>("skip_first_ngram_calls", FieldValue::Bool(false)),
            optional::<bool>("debug_mode", FieldValue::Bool(false)),
        ],
        new: |a| {
            let (ngram_len, keys, size, seed, history) =
                (a.next()?, a.next()?, a.next()?, a.next()?, a.next()?);
            a.next::<Device>()?;
            let (skips, debugs) = (a.next()?, a.next()?);
            SynthIDTextWatermarkLogitsProcessor::new(ngram_len, keys, size, seed, history, skips, debugs)
                .finish(a)
        },
        ..ProcessorInfo::of::<SynthIDTextWatermarkLogitsProcessor>()
    },
    ProcessorInfo {
        name: "logit_normalization",
        class: "LogitNormalization",
        switch: "renormalize_logits",
        after_callers: true,
        new: |a| LogitNormalization::new().finish(a),
        ..ProcessorInfo::of::<LogitNormalization>()
    },
];

/// When a built-in processor applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppliesTo {
    /// Every search.
    AllSearches,
    /// Sampling; in other searches its field is checked but has no effect.
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

/// An entry of the table.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ProcessorInfo {
    /// The name of its file, and of its goldens.
    pub name: &'static str,
    /// The class, as in transformers.
    pub class: &'static str,
    /// What it does, if its field does not say it.
    doc: &'static str,
    /// The field of a configuration, or the argument of a call, that switches it on.
    pub switch: &'static str,
    /// When it applies.
    pub applies_to: AppliesTo,
    /// Whether it runs after the caller's processors, which then never replace it.
    pub after_callers: bool,
    /// Whether its constructor takes a device, as in transformers.
    pub has_device: bool,
    /// The arguments of its constructor, in order.
    pub arguments: &'static [ArgumentInfo],
    new: fn(&mut Arguments) -> Built,
    pub(super) from_config: FromConfig,
}

type FromConfig = fn(&ResolvedConfig) -> Result<Option<Arc<dyn LogitsProcessor>>>;

impl ProcessorInfo {
    /// What it does.
    pub fn doc(&self) -> &'static str {
        match FieldInfo::of(self.switch) {
            Some(field) if self.doc.is_empty() => field.doc.trim(),
            _ => self.doc,
        }
    }

    /// The entry of a warper with the values that all warpers share.
    const fn warper<P: BuiltIn>() -> Self {
        Self { applies_to: AppliesTo::Sampling, after_callers: true, ..Self::of::<P>() }
    }

    /// An entry with the values that all entries share.
    const fn of<P: BuiltIn>() -> Self {
        Self {
            name: "",
            class: "",
            doc: "",
            switch: "",
            applies_to: AppliesTo::AllSearches,
            after_callers: false,
            has_device: false,
            arguments: &[],
            new: |_| Err(Error::internal("a processor without a constructor")),
            from_config: from_config::<P>,
        }
    }

    /// Makes a processor from arguments by name, for transformers 5 or an older version.
    ///
    /// # Errors
    /// When an argument is missing, unknown, of another type, or invalid.
    pub fn construct(
        &self,
        arguments: impl IntoIterator<Item = (String, Argument)>,
        compat: Option<Compat>,
    ) -> Built {
        (self.new)(&mut Arguments::new(self.arguments, self.has_device, arguments, compat)?)
    }
}

type Built = Result<Arc<dyn LogitsProcessor>>;

/// A processor of the table.
pub(super) trait BuiltIn: LogitsProcessor + Sized + 'static {
    /// Checks its fields, and returns the processor if they switch it on.
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>>;

    /// The processor as in an older transformers version.
    #[must_use]
    fn with_compat(self, _compat: Option<Compat>) -> Self {
        self
    }
}

/// The result of constructors: a processor or an error.
trait Constructed {
    fn finish(self, arguments: &Arguments) -> Built;
}

impl<P: BuiltIn> Constructed for P {
    fn finish(self, arguments: &Arguments) -> Built {
        Ok(Arc::new(self.with_compat(arguments.compat)))
    }
}

impl<P: BuiltIn> Constructed for Result<P> {
    fn finish(self, arguments: &Arguments) -> Built {
        self?.finish(arguments)
    }
}

fn from_config<P: BuiltIn>(config: &ResolvedConfig) -> Result<Option<Arc<dyn LogitsProcessor>>> {
    let processor = P::from_config(config)?;
    Ok(processor.map(|processor| Arc::new(processor.with_compat(config.fields.compat)) as _))
}
