//! The fields of assisted decoding and prompt lookup, resolved for a request.

use std::sync::Arc;

use rsgen_core::error::{Error, Result};
use rsgen_core::message;

use super::super::super::candidate::{AdaptiveLength, PromptLookup};
use super::super::super::config::{AssistantTokensSchedule, GenerationConfig};
use super::super::super::plan::{DraftContext, DraftPlan, DraftSource, PlanContext};
use super::super::registry::SearchPlan;
use super::drafting::{DraftSettings, Drafter, TranslationSettings};
use super::lookup::Lookup;
use super::{AssistedSearch, Source};

/// transformers' defaults.
const NUM_ASSISTANT_TOKENS: usize = 20;
const CONFIDENCE_THRESHOLD: f64 = 0.4;
const LOOKBEHIND: usize = 10;

/// Plans prompt lookup.
///
/// # Errors
/// `Config` for a field that makes no lookup.
pub(in crate::search) fn plan_lookup(config: &GenerationConfig) -> Result<SearchPlan> {
    let lookup =
        PromptLookup::of(config)?.ok_or_else(|| Error::internal("assisted decoding without candidates"))?;
    let num_tokens = config.prompt_lookup_num_tokens.unwrap_or(0);
    let adapts = config.num_assistant_tokens_schedule == Some(AssistantTokensSchedule::Adaptive);
    let search = SearchPlan::of_rows(config, move |plan| {
        // What is accepted depends on the prompt: nothing is kept for the next call.
        let length = adapts.then(|| AdaptiveLength::new(num_tokens, false));
        let source = Source::Lookup(Lookup::new(&plan, lookup, adapts));
        AssistedSearch::new(plan, source, length, None)
    });
    Ok(search.with_candidates(num_tokens))
}

/// Plans drafts of an assistant. Fields that the call leaves unset have been taken from the assistant's file.
///
/// # Errors
/// `Config` when the assistant does not go with the model, or there are no such layers.
pub(in crate::search) fn plan_drafts(config: &GenerationConfig, context: &PlanContext) -> Result<SearchPlan> {
    let (source, draft_model, kept) = match (config.assistant_early_exit, &context.draft) {
        (Some(num_layers), _) => {
            if !(1..=context.num_layers).contains(&num_layers) {
                return Err(Error::config(message!(
                    ("must be a number of the model's layers, 1 to {}, but is {num_layers}; ", context.num_layers)
                    {None} " switches it off"
                ))
                .about("assistant_early_exit"));
            }
            (DraftSource::EarlyExit { num_layers }, None, &context.kept_tokens)
        }
        (None, Some(draft)) => {
            check_vocabulary(draft, context, config.do_sample == Some(true))?;
            (DraftSource::Model, Some(draft), &draft.kept_tokens)
        }
        (None, None) => return Err(Error::internal("assisted decoding without an assistant")),
    };
    let draft = DraftPlan {
        source,
        sequences_each: config.num_return_sequences.unwrap_or(1),
        context_len: draft_model.map_or(context.context_len, |draft| draft.context_len),
        is_translated: draft_model.is_some_and(|draft| draft.vocabulary_map.is_some()),
    };
    let eos = draft_model.and_then(|draft| draft.model_defaults.eos_token_id.as_ref());
    let translation =
        draft_model.and_then(|draft| draft.vocabulary_map.as_ref()).map(|map| TranslationSettings {
            map: Arc::clone(map),
            eos_token_ids: eos.map_or_else(Vec::new, |eos| eos.as_slice().to_vec()),
            assistant_lookbehind: config.assistant_lookbehind.unwrap_or(LOOKBEHIND),
            target_lookbehind: config.target_lookbehind.unwrap_or(LOOKBEHIND),
        });
    // An ensemble accepts tokens that the model would not choose: they depend on what is drafted.
    let schedule = match config.num_assistant_tokens_schedule.unwrap_or_default() {
        AssistantTokensSchedule::Adaptive if config.assistant_ensemble_weight.is_some() => {
            AssistantTokensSchedule::Constant
        }
        schedule => schedule,
    };
    let settings = DraftSettings {
        draft,
        vocab_size: draft_model.map_or(context.vocab_size, |draft| draft.vocab_size),
        translation,
        num_tokens: config.num_assistant_tokens.unwrap_or(NUM_ASSISTANT_TOKENS),
        schedule,
        confidence_threshold: config.assistant_confidence_threshold.unwrap_or(CONFIDENCE_THRESHOLD),
        ensemble_weight: config.assistant_ensemble_weight,
        kept: kept.clone(),
    };
    // A heuristic schedule may go as far as there is room.
    let is_bounded =
        matches!(schedule, AssistantTokensSchedule::Constant | AssistantTokensSchedule::Adaptive);
    let num_candidates = if is_bounded { settings.num_tokens } else { usize::MAX };
    let search = SearchPlan::of_rows(config, move |plan| {
        let (weight, most) = (settings.ensemble_weight, settings.num_tokens);
        let length =
            (schedule == AssistantTokensSchedule::Adaptive).then(|| match settings.kept.adaptive() {
                Some(kept) => kept.with_most(most),
                None => AdaptiveLength::new(most, true),
            });
        let source = Source::Assistant(Box::new(Drafter::new(&plan, settings.clone())));
        AssistedSearch::new(plan, source, length, weight)
    });
    Ok(search.with_draft(draft).with_candidates(num_candidates))
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
