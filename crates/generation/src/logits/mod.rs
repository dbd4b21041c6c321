//! Logits processors: they change the scores of a step before a token is chosen.
//!
//! One file per processor, named as in transformers. The table in `registry.rs` lists them in their order of
//! application, which results equal to transformers depend on. To add one: its file, its line here and its
//! entry in the table.

mod allowed_sequences;
mod arguments;
mod context;
mod drafts;
mod encoder_input_ids;
mod encoder_no_repeat_ngram;
mod encoder_repetition_penalty;
mod epsilon;
mod eta;
mod exponential_decay_length_penalty;
mod filter;
mod forced_bos_token;
mod forced_eos_token;
mod frequency_penalty;
mod hamming_diversity;
mod inf_nan_remove;
mod list;
mod logit_bias;
mod logit_normalization;
mod min_length;
mod min_new_tokens;
mod min_p;
mod no_bad_words;
mod no_repeat_ngram;
mod prefix_constrained;
mod presence_penalty;
mod registry;
mod repetition_penalty;
mod sequence_bias;
mod suppress_tokens;
mod suppress_tokens_at_begin;
mod synthid_text_watermark;
mod temperature;
#[cfg(test)]
mod tests;
mod thinking_token_budget;
mod top_h;
mod top_k;
mod top_p;
mod typical;
mod unbatched_classifier_free_guidance;
pub(crate) mod watched;
mod watermark;

use std::sync::Arc;

use rsgen_core::{Error, Result, TokenId, message, refuse_if};

use super::config::Compat;
use super::resolved::ResolvedConfig;

pub use super::prefix_allowed_tokens::PrefixAllowedTokens;
pub(super) use allowed_sequences::AllowedSequencesLogitsProcessor;
pub use arguments::{Argument, ArgumentInfo};
pub(super) use context::UnconditionalLogits;
pub use context::{ProcessContext, ProcessorState, ProcessorStates, RowContext, ScoreRows};
pub(super) use drafts::DraftProcessors;
pub use encoder_input_ids::EncoderInputIds;
pub use encoder_no_repeat_ngram::EncoderNoRepeatNGramLogitsProcessor;
pub use encoder_repetition_penalty::EncoderRepetitionPenaltyLogitsProcessor;
pub use epsilon::EpsilonLogitsWarper;
pub use eta::EtaLogitsWarper;
pub use exponential_decay_length_penalty::ExponentialDecayLengthPenalty;
pub use forced_bos_token::ForcedBOSTokenLogitsProcessor;
pub use forced_eos_token::ForcedEOSTokenLogitsProcessor;
pub use frequency_penalty::FrequencyPenaltyLogitsProcessor;
pub use hamming_diversity::HammingDiversityLogitsProcessor;
pub use inf_nan_remove::InfNanRemoveLogitsProcessor;
pub use list::LogitsProcessorList;
pub use logit_bias::LogitBiasLogitsProcessor;
pub use logit_normalization::LogitNormalization;
pub use min_length::MinLengthLogitsProcessor;
pub use min_new_tokens::MinNewTokensLengthLogitsProcessor;
pub use min_p::MinPLogitsWarper;
pub use no_bad_words::NoBadWordsLogitsProcessor;
pub use no_repeat_ngram::NoRepeatNGramLogitsProcessor;
pub use prefix_constrained::PrefixConstrainedLogitsProcessor;
pub use presence_penalty::PresencePenaltyLogitsProcessor;
use registry::BuiltIn;
pub use registry::{AppliesTo, PROCESSORS, ProcessorInfo};
pub use repetition_penalty::RepetitionPenaltyLogitsProcessor;
pub use sequence_bias::SequenceBiasLogitsProcessor;
pub use suppress_tokens::SuppressTokensLogitsProcessor;
pub use suppress_tokens_at_begin::SuppressTokensAtBeginLogitsProcessor;
pub use synthid_text_watermark::SynthIDTextWatermarkLogitsProcessor;
pub use temperature::TemperatureLogitsWarper;
pub use thinking_token_budget::ThinkingTokenBudgetLogitsProcessor;
pub use top_h::TopHLogitsWarper;
pub use top_k::TopKLogitsWarper;
pub use top_p::TopPLogitsWarper;
pub use typical::TypicalLogitsWarper;
pub(super) use unbatched_classifier_free_guidance::masked as masked_negative_prompts;
pub use unbatched_classifier_free_guidance::{OwnModel, UnbatchedClassifierFreeGuidanceLogitsProcessor};
pub use watermark::WatermarkLogitsProcessor;

/// Changes the scores of the next token, in place.
///
/// One object serves all rows of a request, and requests run concurrently, so it holds no mutable state. The
/// state of a sequence is a [`ProcessorState`], which forks with the sequence.
pub trait LogitsProcessor: Send + Sync {
    /// The name, unique within a request: that of the type by default. A processor with the name
    /// of a built-in one replaces it.
    fn name(&self) -> &str {
        super::type_name::<Self>()
    }

    /// Processes all rows of a request that are not finished: `rows` is `[num_rows, vocab_size]`, `context`
    /// describes the same rows in the same order. Calls [`process_row`](Self::process_row) for each unless
    /// overridden.
    ///
    /// # Errors
    /// As for `process_row`.
    fn process(&self, rows: &mut ScoreRows<'_>, context: &mut ProcessContext<'_>) -> Result<()> {
        for (index, row) in context.rows.iter_mut().enumerate() {
            if context.interrupted.as_mut().is_some_and(|interrupted| interrupted()) {
                return Err(Error::cancelled());
            }
            self.process_row(rows.row_mut(index), row)?;
        }
        Ok(())
    }

    /// Processes one row: `scores` is `[vocab_size]`, raw logits or, in beam searches, log-probabilities.
    ///
    /// # Errors
    /// Any error ends the request.
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()>;

    /// The state for a new sequence, if the processor needs one; [`RowContext::state`] returns it.
    fn new_state(&self) -> Option<Box<dyn ProcessorState>> {
        None
    }

    /// The prompt of an unconditional sequence that runs beside each row of a prompt, whose tokens without
    /// padding are `prompt`; `prompt_index` counts all prompts of the call. The sequence gets the same new
    /// tokens as the row; [`RowContext::unconditional_logits`] returns its logits in the same step.
    fn unconditional_prompt(&self, _prompt_index: usize, _prompt: &[TokenId]) -> Option<Vec<TokenId>> {
        None
    }

    /// Whether it turns logits that hold NaN or infinity into usable scores. Otherwise they end the request.
    fn takes_invalid_logits(&self) -> bool {
        false
    }
}

/// The processors of a request, in order: the built-in ones that its fields switch on, and the caller's.
///
/// A custom processor replaces a built-in one of the same name, except for those that run after the caller's,
/// as in transformers, which makes them last.
///
/// # Errors
/// The first invalid value, also of a field that has no effect in this search. With `compat="4.49"`, a custom
/// processor with the name of one that the fields switch on.
pub(super) fn build(
    config: &ResolvedConfig,
    callers: &[Arc<dyn LogitsProcessor>],
) -> Result<LogitsProcessorList> {
    let mut list: Vec<Arc<dyn LogitsProcessor>> = Vec::new();
    // The same object twice counts once, except in transformers 4.49.
    let is_first = |&(index, caller): &(usize, &Arc<dyn LogitsProcessor>)| {
        config.fields.compat == Some(Compat::V4_49)
            || !callers[..index].iter().any(|earlier| Arc::ptr_eq(earlier, caller))
    };
    let callers = callers.iter().enumerate();
    let mut waiting: Vec<&Arc<dyn LogitsProcessor>> =
        callers.filter(is_first).map(|(_, caller)| caller).collect();
    let (mut num_fields, mut num_warpers) = (0, 0);
    for entry in PROCESSORS {
        if entry.after_callers {
            list.extend(waiting.drain(..).map(Arc::clone));
        }
        let processor = (entry.from_config)(config)?;
        if entry.switch == "prefix_allowed_tokens_fn"
            && let Some(processor) = AllowedSequencesLogitsProcessor::of(config)
        {
            list.push(Arc::new(processor));
            num_fields += 1;
        }
        let Some(processor) = processor else { continue };
        let takes_part = match entry.applies_to() {
            AppliesTo::AllSearches => true,
            AppliesTo::Sampling => config.do_sample,
            AppliesTo::BeamGroups => config.num_beam_groups > 1,
        };
        if !takes_part {
            continue;
        }
        match waiting.iter().position(|caller| caller.name() == processor.name()) {
            Some(_) if config.fields.compat == Some(Compat::V4_49) => {
                return Err(Error::config(message!(
                    ("must hold no {} when ", entry.class) {(entry.switch)}
                    " asks for one, as in transformers 4.49; leave out one of the two, or " {compat}
                ))
                .about("logits_processor"));
            }
            Some(index) => list.push(Arc::clone(waiting.remove(index))),
            None => list.push(processor),
        }
        *(if entry.after_callers { &mut num_warpers } else { &mut num_fields }) += 1;
    }
    Ok(LogitsProcessorList::of_request(list, num_fields, num_warpers))
}

/// Makes `tokens` impossible.
pub(super) fn remove(scores: &mut [f32], tokens: &[TokenId]) {
    for token in tokens {
        if let Some(score) = scores.get_mut(token.index()) {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Multiplies the negative and divides the other scores of these tokens by `penalty`, once each.
fn penalize_once<'a>(scores: &mut [f32], tokens: impl Iterator<Item = &'a TokenId>, penalty: f32) {
    let mut seen = vec![0_u64; scores.len().div_ceil(64)];
    for id in tokens.map(|token| token.index()) {
        let Some(score) = scores.get_mut(id) else { continue };
        let bit = 1 << (id % 64);
        if seen[id / 64] & bit == 0 {
            seen[id / 64] |= bit;
            *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
        }
    }
}

/// Removes all but `tokens`, which get the score 0; `argument` names their source.
fn force(argument: &str, tokens: &[TokenId], scores: &mut [f32]) -> Result<()> {
    check_forced(argument, tokens, scores.len())?;
    scores.fill(f32::NEG_INFINITY);
    for token in tokens {
        scores[token.index()] = 0.0;
    }
    Ok(())
}

/// Checks that tokens of a list or a map are in the vocabulary.
fn check_held(argument: &str, tokens: impl IntoIterator<Item = TokenId>, vocab_size: usize) -> Result<()> {
    let outside = tokens.into_iter().find(|token| token.index() >= vocab_size);
    refuse_if(outside.is_some(), argument, || {
        format!(
            "must hold ids of the model's vocabulary, 0 to {}, but one of them is {}",
            vocab_size.saturating_sub(1),
            outside.unwrap_or_default()
        )
    })
}

/// Checks that forced tokens are in the vocabulary.
fn check_forced(argument: &str, tokens: &[TokenId], vocab_size: usize) -> Result<()> {
    match tokens.iter().find(|token| token.index() >= vocab_size) {
        None => Ok(()),
        Some(token) => Err(Error::config(format!(
            "must be an id of the model's vocabulary, 0 to {}, but is {token}",
            vocab_size.saturating_sub(1)
        ))
        .about(argument)),
    }
}
