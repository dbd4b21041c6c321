//! Assisted decoding: tokens are proposed cheaply, and one pass of the model checks several of them at once.
//!
//! The logits after each candidate are processed as in a plain search, and a token is chosen from them. A row takes these
//! tokens up to the first one that differs from its candidate, and drops the rest of the candidates from its sequence. So
//! greedy search gives the tokens that it gives without candidates, and stops where it would stop.

use crate::error::{Error, Result, ResultExt};
use crate::kernels::log_sum_exp;
use crate::memory;
use crate::types::{FinishReason, RowOutputs, SeqId, TokenId};

use super::super::candidate::PromptLookup;
use super::super::config::GenerationConfig;
use super::super::logits::{
    LogitsProcessorList, ProcessContext, ProcessorStates, RowContext, ScoreRows, UnconditionalLogits,
};
use super::super::output::{DraftStats, OutputRow, SearchOutput, SequenceScores};
use super::super::plan::{DraftPlan, DraftSource, GenerationPlan, PlanContext};
use super::super::stopping::StopContext;
use super::greedy::HighestScore;
use super::registry::SearchPlan;
use super::rows::TokenChoice;
use super::sample::Draw;
use super::{Search, SearchInputs, SearchResults, SearchStep, TokenEvent};

/// Plans prompt lookup.
pub(super) fn plan(config: &GenerationConfig) -> Result<SearchPlan> {
    let lookup =
        PromptLookup::of(config)?.ok_or_else(|| Error::internal("assisted decoding without candidates"))?;
    Ok(SearchPlan::of_rows(config, move |plan| AssistedSearch::new(plan, Some(lookup))))
}

/// Plans drafts of a model.
pub(super) fn plan_draft(config: &GenerationConfig, context: &PlanContext) -> Result<SearchPlan> {
    let (source, context_len) = match (config.assistant_early_exit, &context.draft) {
        (Some(num_layers), _) if !(1..=context.num_layers).contains(&num_layers) => {
            return Err(Error::config(format!(
                "`assistant_early_exit` must be a number of the model's layers, 1 to {}, but is {num_layers}; None switches \
                 it off",
                context.num_layers
            )));
        }
        (Some(num_layers), _) => (DraftSource::EarlyExit { num_layers }, context.context_len),
        (None, Some(draft)) if draft.vocab_size != context.vocab_size => {
            return Err(Error::config(format!(
                "the assistant must have the model's vocabulary of {} tokens, but has one of {}; give an assistant with the \
                 same tokenizer",
                context.vocab_size, draft.vocab_size
            )));
        }
        (None, Some(draft)) => (DraftSource::Model, draft.context_len),
        (None, None) => return Err(Error::internal("assisted decoding without an assistant")),
    };
    let sequences_each = config.num_return_sequences.unwrap_or(1);
    let draft = DraftPlan { source, sequences_each, context_len };
    Ok(SearchPlan::of_rows(config, move |plan| AssistedSearch::new(plan, None)).with_draft(draft))
}

/// transformers' assisted decoding, of greedy search or sampling.
struct AssistedSearch {
    plan: GenerationPlan,
    lookup: Option<PromptLookup>,
    choice: Choice,
    /// `num_return_sequences` for each prompt.
    rows: Vec<Row>,
    /// Whether the prompts have been computed.
    started: bool,
    /// An error of `wants`, for `advance` to return.
    failure: Option<Error>,
    /// The processors that are asked whether a candidate is possible; empty when it does not matter.
    checks: LogitsProcessorList,
    next_seq: u32,
    /// Scratch: the scores of one token.
    scores: Vec<f32>,
    drafts: DraftStats,
}

/// How the tokens of a row are chosen.
enum Choice {
    Highest(HighestScore),
    Draw(Draw),
}

struct Row {
    prompt_index: usize,
    /// The prompt, padding included, and the generated tokens.
    ids: Vec<TokenId>,
    /// Its KV sequence, then for each processor the unconditional sequence that it requests. Empty before the row is forked
    /// from its prompt.
    seqs: Vec<Option<SeqId>>,
    /// The number of tokens that each of them has to keep.
    kept: Vec<usize>,
    states: ProcessorStates,
    /// What is checked in this step.
    candidates: Vec<TokenId>,
    /// Further candidates, beyond the last token that fits: nothing checks them, but transformers draws for them.
    beyond: usize,
    logprobs: Vec<f32>,
    recorded: SequenceScores,
    finish: Option<FinishReason>,
}

impl AssistedSearch {
    fn new(plan: GenerationPlan, lookup: Option<PromptLookup>) -> Self {
        let choice = match plan.seed {
            Some(seed) => Choice::Draw(Draw::new(seed, &plan)),
            None => Choice::Highest(HighestScore(plan.isa)),
        };
        // Of greedy search the tokens do not depend on the candidates. In sampling their number decides how many random
        // numbers a step takes.
        let checks =
            if plan.seed.is_some() { plan.processors.built_in() } else { LogitsProcessorList::default() };
        let recorded = SequenceScores::of(&plan);
        let row = |prompt_index: usize| Row {
            prompt_index,
            ids: plan.prompts[prompt_index].input_ids.clone(),
            seqs: Vec::new(),
            kept: Vec::new(),
            states: plan.processors.new_states(),
            candidates: Vec::new(),
            beyond: 0,
            logprobs: Vec::new(),
            recorded: recorded.clone(),
            finish: None,
        };
        let each = plan.num_return_sequences();
        let rows = (0..plan.prompts.len() * each).map(|index| row(index / each)).collect();
        Self {
            plan,
            lookup,
            choice,
            rows,
            started: false,
            failure: None,
            checks,
            next_seq: 0,
            scores: Vec::new(),
            drafts: DraftStats::default(),
        }
    }

    /// Looks up the candidates of a row.
    ///
    /// # Errors
    /// The first one of a processor.
    fn look_up(&mut self, index: usize) -> Result<()> {
        let Self { plan, lookup, rows, checks, scores, .. } = self;
        let row = &mut rows[index];
        let mut allowed = |tokens: &[TokenId]| {
            if checks.is_empty() {
                return Ok(tokens.len());
            }
            let mut ids = row.ids.clone();
            for (position, &token) in tokens.iter().enumerate() {
                scores.clear();
                memory::reserve(scores, plan.vocab_size, "scores")?;
                scores.resize(plan.vocab_size, 1.0);
                let context = RowContext { input_ids: &ids, ..context(plan, row.prompt_index, index) };
                process(plan, checks, context, scores)?;
                if scores[token.index()] <= f32::MIN {
                    return Ok(position);
                }
                ids.push(token);
            }
            Ok(tokens.len())
        };
        let find = |lookup: &mut PromptLookup| {
            lookup.candidates(&row.ids, &plan.eos_token_ids, plan.max_length, &mut allowed)
        };
        let found = lookup.as_mut().map(find).transpose()?.unwrap_or_default();
        let generated = row.ids.len() - plan.prompt_len;
        // Each checked candidate is followed by one more token.
        let room = plan.max_new_tokens(row.prompt_index).saturating_sub(generated + 1);
        row.beyond = found.len().saturating_sub(room);
        row.candidates = found;
        row.candidates.truncate(room);
        Ok(())
    }

    /// Requests the prompts with their candidates. The rows of a prompt share its sequences in this step.
    fn want_prompts(&mut self, inputs: &mut SearchInputs) {
        let each = self.plan.num_return_sequences();
        for unconditional in [false, true] {
            for (prompt, rows) in self.plan.prompts.iter().zip(self.rows.chunks_mut(each)) {
                let row = &mut rows[0];
                let tokens = |index: usize| prompt.unconditional[index].as_deref();
                let wanted: Vec<Option<&[TokenId]>> = if unconditional {
                    (0..prompt.unconditional.len()).map(tokens).collect()
                } else {
                    vec![Some(&prompt.tokens)]
                };
                for tokens in wanted {
                    let seq = tokens.map(|tokens| {
                        let seq = SeqId(self.next_seq);
                        self.next_seq += 1;
                        inputs.create(seq);
                        inputs.prompt(seq, tokens, RowOutputs::NONE, RowOutputs::LOGITS);
                        for &token in &row.candidates {
                            inputs.token(seq, token, RowOutputs::LOGITS);
                        }
                        seq
                    });
                    row.seqs.push(seq);
                    row.kept.push(tokens.map_or(0, <[TokenId]>::len));
                }
            }
        }
    }

    /// After the first step: gives each further row of a prompt copies of its sequences.
    fn fork_prompts(&mut self, inputs: &mut SearchInputs) {
        let each = self.plan.num_return_sequences();
        for rows in self.rows.chunks_mut(each) {
            let Some((first, further)) = rows.split_first_mut() else { continue };
            for row in further.iter_mut().filter(|row| row.finish.is_none()) {
                let fork = |parent: &Option<SeqId>| {
                    let child = SeqId(self.next_seq);
                    parent.map(|parent| {
                        self.next_seq += 1;
                        inputs.fork(parent, child);
                        child
                    })
                };
                row.seqs = first.seqs.iter().map(fork).collect();
            }
        }
    }

    /// Drops rejected candidates, releases what has ended, and requests the newest tokens with new candidates.
    fn want_tokens(&mut self, inputs: &mut SearchInputs) {
        for row in &mut self.rows {
            if row.finish.is_some() {
                row.seqs.drain(..).flatten().for_each(|seq| inputs.release(seq));
            }
            for (seq, &kept) in row.seqs.iter().zip(&row.kept) {
                if let Some(seq) = *seq {
                    inputs.truncate(seq, kept);
                }
            }
        }
        for range in [0..1, 1..usize::MAX] {
            for row in self.rows.iter().filter(|row| row.finish.is_none()) {
                let end = range.end.min(row.seqs.len());
                for seq in row.seqs[range.start.min(end)..end].iter().flatten() {
                    for &token in row.ids.last().into_iter().chain(&row.candidates) {
                        inputs.token(*seq, token, RowOutputs::LOGITS);
                    }
                }
            }
        }
        for row in &mut self.rows {
            row.kept.iter_mut().for_each(|kept| *kept += 1);
        }
    }

    /// Chooses the tokens of a row. `main` is the row of `logits` after its newest token, `unconditional` for each processor
    /// that of its unconditional sequence; those of the candidates follow each.
    fn advance_row(
        &mut self,
        index: usize,
        main: usize,
        unconditional: &[Option<usize>],
        logits: &[f32],
        step: &mut SearchStep,
    ) -> Result<()> {
        let vocab_size = self.plan.vocab_size;
        let candidates = std::mem::take(&mut self.rows[index].candidates);
        for position in 0..=candidates.len() {
            let raw = &logits[(main + position) * vocab_size..][..vocab_size];
            let rows: Vec<Option<usize>> =
                unconditional.iter().map(|row| row.map(|row| row + position)).collect();
            let token =
                self.choose(index, raw, UnconditionalLogits { rows: &rows, logits, vocab_size }, step)?;
            let is_over = self.rows[index].finish.is_some();
            if is_over || candidates.get(position) != Some(&token) {
                let left = candidates.len() - position + self.rows[index].beyond;
                (0..left).for_each(|_| self.choice.skip_row(vocab_size));
                break;
            }
            self.rows[index].kept.iter_mut().for_each(|kept| *kept += 1);
            self.drafts.accepted += 1;
        }
        self.drafts.rounds += 1;
        self.drafts.drafted += (candidates.len() + self.rows[index].beyond) as u64;
        self.drafts.verified += candidates.len() as u64;
        Ok(())
    }

    /// Chooses the next token of a row from the model's own logits, `[vocab_size]`.
    fn choose(
        &mut self,
        index: usize,
        raw: &[f32],
        unconditional: UnconditionalLogits<'_>,
        step: &mut SearchStep,
    ) -> Result<TokenId> {
        let Self { plan, rows, choice, scores, .. } = self;
        let row = &mut rows[index];
        let place = || format!("step {}, row {index}", row.ids.len() - plan.prompt_len);
        let normalizer = log_sum_exp(plan.isa, raw);
        if !normalizer.is_finite() && !plan.processors.takes_invalid_logits() {
            return Err(super::sequences::not_finite(normalizer)).context(place);
        }
        scores.clear();
        memory::extend(scores, raw, "scores")?;
        let context = RowContext {
            input_ids: &row.ids,
            unconditional,
            states: Some(&mut row.states),
            ..context(plan, row.prompt_index, index)
        };
        process(plan, &plan.processors, context, scores)?;
        let token = choice.choose(scores).context(place)?;
        row.ids.push(token);
        let logprob = raw[token.index()] - normalizer;
        row.logprobs.push(logprob);
        row.recorded.keep_scores(scores)?;
        row.recorded.keep_logits(plan.isa, raw)?;
        row.finish = plan.criteria.should_stop(&StopContext {
            input_ids: &row.ids,
            prompt_len: plan.prompt_len,
            prompt_index: row.prompt_index,
            row_index: index,
            scores,
            isa: plan.isa,
        })?;
        let score = scores[token.index()];
        step.events.push(TokenEvent { row: index, token, logprob, score, finish: row.finish });
        Ok(token)
    }
}

/// The context of a row without its ids and states.
fn context(plan: &GenerationPlan, prompt_index: usize, row_index: usize) -> RowContext<'static> {
    RowContext {
        input_ids: &[],
        prompt_len: plan.prompt_len,
        padding_len: plan.prompts[prompt_index].padding_len,
        prompt_index,
        row_index,
        isa: plan.isa,
        unconditional: UnconditionalLogits::default(),
        states: None,
        processor_index: 0,
    }
}

/// Applies processors to the scores of one row.
fn process(
    plan: &GenerationPlan,
    processors: &LogitsProcessorList,
    row: RowContext<'_>,
    scores: &mut [f32],
) -> Result<()> {
    let mut context = ProcessContext { num_rows: plan.num_rows(), ..ProcessContext::new(vec![row]) };
    processors.process(&mut ScoreRows::new(scores, plan.vocab_size), &mut context)
}

impl TokenChoice for Choice {
    fn choose(&mut self, scores: &[f32]) -> Result<TokenId> {
        match self {
            Self::Highest(highest) => highest.choose(scores),
            Self::Draw(draw) => draw.choose(scores),
        }
    }

    fn skip_row(&mut self, vocab_size: usize) {
        match self {
            Self::Highest(highest) => highest.skip_row(vocab_size),
            Self::Draw(draw) => draw.skip_row(vocab_size),
        }
    }
}

impl Search for AssistedSearch {
    fn wants(&mut self, inputs: &mut SearchInputs) {
        if self.started {
            if self.rows.iter().any(|row| row.seqs.is_empty() && row.finish.is_none()) {
                self.fork_prompts(inputs);
            }
            self.want_tokens(inputs);
        } else {
            let each = self.plan.num_return_sequences();
            for prompt_index in 0..self.plan.prompts.len() {
                if let Err(error) = self.look_up(prompt_index * each) {
                    self.failure.get_or_insert(error);
                }
            }
            self.want_prompts(inputs);
        }
    }

    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (logits, each) = (&*results.logits, self.plan.num_return_sequences());
        let is_first = !std::mem::replace(&mut self.started, true);
        if is_first {
            for rows in self.rows.chunks_mut(each) {
                let (first, further) = rows.split_at_mut(1);
                for row in further {
                    row.candidates.clone_from(&first[0].candidates);
                    (row.beyond, row.kept) = (first[0].beyond, first[0].kept.clone());
                }
            }
        }
        // Main rows come first, then those of the unconditional sequences.
        let computed =
            |row: &Row, index: usize| if is_first { index % each == 0 } else { row.finish.is_none() };
        let widths: Vec<usize> = self.rows.iter().map(|row| row.candidates.len() + 1).collect();
        let owner = |index: usize| if is_first { index - index % each } else { index };
        let mut next = 0;
        let mut take = |width: usize| {
            next += width;
            next - width
        };
        let mut main = vec![0; self.rows.len()];
        for (index, row) in self.rows.iter().enumerate() {
            main[index] = if computed(row, index) { take(widths[index]) } else { main[owner(index)] };
        }
        let mut unconditional: Vec<Vec<Option<usize>>> = vec![Vec::new(); self.rows.len()];
        for (index, row) in self.rows.iter().enumerate() {
            unconditional[index] = if computed(row, index) {
                row.seqs.iter().skip(1).map(|seq| seq.map(|_| take(widths[index]))).collect()
            } else {
                unconditional[owner(index)].clone()
            };
        }
        let (given, vocab_size) = (logits.len(), self.plan.vocab_size);
        if results.vocab_size != vocab_size || given != next * vocab_size {
            return Err(Error::internal(format!(
                "a search asked for {next} rows of {vocab_size} logits and was given {given} logits"
            )));
        }
        for index in 0..self.rows.len() {
            if self.rows[index].finish.is_none() {
                self.advance_row(index, main[index], &unconditional[index], logits, step)?;
            }
        }
        step.finished = self.rows.iter().all(|row| row.finish.is_some());
        for index in 0..self.rows.len() {
            if self.rows[index].finish.is_none() {
                self.look_up(index)?;
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> SearchOutput {
        let plan = self.plan;
        let (mut rows, mut sequences) = (Vec::new(), Vec::new());
        for row in self.rows {
            rows.push(OutputRow {
                prompt_index: row.prompt_index,
                token_ids: row.ids[plan.prompt_len..].to_vec(),
                finish_reason: row.finish.unwrap_or(FinishReason::Cancelled),
                logprobs: row.logprobs,
                score: None,
                beam_indices: Vec::new(),
            });
            sequences.push(row.recorded);
        }
        SearchOutput {
            rows,
            pad_token_id: plan.pad_token_id,
            seed: plan.seed,
            sequences,
            draft_stats: Some(self.drafts),
        }
    }
}
