//! Beam search and beam sampling, as in transformers since 4.50: the continuations of a prompt's beams
//! compete to be the next beams, and finished ones compete for the slots of the result.
//!
//! Each prompt has `num_beams` running beams and as many finished slots. A step takes the best `max(2, 1 +
//! eos tokens) * num_beams` continuations of all its beams, or samples as many. Of the first `num_beams`
//! ranks, those that end compete for the slots by their score, divided by a power of their length; the best
//! of the others become the next beams. A prompt is done when no running beam can be expected to beat its
//! slots.
//!
//! The best row of a prompt is emitted as far as all running beams and the best slot agree on it, the rest
//! when the prompt is done.
//!
//! Sums, quotients and the order of ties are those of float32 tensors in torch.

mod candidates;
mod catalogue;
mod constrained;
mod emitted;
mod hypotheses;
mod nodes;
mod scorer;
mod stopping;
mod trace;

use rsgen_core::{FinishReason, Result, ResultExt, RowOutputs, TokenId, memory};
use rsgen_kernels::torch_sort::topk;

use super::super::config::{Compat, EarlyStopping};
use super::super::mode::GenerationMode;
use super::super::output::{OutputRow, SearchOutput, SequenceScores};
use super::super::plan::GenerationPlan;
use super::sequences::Sequences;
use super::step_logits::{LogitsScratch, StepLogits};
use super::{Search, SearchInputs, SearchResults, SearchStep};
use candidates::Candidates;
use catalogue::CatalogueCandidates;
use emitted::{Emitted, Path};
use nodes::{Considered, NodeRecorder};
use scorer::ScorerBeamSearch;
use trace::Trace;

/// The score of a beam or hypothesis that cannot win. Finite, as in transformers, so that ties keep their
/// order.
const NEGATIVE_SCORE: f32 = -1e9;

/// The search of a plan with beams: groups, constraints and older transformers have that of transformers'
/// beam scorer.
pub(super) fn build(plan: GenerationPlan) -> Box<dyn Search> {
    let config = &plan.config;
    let has_scorer = config.fields.compat == Some(Compat::V4_49)
        || config.num_beam_groups > 1
        || config.mode == GenerationMode::ConstrainedBeamSearch;
    if has_scorer { Box::new(ScorerBeamSearch::new(plan)) } else { Box::new(BeamSearch::new(plan)) }
}

/// transformers' beam search; with a seed, its beam sampling.
struct BeamSearch {
    plan: GenerationPlan,
    sequences: Sequences,
    /// One for each prompt.
    items: Vec<Item>,
    candidates: Candidates,
    /// Finds them where only a catalogue changes scores.
    of_catalogue: Option<CatalogueCandidates>,
    /// The requested scores of each sequence.
    recorded: Vec<SequenceScores>,
    /// With `output_events`.
    nodes: Option<NodeRecorder>,
    scratch: Scratch,
}

/// The beams of a prompt.
struct Item {
    running: Vec<Beam>,
    /// One for each beam, best first.
    finished: Vec<Hypothesis>,
    /// Whether a running beam can be expected to beat a finished one. Once it is false it stays so.
    improvable: bool,
    done: bool,
    /// Of the best row.
    emitted: Emitted,
}

/// A running beam; its ids are in its sequence.
#[derive(Clone)]
struct Beam {
    /// The sum of the processed log-probabilities of its tokens.
    score: f32,
    trace: Trace,
}

/// A slot of the result.
#[derive(Clone)]
struct Hypothesis {
    /// The sum of log-probabilities, divided by the power of the length.
    score: f32,
    /// Why it ended; `None` while the slot is practically empty.
    finish: Option<FinishReason>,
    /// The generated tokens.
    tokens: Vec<TokenId>,
    trace: Trace,
}

/// A continuation of a beam.
struct Candidate {
    /// The beam, among those of its prompt.
    parent: usize,
    token: TokenId,
    /// The beam's score with that of the token.
    score: f32,
    /// The token's log-probability under the model's own logits.
    logprob: f32,
    /// The token's processed score.
    token_score: f32,
    finish: Option<FinishReason>,
}

#[derive(Default)]
struct Scratch {
    sequences: LogitsScratch,
    /// Log-probabilities before processing, if there are processors.
    raw: Vec<f32>,
    /// The ids of all candidates.
    ids: Vec<Vec<TokenId>>,
}

/// The candidates of a prompt.
struct Drawn {
    prompt_index: usize,
    candidates: Vec<Candidate>,
}

impl BeamSearch {
    /// The search of a plan; samples if the plan has a seed.
    fn new(plan: GenerationPlan) -> Self {
        let num_beams = plan.config.num_beams;
        let sequences = Sequences::new(&plan, num_beams, RowOutputs::LOGITS);
        let beam = |index| Beam {
            // In the first step all beams are equal, so only one competes.
            score: if index == 0 { 0.0 } else { NEGATIVE_SCORE },
            trace: Trace::default(),
        };
        let empty =
            Hypothesis { score: NEGATIVE_SCORE, finish: None, tokens: Vec::new(), trace: Trace::default() };
        let items = plan.prompts.iter().map(|_| Item {
            running: (0..num_beams).map(beam).collect(),
            finished: vec![empty.clone(); num_beams],
            improvable: true,
            done: false,
            emitted: Emitted::default(),
        });
        Self {
            items: items.collect(),
            candidates: Candidates::new(&plan.config),
            of_catalogue: CatalogueCandidates::of(&plan),
            recorded: vec![SequenceScores::of(&plan.config); sequences.len()],
            nodes: NodeRecorder::new(&plan),
            scratch: Scratch::default(),
            sequences,
            plan,
        }
    }

    /// Lets the candidates of a prompt compete for the slots of the result.
    fn finish_candidates(&self, prompt_index: usize, candidates: &[Candidate]) -> Result<Vec<Hypothesis>> {
        let (plan, item) = (&self.plan, &self.items[prompt_index]);
        let first_sequence = prompt_index * plan.config.num_beams;
        let generated = self.sequences.tokens(first_sequence).len() + 1;
        let divisor = length_divisor(generated, plan.config.length_penalty);
        let closed =
            !item.improvable || (plan.config.early_stopping == EarlyStopping::True && item.is_full());
        let ends =
            |rank: usize, candidate: &Candidate| rank < plan.config.num_beams && candidate.finish.is_some();

        let mut scores: Vec<f32> = item.finished.iter().map(|hypothesis| hypothesis.score).collect();
        for (rank, candidate) in candidates.iter().enumerate() {
            let mut score = candidate.score / divisor;
            if closed {
                score += NEGATIVE_SCORE;
            }
            if !ends(rank, candidate) {
                score += NEGATIVE_SCORE;
            }
            scores.push(score);
        }
        let best =
            topk(plan.config.isa, &scores, plan.config.num_beams)?.into_iter().map(|index| index as usize);
        let hypotheses = best.map(|index| {
            let Some(rank) = index.checked_sub(item.finished.len()) else {
                return item.finished[index].clone();
            };
            let candidate = &candidates[rank];
            let mut tokens = self.sequences.tokens(first_sequence + candidate.parent).to_vec();
            tokens.push(candidate.token);
            Hypothesis {
                score: scores[index],
                finish: candidate.finish.filter(|_| ends(rank, candidate)),
                tokens,
                trace: candidate.trace(&item.running, first_sequence),
            }
        });
        Ok(hypotheses.collect())
    }

    /// Takes the best candidates that have not ended as the beams of the next step. Returns their ranks.
    fn continue_beams(&mut self, prompt_index: usize, candidates: &[Candidate]) -> Result<Vec<usize>> {
        let num_beams = self.plan.config.num_beams;
        let first_sequence = prompt_index * num_beams;
        // Finished candidates stay, with a score that cannot win, in case nothing else is left.
        let scores: Vec<f32> = candidates
            .iter()
            .map(|candidate| candidate.score + if candidate.finish.is_some() { NEGATIVE_SCORE } else { 0.0 })
            .collect();
        let next: Vec<usize> =
            topk(self.plan.config.isa, &scores, num_beams)?.into_iter().map(|rank| rank as usize).collect();
        let item = &mut self.items[prompt_index];
        let beam = |&rank: &usize| {
            let trace = candidates[rank].trace(&item.running, first_sequence);
            Beam { score: scores[rank], trace }
        };
        item.running = next.iter().map(beam).collect();
        self.sequences.reorder(prompt_index, next.iter().map(|&rank| candidates[rank].parent).collect());
        for (beam, &rank) in next.iter().enumerate() {
            self.sequences.push(first_sequence + beam, candidates[rank].token);
        }
        Ok(next)
    }

    /// Records what a step of a prompt has considered. `next` are the ranks of the beams that go on.
    fn record_nodes(&mut self, prompt_index: usize, candidates: &[Candidate], next: &[usize]) {
        let Some(nodes) = &mut self.nodes else { return };
        let (plan, first_sequence) = (&self.plan, prompt_index * self.plan.config.num_beams);
        let generated = self.sequences.tokens(first_sequence).len();
        for (rank, candidate) in candidates.iter().enumerate() {
            let &Candidate { parent, token, score, token_score, finish, .. } = candidate;
            let considered = Considered {
                beam: first_sequence + parent,
                token,
                logprob: token_score,
                sum: score,
                score: score / length_divisor(generated, plan.config.length_penalty),
                group: 0,
                ends: rank < plan.config.num_beams && finish.is_some(),
            };
            nodes.consider(prompt_index, considered);
        }
        let next =
            next.iter().map(|&rank| (first_sequence + candidates[rank].parent, candidates[rank].token));
        nodes.advance(prompt_index, generated - 1, next.map(Some));
    }

    /// Processes the scores, and draws the candidates of all prompts. `raw` is scratch memory.
    fn draw_processed(&mut self, logits: &mut StepLogits<'_>, raw: &mut Vec<f32>) -> Result<Vec<Drawn>> {
        let (vocab_size, now) = (self.plan.config.vocab_size, self.sequences.step() - 1);
        logits.normalize(vocab_size);
        if !self.plan.processors.is_empty() {
            memory::extend(raw, &logits.scores, "logits")?;
            self.sequences.process(&self.plan, logits)?;
        }
        for (&sequence, row) in logits.sequences.iter().zip(logits.scores.chunks_exact(vocab_size)) {
            self.recorded[sequence].keep_scores(row)?;
        }
        let processed = &*logits.scores;
        let before = if raw.is_empty() { processed } else { &raw[..] };
        let width = self.plan.config.num_beams * vocab_size;
        let (mut rows, mut drawn) = (0.., Vec::new());
        for prompt_index in 0..self.items.len() {
            if self.items[prompt_index].done {
                self.candidates.skip(width);
                continue;
            }
            let start = rows.next().unwrap_or(0) * width;
            let (processed, before) = (&processed[start..start + width], &before[start..start + width]);
            let candidates = self.draw(prompt_index, processed, before);
            drawn.push(candidates.context(|| format!("step {now}, prompt {prompt_index}"))?);
        }
        Ok(drawn)
    }

    /// Draws the candidates of a prompt. `processed` are the processed scores of its beams,
    /// `[num_beams, vocab_size]`, `raw` their log-probabilities before.
    fn draw(&mut self, prompt_index: usize, processed: &[f32], raw: &[f32]) -> Result<Drawn> {
        let vocab_size = self.plan.config.vocab_size;
        let beams = self.items[prompt_index].running.iter().map(|beam| beam.score);
        let candidates = self.candidates.of(&self.plan.config, processed, beams)?;
        let candidate = |(index, score): (usize, f32)| {
            let (parent, token) = (index / vocab_size, TokenId((index % vocab_size) as u32));
            let (logprob, token_score) = (raw[index], processed[index]);
            Candidate { parent, token, score, logprob, token_score, finish: None }
        };
        Ok(Drawn { prompt_index, candidates: candidates.into_iter().map(candidate).collect() })
    }

    /// Continues the beams of a prompt by its candidates.
    fn advance_item(&mut self, drawn: Drawn, step: &mut SearchStep) -> Result<()> {
        let (num_beams, Drawn { prompt_index, candidates }) = (self.plan.config.num_beams, drawn);
        self.items[prompt_index].finished = self.finish_candidates(prompt_index, &candidates)?;
        let next = self.continue_beams(prompt_index, &candidates)?;

        let generated = self.sequences.tokens(prompt_index * num_beams).len();
        let item = &mut self.items[prompt_index];
        item.improvable &= item.can_improve(&self.plan, generated);
        let full = self.plan.config.early_stopping == EarlyStopping::True && item.is_full();
        item.done = !item.improvable || full || candidates.iter().all(|candidate| candidate.finish.is_some());
        if item.done {
            for sequence in prompt_index * num_beams..(prompt_index + 1) * num_beams {
                self.sequences.end(sequence);
            }
        }
        let next = if item.done { &[] } else { &next[..] };
        self.record_nodes(prompt_index, &candidates, next);
        self.emit(prompt_index, step)
    }

    /// Emits what no later step can change: the rows of a prompt that is done, or what all that may become
    /// its best row agree on. That is the best slot, those that equal it, and what continues a running beam.
    fn emit(&mut self, prompt_index: usize, step: &mut SearchStep) -> Result<()> {
        let (plan, item, recorded) = (&self.plan, &mut self.items[prompt_index], &self.recorded[..]);
        let first_row = prompt_index * plan.config.num_return_sequences;
        if item.done {
            let mut emitted = item.emitted;
            for (row, best) in (first_row..).zip(item.best(prompt_index, &self.sequences, plan)) {
                let reason = best.finish.unwrap_or(FinishReason::Length);
                let path = Path { tokens: &best.tokens, trace: &best.trace, recorded };
                emitted.end(row, path, reason, step)?;
                emitted = Emitted::default();
            }
            return Ok(());
        }
        // The last token of a slot waits for the finish reason that it carries.
        let mut finished = item.finished.iter().filter(|slot| slot.finish.is_some()).peekable();
        let best = finished.peek().map_or(f32::INFINITY, |slot| slot.score);
        let finished = finished.take_while(|slot| slot.score >= best || best.is_nan()).map(|slot| Path {
            tokens: &slot.tokens[..slot.tokens.len() - 1],
            trace: &slot.trace,
            recorded,
        });
        // Draws are from what is possible, so an impossible beam is never the best.
        let possible = |beam: &Beam| !self.candidates.are_drawn() || beam.score > f32::NEG_INFINITY;
        let first_sequence = prompt_index * plan.config.num_beams;
        let running = (first_sequence..).zip(&item.running).filter(|(_, beam)| possible(beam));
        let running = running.map(|(sequence, beam)| Path {
            tokens: self.sequences.tokens(sequence),
            trace: &beam.trace,
            recorded,
        });
        item.emitted.agree(first_row, &running.chain(finished).collect::<Vec<_>>(), step)
    }
}

impl Candidate {
    /// The trace of its sequence. `running` are the beams of its prompt, from `first_sequence` on.
    fn trace(&self, running: &[Beam], first_sequence: usize) -> Trace {
        running[self.parent].trace.with(first_sequence + self.parent, self.logprob, self.token_score)
    }
}

impl Item {
    fn is_full(&self) -> bool {
        self.finished.iter().all(|hypothesis| hypothesis.finish.is_some())
    }

    /// Whether the best running beam could still beat a slot if it ended at its best length.
    fn can_improve(&self, plan: &GenerationPlan, generated: usize) -> bool {
        let length = if plan.config.early_stopping == EarlyStopping::Never && plan.config.length_penalty > 0.0
        {
            plan.config.max_length - plan.config.prompt_len
        } else {
            generated
        };
        let best = self.running[0].score / length_divisor(length, plan.config.length_penalty);
        let worst = self.finished.iter().map(|hypothesis| hypothesis.score).fold(f32::INFINITY, f32::min);
        self.finished
            .iter()
            .any(|hypothesis| best > if hypothesis.finish.is_some() { worst } else { NEGATIVE_SCORE })
    }

    /// The best rows so far: finished ones first, then running ones.
    fn best(&self, prompt_index: usize, sequences: &Sequences, plan: &GenerationPlan) -> Vec<Hypothesis> {
        let tokens = |beam| sequences.tokens(prompt_index * plan.config.num_beams + beam);
        let finished = self.finished.iter().filter(|slot| self.done || slot.finish.is_some()).cloned();
        let running = self.running.iter().enumerate().map(|(beam, Beam { score, trace })| Hypothesis {
            score: *score,
            finish: None,
            tokens: tokens(beam).to_vec(),
            trace: trace.clone(),
        });
        let mut best: Vec<Hypothesis> = finished.chain(running).collect();
        if best[0].finish.is_none() {
            // Nothing has finished and every beam has become impossible: the slot may hold outdated tokens.
            // The emitted tokens stay, and every running beam goes on from them.
            let emitted = &tokens(0)[..self.emitted.len()];
            let goes_on = |tokens: &[TokenId]| tokens.len() > emitted.len() && tokens.starts_with(emitted);
            let first = best.iter().position(|best| emitted.is_empty() || goes_on(&best.tokens));
            best[..=first.unwrap_or(0)].rotate_right(1);
        }
        best.truncate(plan.config.num_return_sequences);
        best
    }
}

/// The divisor of a sequence's score.
fn length_divisor(generated: usize, length_penalty: f64) -> f32 {
    (generated as f64).powf(length_penalty) as f32
}

impl Search for BeamSearch {
    fn wants(&mut self, inputs: &mut SearchInputs) {
        self.sequences.wants(&self.plan, inputs);
    }

    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()> {
        let now = self.sequences.step();
        let mut logits_scratch = std::mem::take(&mut self.scratch.sequences);
        let mut raw = std::mem::take(&mut self.scratch.raw);
        raw.clear();
        let mut logits = self.sequences.logits(&self.plan, results, &mut logits_scratch)?;
        logits.keep(&self.plan, &mut self.recorded)?;
        let mut drawn = match self.draw_allowed(&logits)? {
            Some(drawn) => drawn,
            None => self.draw_processed(&mut logits, &mut raw)?,
        };
        self.check_stopping(&mut drawn, &logits.scores).context(|| format!("step {now}"))?;
        for drawn in drawn {
            let prompt_index = drawn.prompt_index;
            self.advance_item(drawn, step).context(|| format!("step {now}, prompt {prompt_index}"))?;
        }
        (self.scratch.sequences, self.scratch.raw) = (logits_scratch, raw);
        step.details.beams.extend(self.nodes.iter_mut().flat_map(|nodes| nodes.drain(false)));
        step.finished = self.items.iter().all(|item| item.done);
        Ok(())
    }

    fn sums(&mut self) -> Option<&mut Vec<f32>> {
        Some(&mut self.candidates.accumulated)
    }

    fn finish(self: Box<Self>) -> SearchOutput {
        let Self { plan, sequences, items, recorded, .. } = *self;
        let rows = items.iter().enumerate().flat_map(|(prompt_index, item)| {
            let reason = if item.done { FinishReason::Length } else { FinishReason::Cancelled };
            item.best(prompt_index, &sequences, &plan).into_iter().map(move |best| OutputRow {
                prompt_index,
                token_ids: best.tokens,
                finish_reason: best.finish.unwrap_or(reason),
                logprobs: best.trace.logprobs(),
                score: Some(best.score),
                beam_indices: best.trace.beam_indices(),
            })
        });
        SearchOutput::of(&plan.config, rows.collect(), recorded)
    }
}
