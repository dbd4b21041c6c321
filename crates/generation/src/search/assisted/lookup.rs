//! The candidates of prompt lookup, as far as the processors allow them.

use rsgen_core::{Result, TokenId, memory};

use super::super::super::candidate::PromptLookup;
use super::super::super::logits::{LogitsProcessorList, UnconditionalLogits};
use super::super::super::plan::GenerationPlan;
use super::row::Row;

/// Looks up the candidates of rows.
pub(super) struct Lookup {
    source: PromptLookup,
    /// The processors that are asked whether a candidate is possible; empty when it does not matter.
    checks: LogitsProcessorList,
    /// Scratch: the scores of one token.
    scores: Vec<f32>,
}

impl Lookup {
    /// `has_step_draws`: sampling draws each token with the numbers of its step.
    pub(super) fn new(plan: &GenerationPlan, has_step_draws: bool) -> Self {
        // Of greedy search the tokens do not depend on the candidates. In transformers' sampling their number
        // decides how many random numbers a step takes.
        let checks = if plan.config.seed.is_some() && !has_step_draws {
            plan.processors.built_in()
        } else {
            LogitsProcessorList::default()
        };
        Self { source: plan.search.lookup, checks, scores: Vec::new() }
    }

    /// Sets the candidates of a row.
    ///
    /// # Errors
    /// The first one of a processor.
    pub(super) fn begin(&mut self, plan: &GenerationPlan, row: &mut Row) -> Result<()> {
        let Self { source, checks, scores } = self;
        let allowed = |tokens: &[TokenId]| {
            if checks.is_empty() {
                return Ok(tokens.len());
            }
            let mut ids = row.ids.clone();
            for (position, &token) in tokens.iter().enumerate() {
                scores.clear();
                memory::reserve(scores, plan.config.vocab_size, "scores")?;
                scores.resize(plan.config.vocab_size, 1.0);
                let context = row.context(plan, &ids, UnconditionalLogits::default(), None);
                super::process(plan, checks, context, scores, &mut [])?;
                if scores[token.index()] <= f32::MIN {
                    return Ok(position);
                }
                ids.push(token);
            }
            Ok(tokens.len())
        };
        let found =
            source.candidates(&row.ids, &plan.config.eos_token_ids, plan.config.max_length, allowed)?;
        // Each checked candidate is followed by one more token.
        let room = row.room(plan);
        row.candidates.beyond = found.len().saturating_sub(room);
        row.candidates.tokens = found;
        row.candidates.tokens.truncate(room);
        Ok(())
    }
}
