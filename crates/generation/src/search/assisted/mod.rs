//! Assisted decoding: tokens are proposed cheaply, and one pass of the model checks several of them at once.
//!
//! The candidates of a row are looked up in its own text, or drafted by an assistant. The logits after each
//! candidate are processed as in a plain search, and a token is chosen from them. A row takes these tokens up
//! to the first one that differs from its candidate, and drops the rest of the candidates from its sequences.
//! So greedy search gives the tokens that it gives without candidates, and stops where it would stop.
//!
//! The schedule `"adaptive"` chooses the number of candidates by measured times. There sampling, too, draws
//! the tokens that it draws without candidates: else a seed would not give the same tokens again.

mod drafting;
mod lookup;
mod row;
mod schedule;
mod speculative;
mod step_draws;
mod threshold;
mod verify;

use std::sync::Arc;

use rsgen_core::{Error, Result, RowOutputs};

use super::super::candidate::AdaptiveLength;
use super::super::config::AssistantTokensSchedule;
use super::super::logits::watched::WatchedToken;
use super::super::logits::{LogitsProcessorList, ProcessContext, RowContext, ScoreRows};
use super::super::output::{DraftStats, OutputRow, SearchOutput};
use super::super::plan::GenerationPlan;
use super::states::StatesReader;
use super::{ModelRole, Search, SearchInputs, SearchResults, SearchStep};
use drafting::Drafter;
use lookup::Lookup;
use row::{ComputedBy, Row, TrackedSequence};
use verify::{Choice, Verifier};

/// transformers' assisted decoding, of greedy search or sampling.
pub(super) struct AssistedSearch {
    plan: GenerationPlan,
    source: Source,
    /// With the schedule `"adaptive"`.
    length: Option<AdaptiveLength>,
    verifier: Verifier,
    /// `num_return_sequences` for each prompt.
    rows: Vec<Row>,
    phase: Phase,
    /// An error of `wants`, for `advance` to return.
    failure: Option<Error>,
    next_seq: u32,
    stats: DraftStats,
}

/// Where candidates come from.
enum Source {
    Lookup(Lookup),
    Assistant(Box<Drafter>),
}

/// What a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing yet: the first candidates are not known.
    Start,
    /// The prompts, for the rows of a prompt to share.
    Prompts,
    /// The prompts in the assistant, for the rows of a prompt to share.
    DraftPrompts,
    /// One more token of each draft.
    Draft,
    /// The tokens after the newest one and the candidates of each row.
    Check,
}

impl AssistedSearch {
    pub(super) fn new(plan: GenerationPlan) -> Self {
        let most = plan.search.num_candidates;
        let (source, length) = match &plan.search.draft {
            None => {
                // What is accepted depends on the prompt: nothing is kept for the next call.
                let schedule = plan.config.fields.num_assistant_tokens_schedule;
                let adapts = schedule == Some(AssistantTokensSchedule::Adaptive);
                let lookup = Lookup::new(&plan, adapts);
                (Source::Lookup(lookup), adapts.then(|| AdaptiveLength::new(most, false)))
            }
            Some(draft) => {
                let adapts = draft.schedule == AssistantTokensSchedule::Adaptive;
                let length = || match draft.kept.adaptive() {
                    Some(kept) => kept.with_most(most),
                    None => AdaptiveLength::new(most, true),
                };
                (Source::Assistant(Box::new(Drafter::new(&plan, draft))), adapts.then(length))
            }
        };
        Self {
            verifier: Verifier::new(&plan, length.is_some()),
            rows: (0..plan.num_rows()).map(|index| Row::new(&plan, index)).collect(),
            source,
            length,
            // Rows with different candidates cannot share the pass that computes their prompt.
            phase: if plan.config.num_return_sequences > 1 { Phase::Prompts } else { Phase::Start },
            failure: None,
            next_seq: 0,
            stats: DraftStats::default(),
            plan,
        }
    }

    /// Begins a round: looks up the candidates of all active rows, or begins their drafts.
    ///
    /// # Errors
    /// The first one of a processor.
    fn begin_round(&mut self) -> Result<()> {
        let Self { plan, source, rows, phase, length, verifier, .. } = self;
        *phase = Phase::Check;
        let slowest = rows.iter().filter(|row| row.is_active()).map(|row| row.new_tokens(plan).len()).min();
        if let (Choice::Steps(draws), Some(slowest)) = (&mut verifier.choice, slowest) {
            draws.forget_before(slowest);
        }
        let most = |row: &Row| match &verifier.choice {
            Choice::Steps(draws) => draws.most_drafted(row.new_tokens(plan).len()),
            _ => usize::MAX,
        };
        match source {
            Source::Lookup(lookup) => {
                rows.iter_mut().filter(|row| row.is_active()).try_for_each(|row| lookup.begin(plan, row))?;
                if let Some(length) = length {
                    // Ended rows have no candidates.
                    let found = rows.iter().map(|row| row.candidates.tokens.len()).max();
                    let next = length.next(found.unwrap_or_default());
                    for row in rows.iter_mut().filter(|row| row.is_active()) {
                        let most = next.min(most(row));
                        row.candidates.limit(most);
                    }
                }
                Ok(())
            }
            Source::Assistant(drafter) => {
                let next = length.as_mut().map_or(usize::MAX, |length| length.next(usize::MAX));
                let mut active = rows.iter().filter(|row| row.is_active());
                active.try_for_each(|row| drafter.begin(plan, row, next.min(most(row))))?;
                if drafter.is_drafting() {
                    let each = plan.config.num_return_sequences;
                    let shares_prompts = each > 1
                        && drafter.is_new()
                        && !drafter.is_translated()
                        && rows.iter().step_by(each).all(Row::is_active);
                    *phase = if shares_prompts { Phase::DraftPrompts } else { Phase::Draft };
                }
                Ok(())
            }
        }
    }

    /// Requests the prompts without outputs: each for the first of its rows.
    fn want_prompts(&mut self, inputs: &mut SearchInputs) {
        let Self { plan, rows, next_seq, .. } = self;
        for row in rows.iter_mut().step_by(plan.config.num_return_sequences) {
            create_sequences(plan, row, next_seq, inputs);
            let prompt = &plan.prompts[row.prompt_index];
            for (index, (sequence, tokens)) in row.sequences.iter_mut().zip(prompt.texts()).enumerate() {
                let Some((sequence, tokens)) = sequence.as_mut().zip(tokens) else { continue };
                sequence.extend(tokens, [&[], &[]], usize::MAX, ComputedBy::target(plan, index), inputs);
            }
        }
    }

    /// Releases the sequences of rows that have ended.
    fn release_ended(&mut self, inputs: &mut SearchInputs) {
        if let Source::Assistant(drafter) = &mut self.source {
            drafter.release_ended(&self.rows, inputs);
        }
        for row in self.rows.iter_mut().filter(|row| !row.is_active()) {
            row.sequences.drain(..).flatten().for_each(|sequence| inputs.release(sequence.seq));
        }
    }

    /// Drops rejected candidates, and requests the newest token of each row with its candidates.
    fn want_checks(&mut self, inputs: &mut SearchInputs) {
        let Self { plan, rows, next_seq, .. } = self;
        for rows in rows.chunks_mut(plan.config.num_return_sequences) {
            let Some((first, further)) = rows.split_first_mut() else { continue };
            if first.is_active() && first.sequences.is_empty() {
                create_sequences(plan, first, next_seq, inputs);
            }
            for row in further.iter_mut().filter(|row| row.is_active() && row.sequences.is_empty()) {
                let fork = |sequence: &Option<TrackedSequence>| {
                    sequence.map(|sequence| sequence.fork(next_seq, inputs))
                };
                row.sequences = first.sequences.iter().map(fork).collect();
            }
        }
        for row in rows.iter_mut().filter(|row| row.is_active()) {
            let (new, candidates) = (&row.ids[plan.config.prompt_len..], &row.candidates.tokens);
            let prompt = &plan.prompts[row.prompt_index];
            for (index, (sequence, tokens)) in row.sequences.iter_mut().zip(prompt.texts()).enumerate() {
                let Some((sequence, tokens)) = sequence.as_mut().zip(tokens) else { continue };
                // All but the newest token are in the sequence.
                let kept = tokens.len() + new.len() - 1;
                sequence.truncate(kept, inputs);
                let start = sequence.len;
                sequence.extend(tokens, [new, candidates], kept, ComputedBy::target(plan, index), inputs);
                if index == 0 {
                    row.computed = start..sequence.len;
                }
            }
        }
    }

    /// Takes what the layers computed of the prompts, for all their rows.
    fn keep_prompt_states(&mut self, states: &mut StatesReader<'_>) -> Result<()> {
        let Self { plan, rows, .. } = self;
        if plan.config.layer_outputs.is_none() {
            return Ok(());
        }
        for rows in rows.chunks_mut(plan.config.num_return_sequences) {
            let prompt = &plan.prompts[rows[0].prompt_index];
            let states = Arc::new(states.next(0..prompt.inputs().len(), prompt.source_len())?);
            for row in rows.iter_mut() {
                row.prompt_states = Some(Arc::clone(&states));
            }
        }
        Ok(())
    }

    /// Checks the candidates of all active rows.
    fn check(&mut self, logits: &[f32], states: &mut StatesReader<'_>, step: &mut SearchStep) -> Result<()> {
        let Self { plan, rows, source, verifier, stats, length, .. } = self;
        let of_row = |row: &Row| (row.candidates.tokens.len() + 1) * row.sequences.iter().flatten().count();
        let wanted = rows.iter().filter(|row| row.is_active()).map(of_row).sum();
        check_count(plan.config.vocab_size, wanted, logits)?;
        let mut next = 0;
        for row in rows.iter_mut().filter(|row| row.is_active()) {
            let (count, beyond) = (row.candidates.tokens.len(), row.candidates.beyond);
            let unchecked = row.candidates.unchecked;
            let mut take = |sequence: &Option<TrackedSequence>| {
                let first = sequence.map(|_| next);
                next += first.map_or(0, |_| count + 1);
                first
            };
            let firsts: Vec<Option<usize>> = row.sequences.iter().map(&mut take).collect();
            let (main, unconditional) = (firsts[0].unwrap_or_default(), &firsts[1..]);
            let checked = verifier.check(plan, row, (main, unconditional), logits, step)?;
            if !plan.config.layer_outputs.is_none() {
                row.keep_states(plan, states, checked.emitted)?;
            }
            if let Source::Assistant(drafter) = source {
                drafter.update(row.index, count, checked.emitted - 1);
            }
            if let Some(length) = length {
                let (accepted, count) = match unchecked {
                    Some(token) => (usize::from(row.ids.last() == Some(&token)), 1),
                    None => (checked.accepted, count),
                };
                length.checked(accepted, accepted < count && checked.emitted > checked.accepted);
            }
            stats.rounds += 1;
            stats.drafted += (count + beyond) as u64;
            stats.verified += count as u64;
            stats.accepted += checked.accepted as u64;
        }
        Ok(())
    }
}

impl Search for AssistedSearch {
    fn wants(&mut self, inputs: &mut SearchInputs) {
        if self.phase == Phase::Start
            && let Err(error) = self.begin_round()
        {
            self.failure = Some(error);
        }
        self.release_ended(inputs);
        match (&mut self.source, self.phase) {
            (_, Phase::Prompts) => self.want_prompts(inputs),
            (Source::Assistant(drafter), Phase::DraftPrompts) => {
                drafter.want_prompts(&self.plan, &self.rows, &mut self.next_seq, inputs);
            }
            (Source::Assistant(drafter), Phase::Draft) => {
                drafter.want_tokens(&self.plan, &self.rows, &mut self.next_seq, inputs);
            }
            _ => self.want_checks(inputs),
        }
    }

    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let RowOutputs { hidden_states, attentions, .. } = self.plan.config.layer_outputs;
        let mut states = StatesReader::new(&results, !hidden_states.is_empty(), attentions);
        let (logits, cost) = (&*results.logits, results.cost);
        match (&mut self.source, self.phase) {
            (_, Phase::Prompts) => {
                self.keep_prompt_states(&mut states)?;
                self.begin_round()
            }
            (_, Phase::DraftPrompts) => {
                self.phase = Phase::Draft;
                Ok(())
            }
            (Source::Assistant(drafter), Phase::Draft) => {
                check_count(drafter.vocab_size(), drafter.num_drafting(), logits)?;
                if let Some(length) = &mut self.length {
                    length.drafted(cost, drafter.is_single_step());
                }
                drafter.advance(&self.plan, &mut self.rows, &mut self.verifier.choice, logits)?;
                if !drafter.is_drafting() {
                    self.phase = Phase::Check;
                }
                Ok(())
            }
            _ => {
                if let Some(length) = &mut self.length {
                    length.passed(cost);
                }
                self.check(logits, &mut states, step)?;
                step.finished = self.rows.iter().all(|row| !row.is_active());
                if step.finished { Ok(()) } else { self.begin_round() }
            }
        }
    }

    fn finish(self: Box<Self>) -> SearchOutput {
        let Self { plan, rows, source, stats, length, .. } = *self;
        if let Source::Assistant(drafter) = &source
            && rows.iter().all(|row| !row.is_active())
        {
            drafter.keep_schedule(length);
        }
        let rows = rows.into_iter().map(|row| {
            let tokens = row.new_tokens(&plan).to_vec();
            (OutputRow::new(row.prompt_index, tokens, row.finish, row.logprobs), row.recorded)
        });
        let (rows, recorded) = rows.unzip();
        SearchOutput { draft_stats: Some(stats), ..SearchOutput::of(&plan.config, rows, recorded) }
    }
}

/// Gives a row its empty sequences.
fn create_sequences(plan: &GenerationPlan, row: &mut Row, next_seq: &mut u32, inputs: &mut SearchInputs) {
    let source = plan.source_of(row.prompt_index);
    let mut create = |tokens: Option<_>| {
        tokens.map(|_| TrackedSequence::create(ModelRole::Target, source, next_seq, inputs))
    };
    row.sequences = plan.prompts[row.prompt_index].texts().map(&mut create).collect();
}

/// Checks that a step has as many logits as it requested.
fn check_count(vocab_size: usize, wanted: usize, logits: &[f32]) -> Result<()> {
    let given = logits.len();
    if given == wanted * vocab_size {
        return Ok(());
    }
    Err(Error::internal(format!(
        "a search asked for {wanted} rows of {vocab_size} logits and was given {given} logits"
    )))
}

/// Applies processors to the scores of one row.
fn process(
    plan: &GenerationPlan,
    processors: &LogitsProcessorList,
    row: RowContext<'_>,
    scores: &mut [f32],
    watched: &mut [Vec<WatchedToken>],
) -> Result<()> {
    if processors.is_empty() {
        return Ok(());
    }
    let mut context = ProcessContext { num_rows: plan.num_rows(), watched, ..ProcessContext::new(vec![row]) };
    let vocab_size = scores.len();
    processors.process(&mut ScoreRows::new(scores, vocab_size), &mut context)
}

#[cfg(test)]
mod tests {
    use super::super::super::config::GenerationConfig;
    use super::super::super::plan::{DraftContext, PlanContext};
    use super::super::super::prompt::PromptBatch;
    use super::*;
    use rsgen_core::{FinishReason, TokenId};

    fn search(context: &PlanContext) -> AssistedSearch {
        let prompt = PromptBatch::single(vec![TokenId(1), TokenId(2)]).unwrap();
        let config = GenerationConfig::new().max_new_tokens(4).prompt_lookup_num_tokens(2_usize);
        AssistedSearch::new(GenerationPlan::new(&config, prompt, context).unwrap())
    }

    #[test]
    fn a_step_with_other_logits_than_requested_is_an_error() {
        let context = PlanContext { draft: Some(DraftContext::new(5, 9)), ..PlanContext::new(5, 9) };
        for given in [0, 5, 15] {
            let mut search = search(&context);
            search.wants(&mut SearchInputs::new());
            let mut logits = vec![0.0; given];
            let advanced =
                search.advance(SearchResults::of_logits(&mut logits, 5), &mut SearchStep::default());
            assert_eq!(advanced.is_ok(), given == 5, "one row without candidates");
        }
    }

    #[test]
    fn a_search_given_up_keeps_what_it_has() {
        let mut search = search(&PlanContext::new(5, 9));
        search.wants(&mut SearchInputs::new());
        let mut logits = vec![0.0, 0.0, 9.0, 0.0, 0.0];
        search.advance(SearchResults::of_logits(&mut logits, 5), &mut SearchStep::default()).unwrap();
        let output = Box::new(search).finish();
        assert_eq!(output.rows[0].token_ids, [TokenId(2)]);
        assert_eq!(output.rows[0].finish_reason, FinishReason::Cancelled);
    }
}
