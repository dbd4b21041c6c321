//! The searches with independent rows: each row has its own sequence from prompt to end.
//!
//! They differ in their [`TokenChoice`], which chooses a token from a row of processed scores.

use rsgen_core::{FinishReason, Result, ResultExt, RowOutputs, TokenId, memory};

use super::super::logits::watched::note_removed;
use super::super::output::{OutputRow, SearchOutput, SequenceScores};
use super::super::plan::GenerationPlan;
use super::super::stopping::StopContext;
use super::details::TokenDetails;
use super::sequences::Sequences;
use super::step_logits::LogitsScratch;
use super::{Search, SearchInputs, SearchResults, SearchStep, TokenEvent};

/// How a search chooses a token.
pub(super) trait TokenChoice: Send {
    /// The field that makes [`prepare`](Self::prepare) change logits; empty when it changes nothing.
    const CHANGED_BY: &'static str = "";

    /// Changes the logits of a row, `[vocab_size]`, before they are processed. `layer_logits` are those of
    /// inner layers; the row is their row `main_row`.
    fn prepare(&mut self, _logits: &mut [f32], _layer_logits: &[f32], _main_row: usize) -> Result<()> {
        Ok(())
    }

    /// The next token of a row with these processed scores, `[vocab_size]`.
    fn choose(&mut self, scores: &[f32]) -> Result<TokenId>;

    /// Skips a row that has ended.
    fn skip_row(&mut self, vocab_size: usize);
}

/// A search that chooses the tokens of its rows with `choice`, in row order.
pub(super) struct RowSearch<C> {
    plan: GenerationPlan,
    choice: C,
    sequences: Sequences,
    /// One for each sequence.
    rows: Vec<Row>,
    /// The requested scores of each sequence.
    recorded: Vec<SequenceScores>,
    /// Scratch: the logits before processing.
    raw: Vec<f32>,
    /// The row, the token and the log-probability of each new token; memory of steps.
    chosen: Vec<(usize, TokenId, f32)>,
    /// Why the rows of these tokens end.
    finishes: Vec<Option<FinishReason>>,
    scratch: LogitsScratch,
}

#[derive(Default)]
struct Row {
    finish: Option<FinishReason>,
    logprobs: Vec<f32>,
}

impl<C: TokenChoice> RowSearch<C> {
    /// The search of a plan. `outputs` are logits and what [`prepare`](TokenChoice::prepare) uses besides.
    pub(super) fn new(plan: GenerationPlan, choice: C, outputs: RowOutputs) -> Self {
        let sequences = Sequences::new(&plan, plan.sequences_each(), outputs);
        let rows = (0..sequences.len()).map(|_| Row::default()).collect();
        let recorded = SequenceScores::of(&plan.config);
        Self {
            recorded: vec![recorded; sequences.len()],
            plan,
            choice,
            sequences,
            rows,
            raw: Vec::new(),
            chosen: Vec::new(),
            finishes: Vec::new(),
            scratch: LogitsScratch::default(),
        }
    }

    /// Applies the stopping criteria to the rows that have a new token, in the order of their `scores`.
    fn check_stopping(
        &self,
        chosen: &[(usize, TokenId, f32)],
        scores: &[f32],
        finishes: &mut Vec<Option<FinishReason>>,
    ) -> Result<()> {
        let config = &self.plan.config;
        let context = |(&(row_index, ..), scores): (&(usize, TokenId, f32), _)| StopContext {
            input_ids: &self.sequences.sequence(row_index).ids,
            prompt_len: config.prompt_len,
            prompt_index: self.sequences.sequence(row_index).prompt_index,
            row_index,
            scores,
            isa: config.isa,
            has_ended: false,
        };
        let rows = chosen.iter().zip(scores.chunks_exact(config.vocab_size)).map(context);
        finishes.clear();
        if self.plan.criteria.judges_steps() {
            let ended = self.rows.iter().enumerate().filter(|(_, row)| row.finish.is_some());
            let ended = ended.map(|(row_index, _)| {
                let sequence = self.sequences.sequence(row_index);
                (sequence.prompt_index, row_index, &sequence.ids[..])
            });
            finishes
                .extend(self.plan.should_stop_rows(&rows.collect::<Vec<_>>(), ended, |row| row.row_index)?);
        } else {
            for row in rows {
                finishes.push(self.plan.criteria.should_stop(&row)?);
            }
        }
        Ok(())
    }
}

impl<C: TokenChoice> Search for RowSearch<C> {
    fn wants(&mut self, inputs: &mut SearchInputs) {
        self.sequences.wants(&self.plan, inputs);
    }

    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()> {
        let (vocab_size, now) = (self.plan.config.vocab_size, self.sequences.step());
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut logits = self.sequences.logits(&self.plan, results, &mut scratch)?;
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let prepares = !C::CHANGED_BY.is_empty();
        if prepares || !self.plan.processors.is_empty() {
            memory::extend(&mut raw, &logits.scores, "logits")?;
        }
        if prepares {
            for (row, &main_row) in logits.scores.chunks_exact_mut(vocab_size).zip(logits.main_rows) {
                self.choice.prepare(row, logits.layer_logits, main_row)?;
            }
            for (row, watched) in logits.scores.chunks_exact(vocab_size).zip(&mut logits.watched) {
                note_removed(watched, row, || C::CHANGED_BY.to_owned());
            }
        }
        self.sequences.process(&self.plan, &mut logits)?;

        let raw_of = |logits_row: usize, processed| {
            if raw.is_empty() { processed } else { &raw[logits_row * vocab_size..][..vocab_size] }
        };
        let (mut chosen, mut finishes) =
            (std::mem::take(&mut self.chosen), std::mem::take(&mut self.finishes));
        chosen.clear();
        for row in 0..self.rows.len() {
            if self.rows[row].finish.is_some() {
                self.choice.skip_row(vocab_size);
                continue;
            }
            let logits_row = chosen.len();
            let processed = &logits.scores[logits_row * vocab_size..][..vocab_size];
            let raw = raw_of(logits_row, processed);
            let token = self.choice.choose(processed).context(|| format!("step {now}, row {row}"))?;
            let logprob = raw[token.index()] - logits.normalizer(logits_row);
            self.recorded[row].keep_scores(processed)?;
            self.recorded[row].keep_logits(self.plan.config.isa, raw)?;
            logits.keep_states(logits_row, &mut self.recorded[row]);
            self.sequences.push(row, token);
            self.rows[row].logprobs.push(logprob);
            chosen.push((row, token, logprob));
        }
        self.check_stopping(&chosen, &logits.scores, &mut finishes)?;
        for (logits_row, (&(row, token, logprob), &finish)) in chosen.iter().zip(&finishes).enumerate() {
            let processed = &logits.scores[logits_row * vocab_size..][..vocab_size];
            self.rows[row].finish = finish;
            if finish.is_some() {
                self.sequences.end(row);
            }
            if let Some(watched) = logits.watched.get_mut(logits_row) {
                let watched = std::mem::take(watched);
                step.details.tokens.push(TokenDetails::new(
                    self.plan.config.isa,
                    raw_of(logits_row, processed),
                    processed,
                    token,
                    watched,
                )?);
            }
            let (score, top_logprobs) = (processed[token.index()], self.recorded[row].alternatives(None)?);
            step.events.push(TokenEvent { row, token, logprob, score, finish, top_logprobs });
        }
        (self.raw, self.scratch, self.chosen, self.finishes) = (raw, scratch, chosen, finishes);
        step.finished = self.rows.iter().all(|row| row.finish.is_some());
        Ok(())
    }

    fn finish(self: Box<Self>) -> SearchOutput {
        let Self { plan, sequences, rows, recorded, .. } = *self;
        let rows = sequences.into_ids().zip(rows).map(|((prompt_index, ids), row)| {
            OutputRow::new(prompt_index, ids[plan.config.prompt_len..].to_vec(), row.finish, row.logprobs)
        });
        SearchOutput::of(&plan.config, rows.collect(), recorded)
    }
}
