//! The table of all processors.
//!
//! An entry describes a processor: what it does, the class, the arguments of its constructor with their
//! defaults, when it applies, and the configuration field that switches it on. The entries are in order of
//! application, which is that of transformers. To add a processor: its file, its entry, its golden.

use std::sync::Arc;

use rsgen_core::{Error, Result, TokenId};

use super::super::config::{
    Compat, FieldInfo, FieldValue, LogitBias, NegativePromptIds, NegativePromptMask, OneOrMany, Searches,
    SeedingScheme, SequenceBias,
};
use super::arguments::{Argument, ArgumentInfo, Arguments, Device, optional, required, word};
#[allow(clippy::wildcard_imports, reason = "all classes of the table")]
use super::*;

/// The score of tokens that warpers remove.
const FILTER_VALUE: FieldValue = FieldValue::Float(f64::NEG_INFINITY);
/// A device that is not the last argument.
const DEVICE: ArgumentInfo = word::<Device>("device", "cpu");

/// An entry: the name of its file, its class, the field or argument that switches it on, and the arguments of
/// its constructor in order, each with its type and, where it has one, its default.
macro_rules! entry {
    ($name:literal, $class:ident, $switch:literal; $( $argument:ident: $type:ty $(= $default:expr)? ),*) => {
        ProcessorInfo {
            name: $name,
            class: stringify!($class),
            switch: $switch,
            arguments: const { &[$( argument!($argument: $type $(= $default)?) ),*] },
            new: |arguments| $class::new($( arguments.next::<$type>()? ),*).finish(arguments),
            ..ProcessorInfo::of::<$class>()
        }
    };
}

/// An argument of a constructor.
macro_rules! argument {
    ($name:ident: $type:ty = $default:expr) => {
        optional::<$type>(stringify!($name), $default)
    };
    ($name:ident: $type:ty) => {
        required::<$type>(stringify!($name))
    };
}

/// Every processor, in order of application.
pub const PROCESSORS: &[ProcessorInfo] = &[
    entry!("unbatched_classifier_free_guidance", UnbatchedClassifierFreeGuidanceLogitsProcessor, "guidance_scale";
        guidance_scale: f64, model: OwnModel = FieldValue::Null,
        unconditional_ids: Option<NegativePromptIds> = FieldValue::Null,
        unconditional_attention_mask: Option<NegativePromptMask> = FieldValue::Null,
        use_cache: bool = FieldValue::Bool(true)
    ),
    entry!("sequence_bias", SequenceBiasLogitsProcessor, "sequence_bias"; sequence_bias: SequenceBias),
    entry!("logit_bias", LogitBiasLogitsProcessor, "logit_bias"; logit_bias: LogitBias),
    entry!("hamming_diversity", HammingDiversityLogitsProcessor, "diversity_penalty";
        diversity_penalty: f64, num_beams: usize, num_beam_groups: usize
    ),
    entry!("encoder_repetition_penalty", EncoderRepetitionPenaltyLogitsProcessor, "encoder_repetition_penalty";
        penalty: f64, encoder_input_ids: EncoderInputIds
    ),
    entry!("repetition_penalty", RepetitionPenaltyLogitsProcessor, "repetition_penalty";
        penalty: f64, prompt_ignore_length: Option<OneOrMany<usize>> = FieldValue::Null
    ),
    entry!("frequency_penalty", FrequencyPenaltyLogitsProcessor, "frequency_penalty";
        frequency_penalty: f64, prompt_length_to_skip: usize = FieldValue::Int(0)
    ),
    entry!("presence_penalty", PresencePenaltyLogitsProcessor, "presence_penalty";
        presence_penalty: f64, prompt_length_to_skip: usize = FieldValue::Int(0)
    ),
    entry!("no_repeat_ngram", NoRepeatNGramLogitsProcessor, "no_repeat_ngram_size"; ngram_size: usize),
    entry!("encoder_no_repeat_ngram", EncoderNoRepeatNGramLogitsProcessor, "encoder_no_repeat_ngram_size";
        encoder_ngram_size: usize, encoder_input_ids: EncoderInputIds
    ),
    entry!("no_bad_words", NoBadWordsLogitsProcessor, "bad_words_ids";
        bad_words_ids: Vec<Vec<TokenId>>, eos_token_id: Option<OneOrMany<TokenId>> = FieldValue::Null
    ),
    entry!("min_length", MinLengthLogitsProcessor, "min_length";
        min_length: usize, eos_token_id: OneOrMany<TokenId>
    )
    .with_device(),
    entry!("min_new_tokens", MinNewTokensLengthLogitsProcessor, "min_new_tokens";
        prompt_length_to_skip: usize, min_new_tokens: usize, eos_token_id: OneOrMany<TokenId>
    )
    .with_device(),
    entry!("prefix_constrained", PrefixConstrainedLogitsProcessor, "prefix_allowed_tokens_fn";
        prefix_allowed_tokens_fn: Arc<dyn PrefixAllowedTokens>, num_beams: usize
    )
    .with_doc("Allows only the tokens that a function of the ids so far returns."),
    entry!("forced_bos_token", ForcedBOSTokenLogitsProcessor, "forced_bos_token_id"; bos_token_id: TokenId),
    entry!("forced_eos_token", ForcedEOSTokenLogitsProcessor, "forced_eos_token_id";
        max_length: usize, eos_token_id: OneOrMany<TokenId>
    )
    .with_device(),
    entry!("inf_nan_remove", InfNanRemoveLogitsProcessor, "remove_invalid_values";),
    entry!("exponential_decay_length_penalty", ExponentialDecayLengthPenalty, "exponential_decay_length_penalty";
        exponential_decay_length_penalty: (usize, f64), eos_token_id: OneOrMany<TokenId>,
        input_ids_seq_length: usize
    ),
    entry!("suppress_tokens", SuppressTokensLogitsProcessor, "suppress_tokens";
        suppress_tokens: Vec<TokenId>
    )
    .with_device(),
    entry!("suppress_tokens_at_begin", SuppressTokensAtBeginLogitsProcessor, "begin_suppress_tokens";
        begin_suppress_tokens: Vec<TokenId>, begin_index: usize
    )
    .with_device(),
    entry!("thinking_token_budget", ThinkingTokenBudgetLogitsProcessor, "thinking_token_budget";
        thinking_token_budget: usize, think_end_token_ids: Vec<TokenId>,
        think_start_token_ids: Vec<TokenId> = FieldValue::List(Vec::new()),
        prompt_length_to_skip: usize = FieldValue::Int(0)
    ),
    entry!("temperature", TemperatureLogitsWarper, "temperature"; temperature: f64).after_callers(),
    entry!("top_h", TopHLogitsWarper, "top_h";
        top_h: f64, filter_value: f64 = FILTER_VALUE
    )
    .after_callers(),
    entry!("top_k", TopKLogitsWarper, "top_k";
        top_k: usize, filter_value: f64 = FILTER_VALUE, min_tokens_to_keep: usize = FieldValue::Int(1)
    )
    .after_callers(),
    entry!("top_p", TopPLogitsWarper, "top_p";
        top_p: f64, filter_value: f64 = FILTER_VALUE, min_tokens_to_keep: usize = FieldValue::Int(1)
    )
    .after_callers(),
    entry!("min_p", MinPLogitsWarper, "min_p";
        min_p: f64, filter_value: f64 = FILTER_VALUE, min_tokens_to_keep: usize = FieldValue::Int(1)
    )
    .after_callers(),
    entry!("typical", TypicalLogitsWarper, "typical_p";
        mass: f64 = FieldValue::Float(0.9), filter_value: f64 = FILTER_VALUE,
        min_tokens_to_keep: usize = FieldValue::Int(1)
    )
    .after_callers(),
    entry!("epsilon", EpsilonLogitsWarper, "epsilon_cutoff";
        epsilon: f64, filter_value: f64 = FILTER_VALUE, min_tokens_to_keep: usize = FieldValue::Int(1)
    )
    .after_callers(),
    entry!("eta", EtaLogitsWarper, "eta_cutoff";
        epsilon: f64, filter_value: f64 = FILTER_VALUE, min_tokens_to_keep: usize = FieldValue::Int(1)
    )
    .with_device()
    .after_callers(),
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
    entry!("logit_normalization", LogitNormalization, "renormalize_logits";).after_callers(),
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

    /// When it applies: in the searches that read its field.
    pub fn applies_to(&self) -> AppliesTo {
        match FieldInfo::of(self.switch).map(|field| field.searches) {
            Some(Searches::Sampling | Searches::SamplingOrContrastive) => AppliesTo::Sampling,
            Some(Searches::BeamGroups) => AppliesTo::BeamGroups,
            _ => AppliesTo::AllSearches,
        }
    }

    /// An entry with the values that all entries share.
    const fn of<P: BuiltIn>() -> Self {
        Self {
            name: "",
            class: "",
            doc: "",
            switch: "",
            after_callers: false,
            has_device: false,
            arguments: &[],
            new: |_| Err(Error::internal("a processor without a constructor")),
            from_config: from_config::<P>,
        }
    }

    /// The same entry for a constructor that takes a device, as in transformers.
    const fn with_device(mut self) -> Self {
        self.has_device = true;
        self
    }

    /// The same entry after the caller's processors, where all warpers are.
    const fn after_callers(mut self) -> Self {
        self.after_callers = true;
        self
    }

    /// The same entry with words of its own.
    const fn with_doc(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self
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
