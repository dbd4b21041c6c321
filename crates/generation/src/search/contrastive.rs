//! Contrastive search (Su et al., arXiv:2202.06417), as transformers had it until 4.55: chooses, of the
//! `top_k` most probable tokens, one that is probable and leads to a hidden state unlike the earlier ones.
//!
//! Each candidate is computed in its own copy of the sequence so far. The candidates of the next step are
//! copies of the best one's sequence. So a step computes `top_k` rows for one token, and the best row holds
//! the logits of the next step.

use rsgen_core::{Error, FinishReason, Result, ResultExt, RowOutputs, TokenId, memory};
use rsgen_kernels::torch_reduce::{dot, normalize};
use rsgen_kernels::torch_sort::topk;
use rsgen_kernels::{argmax, maximum, softmax};

use super::super::output::{OutputRow, SearchOutput, SequenceScores};
use super::super::plan::GenerationPlan;
use super::super::stopping::StopContext;
use super::details::TokenDetails;
use super::sequences::{Group, Sequences};
use super::step_logits::{LogitsScratch, StepLogits};
use super::{Search, SearchInputs, SearchResults, SearchStep, TokenEvent};

/// transformers' contrastive search.
pub(super) struct ContrastiveSearch {
    plan: GenerationPlan,
    penalty_alpha: f64,
    sequences: Sequences,
    /// One for each prompt.
    items: Vec<Item>,
    scratch: LogitsScratch,
}

/// A prompt's row.
#[derive(Default)]
struct Item {
    /// The hidden states of its tokens, normalized, `[tokens, hidden_size]`.
    context: Vec<f32>,
    candidates: Vec<Candidate>,
    /// The scores that the candidates were chosen from, `[vocab_size]`.
    processed: Vec<f32>,
    generated: Vec<TokenId>,
    logprobs: Vec<f32>,
    finish: Option<FinishReason>,
    recorded: SequenceScores,
}

struct Candidate {
    token: TokenId,
    probability: f32,
    /// Under the model's own logits.
    logprob: f32,
    /// With `output_events`.
    details: Option<TokenDetails>,
}

impl ContrastiveSearch {
    pub(super) fn new(plan: GenerationPlan) -> Self {
        let penalty_alpha = plan.config.fields.penalty_alpha.unwrap_or(0.0);
        let last_layer = plan.search.layers;
        let outputs = RowOutputs { hidden_states: last_layer, ..RowOutputs::LOGITS };
        let within = RowOutputs { hidden_states: last_layer, ..RowOutputs::NONE };
        let recorded = SequenceScores::of(&plan.config);
        let items =
            plan.prompts.iter().map(|_| Item { recorded: recorded.clone(), ..Item::default() }).collect();
        let sequences = Sequences::new(&plan, plan.sequences_each(), outputs).with_prompt_outputs(within);
        Self { plan, penalty_alpha, sequences, items, scratch: LogitsScratch::default() }
    }

    /// The sequence of the best candidate of a prompt; `next` are their hidden states, `[top_k,
    /// hidden_size]`, each of length 1.
    fn best(&self, item: &Item, next: &[f32], hidden_size: usize) -> usize {
        let alpha = self.penalty_alpha;
        let scores: Vec<f32> = item
            .candidates
            .iter()
            .zip(next.chunks_exact(hidden_size))
            .map(|(candidate, state)| {
                // In transformers a token that was removed can win, but never against a grammar.
                if self.plan.has_grammar && item.processed[candidate.token.index()] == f32::NEG_INFINITY {
                    return f32::NEG_INFINITY;
                }
                let likeness = item.context.chunks_exact(hidden_size).map(|before| dot(before, state));
                let penalty = likeness.fold(f32::NEG_INFINITY, f32::max);
                (1.0 - alpha) as f32 * candidate.probability - alpha as f32 * penalty
            })
            .collect();
        argmax(self.plan.config.isa, &scores)
    }

    /// Takes the best candidate of a prompt as its next token. Returns its index.
    fn choose(
        &mut self,
        prompt_index: usize,
        next: &mut [f32],
        hidden_size: usize,
        step: &mut SearchStep,
    ) -> usize {
        for state in next.chunks_exact_mut(hidden_size) {
            normalize(state);
        }
        let best = self.best(&self.items[prompt_index], next, hidden_size);
        let item = &mut self.items[prompt_index];
        item.context.extend_from_slice(&next[best * hidden_size..][..hidden_size]);
        let Candidate { token, logprob, ref mut details, .. } = item.candidates[best];
        step.details.tokens.extend(details.take());
        item.generated.push(token);
        item.logprobs.push(logprob);
        best
    }

    /// Applies the stopping criteria to the prompts that have a new token, each given with the candidate that
    /// it is.
    fn check_stopping(&mut self, chosen: &[(usize, usize)], step: &mut SearchStep) -> Result<()> {
        let (config, sequences_each) = (&self.plan.config, self.plan.sequences_each());
        let context = |&(prompt_index, best): &(usize, usize)| StopContext {
            input_ids: &self.sequences.sequence(prompt_index * sequences_each + best).ids,
            prompt_len: config.prompt_len,
            prompt_index,
            row_index: prompt_index,
            scores: &self.items[prompt_index].processed,
            isa: config.isa,
            has_ended: false,
        };
        let ended = self.items.iter().enumerate().filter(|(_, item)| item.finish.is_some());
        let ended = ended.map(|(prompt_index, _)| {
            let ids = &self.sequences.sequence(prompt_index * sequences_each).ids;
            (prompt_index, prompt_index, &ids[..])
        });
        let rows: Vec<_> = chosen.iter().map(context).collect();
        let finishes = self.plan.should_stop_rows(&rows, ended, |row| row.row_index)?;
        for (&(prompt_index, best), finish) in chosen.iter().zip(finishes) {
            let item = &mut self.items[prompt_index];
            let Candidate { token, logprob, .. } = item.candidates[best];
            item.finish = finish;
            let (score, top_logprobs) = (item.processed[token.index()], item.recorded.alternatives(None)?);
            step.events.push(TokenEvent { row: prompt_index, token, logprob, score, finish, top_logprobs });
            if finish.is_some() {
                for sequence in 0..sequences_each {
                    self.sequences.end(prompt_index * sequences_each + sequence);
                }
            }
        }
        Ok(())
    }

    /// Gives the sequences of a prompt the most probable tokens after its sequence `best`, whose logits are
    /// row `row`.
    fn propose(
        &mut self,
        prompt_index: usize,
        best: usize,
        row: usize,
        logits: &mut StepLogits<'_>,
    ) -> Result<()> {
        let (vocab_size, sequences_each) = (self.plan.config.vocab_size, self.plan.sequences_each());
        let range = row * vocab_size..(row + 1) * vocab_size;
        let raw = memory::copied(&logits.scores[range.clone()], "logits")?;
        self.sequences.process_some(&self.plan, logits, row..row + 1, Group::default())?;
        let processed = &logits.scores[range];
        let largest = maximum(self.plan.config.isa, processed);
        if !largest.is_finite() {
            return Err(Error::numerical(format!(
                "the highest processed score is {largest}, so there are no candidates; check your logits processors"
            )));
        }
        let mut probabilities = memory::copied(processed, "probabilities")?;
        softmax(self.plan.config.isa, &mut probabilities);
        let normalizer = logits.normalizer(row);
        let details = |token: TokenId| {
            let watched = logits.watched.get(row)?.clone();
            Some(TokenDetails::new(self.plan.config.isa, &raw, processed, token, watched))
        };
        let item = &mut self.items[prompt_index];
        item.candidates = topk(self.plan.config.isa, &probabilities, sequences_each)?
            .into_iter()
            .map(|token| {
                Ok(Candidate {
                    token: TokenId(token),
                    probability: probabilities[token as usize],
                    logprob: raw[token as usize] - normalizer,
                    details: details(TokenId(token)).transpose()?,
                })
            })
            .collect::<Result<_>>()?;
        item.recorded.keep_logits(self.plan.config.isa, &raw)?;
        item.recorded.keep_scores(processed)?;
        logits.keep_states(row, &mut item.recorded);
        item.processed.clear();
        memory::extend(&mut item.processed, processed, "scores")?;
        self.sequences.reorder(prompt_index, vec![best; sequences_each]);
        for (index, candidate) in item.candidates.iter().enumerate() {
            self.sequences.push(prompt_index * sequences_each + index, candidate.token);
        }
        Ok(())
    }

    /// Starts each context with the hidden states of the prompt.
    fn begin(&mut self, hidden_states: &[f32], hidden_size: usize) -> Result<()> {
        let mut rest = hidden_states;
        for (item, prompt) in self.items.iter_mut().zip(&self.plan.prompts) {
            let Some((states, after)) = rest.split_at_checked(prompt.inputs().len() * hidden_size) else {
                return Err(Error::internal("a search was given fewer hidden states than it asked for"));
            };
            rest = after;
            item.context = memory::copied(states, "hidden states")?;
            for state in item.context.chunks_exact_mut(hidden_size) {
                normalize(state);
            }
        }
        Ok(())
    }
}

impl Search for ContrastiveSearch {
    fn wants(&mut self, inputs: &mut SearchInputs) {
        self.sequences.wants(&self.plan, inputs);
    }

    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()> {
        let now = self.sequences.step();
        let [of_layers, hidden_size] = results.hidden_sizes;
        // Of each token the state after the last layer, whatever others are kept.
        let others = self.plan.config.layer_outputs.hidden_states.len().saturating_sub(1);
        let each = others * of_layers + hidden_size;
        let last =
            results.hidden_states.chunks_exact(each.max(1)).map(|states| &states[each - hidden_size..]);
        let mut hidden_states = Vec::new();
        memory::reserve(&mut hidden_states, last.len() * hidden_size, "hidden states")?;
        last.for_each(|state| hidden_states.extend_from_slice(state));
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut logits = self.sequences.logits(&self.plan, results, &mut scratch)?;
        let sequences_each = self.plan.sequences_each();
        if now == 0 {
            self.begin(&hidden_states, hidden_size)?;
        }
        let mut next = if now == 0 { Vec::new() } else { hidden_states };
        let running = |(index, item): (usize, &Item)| item.finish.is_none().then_some((index, 0));
        let mut chosen: Vec<(usize, usize)> = self.items.iter().enumerate().filter_map(running).collect();
        if now > 0 {
            for (row, (prompt_index, best)) in chosen.iter_mut().enumerate() {
                let first = row * sequences_each * hidden_size;
                let Some(states) = next.get_mut(first..first + sequences_each * hidden_size) else {
                    return Err(Error::internal("a search was given fewer hidden states than it asked for"));
                };
                *best = self.choose(*prompt_index, states, hidden_size, step);
            }
            self.check_stopping(&chosen, step)?;
        }
        for (row, (prompt_index, best)) in chosen.into_iter().enumerate() {
            if self.items[prompt_index].finish.is_none() {
                self.propose(prompt_index, best, row * sequences_each + best, &mut logits)
                    .context(|| format!("step {now}, prompt {prompt_index}"))?;
            }
        }
        step.finished = self.items.iter().all(|item| item.finish.is_some());
        self.scratch = scratch;
        Ok(())
    }

    fn finish(self: Box<Self>) -> SearchOutput {
        let items = self.items.into_iter().enumerate();
        let rows = items.map(|(prompt_index, Item { generated, finish, logprobs, recorded, .. })| {
            (OutputRow::new(prompt_index, generated, finish, logprobs), recorded)
        });
        let (rows, recorded) = rows.unzip();
        SearchOutput::of(&self.plan.config, rows, recorded)
    }
}
