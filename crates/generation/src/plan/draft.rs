//! The draft model of assisted decoding: what a plan knows of it, and what a request needs of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rsgen_core::{Error, Message, Mutex, Result, TokenId, message, refuse_if};

use super::super::candidate::{AdaptiveLength, VocabularyMap};
use super::super::config::{AssistantTokensSchedule, GenerationConfig};
use super::super::mode::GenerationMode;
use super::super::resolved::ResolvedConfig;
use super::{EncoderContext, GenerationPlan, PlanContext};

/// The draft model of a call: transformers' `assistant_model`.
#[derive(Clone)]
#[non_exhaustive]
pub struct DraftContext {
    /// The number of logits it gives for a token.
    pub vocab_size: usize,
    /// The most tokens of one of its sequences.
    pub context_len: usize,
    /// Its encoder, if it has one.
    pub encoder: Option<EncoderContext>,
    /// Its `generation_config.json`: the fields of assisted decoding that the call leaves unset come from it.
    pub model_defaults: Arc<GenerationConfig>,
    /// Its cell for the schedules that learn.
    pub kept_tokens: KeptTokens,
    /// The two vocabularies, if it has another tokenizer than the model.
    pub vocabulary_map: Option<Arc<VocabularyMap>>,
}

impl DraftContext {
    /// A draft model without tokenizer and defaults.
    pub fn new(vocab_size: usize, context_len: usize) -> Self {
        Self {
            vocab_size,
            context_len,
            encoder: None,
            model_defaults: Arc::default(),
            kept_tokens: KeptTokens::default(),
            vocabulary_map: None,
        }
    }
}

/// The state that the schedules `"heuristic"` and `"adaptive"` carry across calls, one cell per assistant.
/// The owner of a model makes it once and passes clones of it to its calls.
#[derive(Debug, Clone, Default)]
pub struct KeptTokens(Arc<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// 0 for none.
    heuristic: AtomicUsize,
    adaptive: Mutex<Option<AdaptiveLength>>,
}

impl KeptTokens {
    /// The number that an earlier call with the schedule `"heuristic"` kept, if one did.
    pub fn get(&self) -> Option<usize> {
        Some(self.0.heuristic.load(Ordering::Relaxed)).filter(|&count| count > 0)
    }

    /// Keeps a number of 1 or more for later calls.
    pub fn set(&self, count: usize) {
        self.0.heuristic.store(count, Ordering::Relaxed);
    }

    /// What an earlier call with the schedule `"adaptive"` kept, if one did.
    pub(crate) fn adaptive(&self) -> Option<AdaptiveLength> {
        self.0.adaptive.lock().clone()
    }

    /// Keeps what the schedule `"adaptive"` has learned for later calls.
    pub(crate) fn keep_adaptive(&self, length: AdaptiveLength) {
        *self.0.adaptive.lock() = Some(length);
    }
}

/// The most tokens of an assistant for each of the model's, if their tokenizers differ. A text that takes
/// more is not drafted for.
const TRANSLATED: usize = 3;

/// transformers' defaults.
const NUM_ASSISTANT_TOKENS: usize = 20;
const CONFIDENCE_THRESHOLD: f64 = 0.4;
const LOOKBEHIND: usize = 10;

/// The sequences that a request drafts in, besides those of its rows, and how it drafts. Fields that the call
/// leaves unset come from the assistant's file.
#[derive(Clone)]
#[non_exhaustive]
pub struct DraftPlan {
    /// What computes them.
    pub source: DraftSource,
    /// The most draft sequences of each prompt; they share the prompt's tokens, unless it is translated.
    pub sequences_each: usize,
    /// The context of the model that drafts: no draft sequence has more tokens.
    pub context_len: usize,
    /// The logits of a drafted token.
    pub(crate) vocab_size: usize,
    /// For an assistant with another tokenizer, with its end tokens.
    pub(crate) vocabulary_map: Option<Arc<VocabularyMap>>,
    pub(crate) eos_token_ids: Vec<TokenId>,
    pub(crate) assistant_lookbehind: usize,
    pub(crate) target_lookbehind: usize,
    pub(crate) num_tokens: usize,
    pub(crate) schedule: AssistantTokensSchedule,
    pub(crate) confidence_threshold: f64,
    pub(crate) ensemble_weight: Option<f64>,
    pub(crate) kept: KeptTokens,
}

impl DraftPlan {
    /// Resolves the fields of assisted decoding.
    ///
    /// # Errors
    /// `Config` when the assistant does not go with the model, or there are no such layers.
    pub(super) fn new(config: &ResolvedConfig, context: &PlanContext) -> Result<Self> {
        let fields = &config.fields;
        let (source, draft_model, kept) = match (fields.assistant_early_exit, &context.draft) {
            (Some(num_layers), _) => {
                refuse_if(!(1..=context.num_layers).contains(&num_layers), "assistant_early_exit", || {
                    message!(
                        ("must be a number of the model's layers, 1 to {}, but is {num_layers}; ", context.num_layers)
                        {None} " switches it off"
                    )
                })?;
                (DraftSource::EarlyExit { num_layers }, None, &context.kept_tokens)
            }
            (None, Some(draft)) => {
                refuse_if(
                    draft.encoder.is_some() && context.encoder.is_none(),
                    "assistant_model",
                    || "must be a decoder alone as the model is, but has an encoder; give a smaller model of the same kind",
                )?;
                check_vocabulary(draft, context, config.do_sample)?;
                (DraftSource::Model, Some(draft), &draft.kept_tokens)
            }
            (None, None) => return Err(Error::internal("assisted decoding without an assistant")),
        };
        let eos = draft_model.and_then(|draft| draft.model_defaults.eos_token_id.as_ref());
        // An ensemble accepts tokens that the model would not choose: they depend on what is drafted.
        let schedule = match fields.num_assistant_tokens_schedule.unwrap_or_default() {
            AssistantTokensSchedule::Adaptive if fields.assistant_ensemble_weight.is_some() => {
                AssistantTokensSchedule::Constant
            }
            schedule => schedule,
        };
        Ok(Self {
            source,
            sequences_each: config.num_return_sequences,
            context_len: draft_model.map_or(context.context_len, |draft| draft.context_len),
            vocab_size: draft_model.map_or(context.vocab_size, |draft| draft.vocab_size),
            vocabulary_map: draft_model.and_then(|draft| draft.vocabulary_map.clone()),
            eos_token_ids: eos.map_or_else(Vec::new, |eos| eos.as_slice().to_vec()),
            assistant_lookbehind: fields.assistant_lookbehind.unwrap_or(LOOKBEHIND),
            target_lookbehind: fields.target_lookbehind.unwrap_or(LOOKBEHIND),
            num_tokens: fields.num_assistant_tokens.unwrap_or(NUM_ASSISTANT_TOKENS),
            schedule,
            confidence_threshold: fields.assistant_confidence_threshold.unwrap_or(CONFIDENCE_THRESHOLD),
            ensemble_weight: fields.assistant_ensemble_weight,
            kept: kept.clone(),
        })
    }

    /// Whether the text is translated for an assistant with another tokenizer.
    pub fn is_translated(&self) -> bool {
        self.vocabulary_map.is_some()
    }

    /// The most candidates of a row in a step: a heuristic schedule may go as far as there is room.
    pub(super) fn num_candidates(&self) -> usize {
        match self.schedule {
            AssistantTokensSchedule::Constant | AssistantTokensSchedule::Adaptive => self.num_tokens,
            _ => usize::MAX,
        }
    }
}

/// What computes drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DraftSource {
    /// The draft model: sequences and rows of [`ModelRole::Draft`](super::super::search::ModelRole).
    Model,
    /// The first layers of the target model: further sequences of it, whose rows have `last_layer`.
    EarlyExit {
        /// The number of layers.
        num_layers: usize,
    },
}

impl GenerationPlan {
    /// The draft sequences of the request; `None` when it drafts with no model.
    pub fn draft(&self) -> Option<&DraftPlan> {
        self.search.draft.as_ref()
    }

    /// The most candidates of a row of prompt `prompt_index` that a step checks.
    pub fn num_candidates(&self, prompt_index: usize) -> usize {
        self.search.num_candidates.min(self.max_new_tokens(prompt_index))
    }

    /// The length of the prompt that drafts begin with: the model's own layers read embeddings, an assistant
    /// tokens.
    pub fn draft_prompt_len(&self, prompt_index: usize) -> usize {
        let prompt = &self.prompts[prompt_index];
        match self.draft().map(|draft| draft.source) {
            Some(DraftSource::EarlyExit { .. }) => prompt.inputs().len(),
            _ => prompt.tokens.len(),
        }
    }

    /// The most tokens of a draft sequence of prompt `prompt_index`, 0 without any.
    pub fn draft_len(&self, prompt_index: usize) -> usize {
        let most = self.draft_prompt_len(prompt_index) + self.max_new_tokens(prompt_index);
        // Another tokenizer may take more tokens for the same text.
        self.draft().map_or(0, |draft| {
            draft.context_len.min(if draft.is_translated() { most.saturating_mul(TRANSLATED) } else { most })
        })
    }
}

/// The fields of a call, with those that are unset taken from the model's file; the fields of assisted
/// decoding, if an assistant drafts, from its file first.
pub(super) fn merged(config: &GenerationConfig, context: &PlanContext) -> GenerationConfig {
    let merged = config.merged_over(&context.model_defaults);
    match &context.draft {
        Some(draft) if merged.assistant_early_exit.is_none() => {
            let file = &draft.model_defaults;
            let mut own = GenerationConfig::new();
            own.num_assistant_tokens = file.num_assistant_tokens;
            own.num_assistant_tokens_schedule = file.num_assistant_tokens_schedule;
            own.assistant_confidence_threshold = file.assistant_confidence_threshold;
            own.assistant_lookbehind = file.assistant_lookbehind;
            own.target_lookbehind = file.target_lookbehind;
            config.merged_over(&own).merged_over(&context.model_defaults)
        }
        _ => merged,
    }
}

/// Rejects values that no assistant could use.
pub(super) fn check(merged: &GenerationConfig, mode: GenerationMode) -> Result<()> {
    for (field, value) in [
        ("num_assistant_tokens", merged.num_assistant_tokens),
        ("assistant_lookbehind", merged.assistant_lookbehind),
        ("target_lookbehind", merged.target_lookbehind),
    ] {
        refuse_if(
            value == Some(0),
            field,
            || message!("must be 1 or more, but is 0; " {None} " leaves it unset"),
        )?;
    }
    if let Some(threshold) = merged.assistant_confidence_threshold
        && !(0.0..=1.0).contains(&threshold)
    {
        return Err(Error::config(format!("must be from 0 to 1, but is {threshold}; 0 switches it off"))
            .about("assistant_confidence_threshold"));
    }
    if let Some(weight) = merged.assistant_ensemble_weight {
        refuse_if(!(weight > 0.0 && weight < 1.0), "assistant_ensemble_weight", || {
            message!(
                "must be above 0 and below 1, but is {weight}; " {None} " checks drafts against the model \
                 alone"
            )
        })?;
        refuse_if(mode == GenerationMode::PromptLookup, "assistant_ensemble_weight", || {
            message!(
                "needs the probabilities of an assistant, which prompt lookup has not, but is {weight}; leave \
                 it out, or " {prompt_lookup_num_tokens}
            )
        })?;
    }
    Ok(())
}

/// Warns of fields of the call that have no effect in `mode`.
pub(super) fn warn_of_unused_fields(
    config: &GenerationConfig,
    mode: GenerationMode,
    warnings: &mut Vec<Message>,
) {
    let (drafts, looks_up) = (mode == GenerationMode::AssistedDecoding, mode == GenerationMode::PromptLookup);
    let early_exit = config.assistant_early_exit.is_some();
    // Prompt lookup adapts or does not.
    let schedules = drafts
        || looks_up
            && matches!(
                config.num_assistant_tokens_schedule,
                Some(AssistantTokensSchedule::Adaptive | AssistantTokensSchedule::Constant)
            );
    for (field, is_unused, why) in [
        ("num_assistant_tokens", !drafts, "without an assistant".into()),
        ("num_assistant_tokens_schedule", !schedules, "without an assistant".into()),
        ("assistant_confidence_threshold", !drafts, "without an assistant".into()),
        ("assistant_ensemble_weight", !drafts, "without an assistant".into()),
        ("assistant_early_exit", !drafts, "in this search".into()),
        ("prompt_lookup_num_tokens", !looks_up && !early_exit, "in this search".into()),
        ("prompt_lookup_num_tokens", drafts && early_exit, message!("beside " {assistant_early_exit})),
        ("max_matching_ngram_size", !looks_up, message!("without " {prompt_lookup_num_tokens})),
    ] {
        if is_unused && config.get(field).is_some() {
            warnings.push(message!({(field)} " has no effect ").then(why).then("; leave it out"));
        }
    }
}

/// Refuses an assistant whose tokens cannot become those of the model.
fn check_vocabulary(draft: &DraftContext, context: &PlanContext, samples: bool) -> Result<()> {
    match &draft.vocabulary_map {
        Some(map) if samples && map.is_disjoint() => Err(Error::config(
            "the assistant must have tokens in common with the model to draft for sampling, but has none; give another one, \
             or leave it out",
        )),
        None if draft.vocab_size != context.vocab_size => Err(Error::config(format!(
            "the assistant must have the model's vocabulary of {} tokens, but has one of {}; give an assistant with the same \
             tokens, or one with a tokenizer to a model with a tokenizer",
            context.vocab_size, draft.vocab_size
        ))),
        _ => Ok(()),
    }
}
