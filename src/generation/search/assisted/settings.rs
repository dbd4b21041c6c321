//! The fields of assisted decoding and prompt lookup, resolved for a request.

use crate::error::{Error, Result};

use super::super::super::candidate::PromptLookup;
use super::super::super::config::GenerationConfig;
use super::super::super::plan::{DraftPlan, DraftSource, PlanContext};
use super::super::registry::SearchPlan;
use super::drafting::{DraftSettings, Drafter};
use super::lookup::Lookup;
use super::{AssistedSearch, Source};

/// transformers' defaults.
const NUM_ASSISTANT_TOKENS: usize = 20;
const CONFIDENCE_THRESHOLD: f64 = 0.4;

/// Plans prompt lookup.
///
/// # Errors
/// `Config` for a field that makes no lookup.
pub(in crate::generation::search) fn plan_lookup(config: &GenerationConfig) -> Result<SearchPlan> {
    let lookup =
        PromptLookup::of(config)?.ok_or_else(|| Error::internal("assisted decoding without candidates"))?;
    Ok(SearchPlan::of_rows(config, move |plan| {
        let source = Source::Lookup(Lookup::new(&plan, lookup));
        AssistedSearch::new(plan, source, None)
    }))
}

/// Plans drafts of an assistant. Fields that the call leaves unset have been taken from the assistant's file.
///
/// # Errors
/// `Config` when the assistant does not go with the model, or there are no such layers.
pub(in crate::generation::search) fn plan_drafts(
    config: &GenerationConfig,
    context: &PlanContext,
) -> Result<SearchPlan> {
    let (source, context_len, kept) = match (config.assistant_early_exit, &context.draft) {
        (Some(num_layers), _) => {
            if !(1..=context.num_layers).contains(&num_layers) {
                return Err(Error::config(format!(
                    "`assistant_early_exit` must be a number of the model's layers, 1 to {}, but is {num_layers}; None \
                     switches it off",
                    context.num_layers
                )));
            }
            (DraftSource::EarlyExit { num_layers }, context.context_len, &context.kept_tokens)
        }
        (None, Some(draft)) => {
            if draft.vocab_size != context.vocab_size {
                return Err(Error::config(format!(
                    "the assistant must have the model's vocabulary of {} tokens, but has one of {}; give an assistant \
                     with the same tokenizer",
                    context.vocab_size, draft.vocab_size
                )));
            }
            (DraftSource::Model, draft.context_len, &draft.kept_tokens)
        }
        (None, None) => return Err(Error::internal("assisted decoding without an assistant")),
    };
    let draft = DraftPlan { source, sequences_each: config.num_return_sequences.unwrap_or(1), context_len };
    let settings = DraftSettings {
        draft,
        num_tokens: config.num_assistant_tokens.unwrap_or(NUM_ASSISTANT_TOKENS),
        schedule: config.num_assistant_tokens_schedule.unwrap_or_default(),
        confidence_threshold: config.assistant_confidence_threshold.unwrap_or(CONFIDENCE_THRESHOLD),
        ensemble_weight: config.assistant_ensemble_weight,
        kept: kept.clone(),
    };
    let search = SearchPlan::of_rows(config, move |plan| {
        let weight = settings.ensemble_weight;
        let source = Source::Assistant(Drafter::new(&plan, settings.clone()));
        AssistedSearch::new(plan, source, weight)
    });
    Ok(search.with_draft(draft))
}
