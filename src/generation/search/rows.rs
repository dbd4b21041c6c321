//! What the searches share whose rows go their ways independently: the rows themselves, from prompt to output.
//!
//! Each prompt is computed once and forked for its further rows, and so are the companions that processors
//! ask for. How a token is chosen from a row of processed scores is the search's own part, [`TokenChoice`].

use crate::error::{Error, Result, ResultExt};
use crate::types::{FinishReason, RowOutputs, SeqId, TokenId};

use super::super::logits::{ProcessContext, ProcessorStates, RowContext, ScoreRows};
use super::super::numerics::log_sum_exp;
use super::super::output::{OutputRow, SearchOutput};
use super::super::plan::GenerationPlan;
use super::super::stopping::StopContext;
use super::{SearchInputs, SearchResults, SearchStep, TokenEvent};

/// How a search chooses a token.
pub(super) trait TokenChoice {
    /// The next token of a row with these processed scores, `[vocab_size]`.
    fn choose(&mut self, scores: &[f32]) -> Result<TokenId>;

    /// The turn of a row that has ended.
    fn pass_over(&mut self, vocab_size: usize);
}

/// The rows of a request.
pub(super) struct RowSearch {
    plan: GenerationPlan,
    /// Prompt by prompt, `num_return_sequences` each.
    rows: Vec<Row>,
    /// The number of steps that have been advanced.
    step: usize,
    /// What the last `wants` asked for.
    asked: Option<Asked>,
    next_seq: u32,
    /// Sequences of rows that have ended since the last `wants`.
    ended: Vec<SeqId>,
    /// Scratch: the logits before processing.
    raw: Vec<f32>,
}

struct Row {
    prompt_index: usize,
    /// The prompt, padding included, and the generated tokens.
    ids: Vec<TokenId>,
    /// `None` before the row has been forked from its prompt.
    seq: Option<SeqId>,
    /// For each processor the companion that runs beside the row.
    companions: Vec<Option<SeqId>>,
    states: ProcessorStates,
    finish: Option<FinishReason>,
    logprobs: Vec<f32>,
    scores: Vec<Vec<f32>>,
    logits: Vec<Vec<f32>>,
}

/// The logits rows that were asked for: first one per main row, then those of the companions.
struct Asked {
    /// Prompts in the first step, then rows that go on.
    main: usize,
    /// For each main row and each processor the place of the companion's logits.
    companions: Vec<Vec<Option<usize>>>,
    /// The number of logits rows.
    total: usize,
}

impl RowSearch {
    pub(super) fn new(plan: GenerationPlan) -> Self {
        let rows = plan
            .prompts
            .iter()
            .enumerate()
            .flat_map(|(prompt_index, prompt)| {
                let plan = &plan;
                (0..plan.num_return_sequences).map(move |_| Row {
                    prompt_index,
                    ids: prompt.input_ids.clone(),
                    seq: None,
                    companions: vec![None; plan.processors.len()],
                    states: plan.processors.new_states(),
                    finish: None,
                    logprobs: Vec::new(),
                    scores: Vec::new(),
                    logits: Vec::new(),
                })
            })
            .collect();
        Self { plan, rows, step: 0, asked: None, next_seq: 0, ended: Vec::new(), raw: Vec::new() }
    }

    /// The prompts, or the newest tokens of the rows that go on.
    pub(super) fn wants(&mut self, inputs: &mut SearchInputs) {
        self.asked = Some(if self.step == 0 {
            self.want_prompts(inputs)
        } else {
            if self.step == 1 {
                self.fork_prompts(inputs);
            }
            for seq in self.ended.drain(..) {
                inputs.release(seq);
            }
            self.want_tokens(inputs)
        });
    }

    fn want_prompts(&mut self, inputs: &mut SearchInputs) -> Asked {
        let mut next_seq = self.next_seq;
        let mut prompt = |tokens: &[TokenId]| {
            let seq = SeqId(next_seq);
            next_seq += 1;
            inputs.create(seq);
            inputs.prompt(seq, tokens, RowOutputs::LOGITS);
            seq
        };
        let rows_each = self.plan.num_return_sequences;
        for (index, planned) in self.plan.prompts.iter().enumerate() {
            self.rows[index * rows_each].seq = Some(prompt(&planned.tokens));
        }
        let mut total = self.plan.prompts.len();
        let mut companions = Vec::with_capacity(total);
        for (index, planned) in self.plan.prompts.iter().enumerate() {
            let row = &mut self.rows[index * rows_each];
            companions.push(
                planned
                    .companions
                    .iter()
                    .zip(&mut row.companions)
                    .map(|(tokens, seq)| {
                        *seq = Some(prompt(tokens.as_ref()?));
                        total += 1;
                        Some(total - 1)
                    })
                    .collect(),
            );
        }
        self.next_seq = next_seq;
        Asked { main: self.plan.prompts.len(), companions, total }
    }

    /// Gives every further row of a prompt its own sequences, as copies of the first one's.
    fn fork_prompts(&mut self, inputs: &mut SearchInputs) {
        for rows in self.rows.chunks_mut(self.plan.num_return_sequences) {
            let Some((first, further)) = rows.split_first_mut() else { continue };
            for row in further.iter_mut().filter(|row| row.finish.is_none()) {
                let mut fork = |parent: SeqId| {
                    let child = SeqId(self.next_seq);
                    self.next_seq += 1;
                    inputs.fork(parent, child);
                    child
                };
                row.seq = first.seq.map(&mut fork);
                row.companions = first.companions.iter().map(|parent| parent.map(&mut fork)).collect();
            }
        }
    }

    fn want_tokens(&self, inputs: &mut SearchInputs) -> Asked {
        let going_on = || self.rows.iter().filter(|row| row.finish.is_none());
        let newest = |row: &Row| row.ids.last().copied().unwrap_or_default();
        let mut main = 0;
        for row in going_on() {
            if let Some(seq) = row.seq {
                inputs.token(seq, newest(row), RowOutputs::LOGITS);
                main += 1;
            }
        }
        let mut total = main;
        let companions = going_on()
            .map(|row| {
                let place_of = |seq: &Option<SeqId>| {
                    inputs.token((*seq)?, newest(row), RowOutputs::LOGITS);
                    total += 1;
                    Some(total - 1)
                };
                row.companions.iter().map(place_of).collect()
            })
            .collect();
        Asked { main, companions, total }
    }

    /// Processes the logits of the rows that go on, lets `choice` choose in row order, and ends rows.
    pub(super) fn advance(
        &mut self,
        results: SearchResults<'_>,
        choice: &mut impl TokenChoice,
    ) -> Result<SearchStep> {
        let vocab_size = self.plan.vocab_size;
        let asked =
            self.asked.take().ok_or_else(|| Error::internal("a search was advanced without wants"))?;
        let logits = results.target.logits;
        if results.target.vocab_size != vocab_size || logits.len() != asked.total * vocab_size {
            return Err(Error::internal(format!(
                "a search asked for {} rows of {vocab_size} logits and was given {} logits in rows of {}",
                asked.total,
                logits.len(),
                results.target.vocab_size
            )));
        }
        let (main, companion_logits) = logits.split_at_mut(asked.main * vocab_size);
        let mut expanded = Vec::new();
        let mut scores = ScoreRows::new(self.expand(main, &mut expanded), vocab_size);
        let any_logits = self.plan.processors.takes_invalid_logits();
        let normalizers = normalizers(&scores, any_logits).context(|| format!("step {}", self.step))?;
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        if !self.plan.processors.is_empty() {
            raw.extend_from_slice(scores.as_mut_slice());
            self.process(&mut scores, &asked, companion_logits)?;
        }

        let mut step = SearchStep::default();
        let mut place = 0;
        for row in 0..self.rows.len() {
            if self.rows[row].finish.is_some() {
                choice.pass_over(vocab_size);
                continue;
            }
            let processed = scores.row(place);
            let raw = if raw.is_empty() { processed } else { &raw[place * vocab_size..][..vocab_size] };
            let token = choice.choose(processed).context(|| format!("step {}, row {row}", self.step))?;
            let logprob = raw[token.index()] - normalizers[place];
            self.keep(row, raw, processed);
            let finish = self.append(row, token, logprob, processed)?;
            step.events.push(TokenEvent { row, token, logprob, score: processed[token.index()], finish });
            place += 1;
        }
        self.raw = raw;
        self.step += 1;
        step.finished = self.rows.iter().all(|row| row.finish.is_some());
        Ok(step)
    }

    /// One row of logits for each row that goes on: in the first step those of a prompt serve all its rows.
    fn expand<'a>(&self, main: &'a mut [f32], expanded: &'a mut Vec<f32>) -> &'a mut [f32] {
        if self.step > 0 || self.plan.num_return_sequences == 1 {
            return main;
        }
        for logits in main.chunks_exact(self.plan.vocab_size) {
            for _ in 0..self.plan.num_return_sequences {
                expanded.extend_from_slice(logits);
            }
        }
        expanded
    }

    /// Applies the processors to the rows that go on.
    fn process(&mut self, scores: &mut ScoreRows<'_>, asked: &Asked, companion_logits: &[f32]) -> Result<()> {
        let vocab_size = self.plan.vocab_size;
        let logits_at = |place: &Option<usize>| {
            place.map(|place| &companion_logits[(place - asked.main) * vocab_size..][..vocab_size])
        };
        let num_rows = self.rows.len();
        let rows = self
            .rows
            .iter_mut()
            .enumerate()
            .filter(|(_, row)| row.finish.is_none())
            .enumerate()
            .map(|(place, (row_index, row))| {
                let main_row = if self.step == 0 { row.prompt_index } else { place };
                RowContext {
                    prompt_len: self.plan.prompt_len,
                    padding_len: self.plan.prompts[row.prompt_index].padding_len,
                    prompt_index: row.prompt_index,
                    row_index,
                    companions: asked.companions[main_row].iter().map(logits_at).collect(),
                    states: Some(&mut row.states),
                    ..RowContext::of_prompt(&row.ids)
                }
            })
            .collect();
        let mut context = ProcessContext { num_rows, ..ProcessContext::new(rows) };
        self.plan.processors.process(scores, &mut context)
    }

    /// Keeps what the caller asked to see of a step.
    fn keep(&mut self, row: usize, raw: &[f32], processed: &[f32]) {
        let row = &mut self.rows[row];
        if self.plan.output_scores {
            row.scores.push(processed.to_vec());
        }
        if self.plan.output_logits {
            row.logits.push(raw.to_vec());
        }
    }

    /// Gives a row its token, and ends it if a criterion says so.
    fn append(
        &mut self,
        row_index: usize,
        token: TokenId,
        logprob: f32,
        scores: &[f32],
    ) -> Result<Option<FinishReason>> {
        let row = &mut self.rows[row_index];
        row.ids.push(token);
        row.logprobs.push(logprob);
        row.finish = self.plan.criteria.should_stop(&StopContext {
            input_ids: &row.ids,
            prompt_len: self.plan.prompt_len,
            prompt_index: row.prompt_index,
            row_index,
            scores,
        })?;
        if row.finish.is_some() {
            self.ended.extend(row.seq.iter().chain(row.companions.iter().flatten()));
        }
        Ok(row.finish)
    }

    pub(super) fn finish(self) -> SearchOutput {
        let plan = self.plan;
        let rows = self.rows.into_iter().map(|row| OutputRow {
            prompt_index: row.prompt_index,
            token_ids: row.ids[plan.prompt_len..].to_vec(),
            finish_reason: row.finish.unwrap_or(FinishReason::Cancelled),
            logprobs: row.logprobs,
            scores: plan.output_scores.then_some(row.scores),
            logits: plan.output_logits.then_some(row.logits),
        });
        SearchOutput { rows: rows.collect(), pad_token_id: plan.pad_token_id, seed: None }
    }
}

/// The log-sum-exp of each row of the model's own logits, which must be numbers unless a processor makes them such.
fn normalizers(logits: &ScoreRows<'_>, any_logits: bool) -> Result<Vec<f32>> {
    (0..logits.len())
        .map(|row| {
            let normalizer = log_sum_exp(logits.row(row));
            if normalizer.is_finite() || any_logits {
                return Ok(normalizer);
            }
            Err(Error::numerical(format!(
                "the model's logits hold NaN or infinity (their log-sum-exp is {normalizer}); its weights \
                 may be damaged, or compute_dtype too narrow for them"
            )))
        })
        .collect()
}
