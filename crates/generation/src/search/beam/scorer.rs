//! transformers' older beam searches, built around `BeamSearchScorer`: group (diverse) beam search,
//! constrained beam search, and beam search and sampling up to 4.49.
//!
//! The beams of a prompt form groups, usually one. A step processes the groups in order. It visits the best
//! continuations of a group's beams by rank: those that end with an end-of-sequence token go to the group's
//! list of hypotheses, the first others become the next beams. A group is done when its list is final. Other
//! criteria stop all prompts together, when every running beam meets one.

use rsgen_core::{Error, FinishReason, Result, ResultExt, RowOutputs, TokenId, memory, message};
use rsgen_kernels::torch_sort::descending_order;

use super::super::super::config::Compat;
use super::super::super::constraint::ConstraintListState;
use super::super::super::output::{OutputRow, SearchOutput, SequenceScores};
use super::super::super::plan::GenerationPlan;
use super::super::super::stopping::StopContext;
use super::super::sequences::{Group as BeamGroup, Sequences};
use super::super::step_logits::{LogitsScratch, StepLogits};
use super::super::{Search, SearchInputs, SearchResults, SearchStep};
use super::candidates::{Candidates, Continuation};
use super::constrained::prefer_progress;
use super::emitted::{Emitted, Path};
use super::hypotheses::{Hypotheses, Hypothesis, Rules};
use super::nodes::NodeRecorder;
use super::trace::Trace;
use super::{NEGATIVE_SCORE, length_divisor};

/// transformers' older beam searches; the plan selects one.
pub(super) struct ScorerBeamSearch {
    plan: GenerationPlan,
    sequences: Sequences,
    /// One for each prompt.
    items: Vec<Item>,
    candidates: Candidates,
    recorded: Vec<SequenceScores>,
    /// The rows, once the search has ended by itself.
    finished: Option<Vec<OutputRow>>,
    /// For each sequence, at the end, whether it fulfils the constraints.
    fulfilled: Vec<bool>,
    /// With `output_events`.
    nodes: Option<NodeRecorder>,
    raw: Vec<f32>,
    scratch: LogitsScratch,
}

/// The beams of a prompt.
struct Item {
    running: Vec<Beam>,
    groups: Vec<Group>,
    /// Of the best row.
    emitted: Emitted,
}

#[derive(Clone)]
struct Beam {
    /// The sum of the processed log-probabilities of its tokens.
    score: f32,
    trace: Trace,
    /// The criterion that it meets, if any.
    finish: Option<FinishReason>,
}

struct Group {
    hypotheses: Hypotheses,
    done: bool,
}

impl ScorerBeamSearch {
    /// The search of a plan.
    pub(super) fn new(plan: GenerationPlan) -> Self {
        let sequences = Sequences::new(&plan, plan.config.num_beams, RowOutputs::LOGITS);
        let group_size = plan.config.num_beams / plan.config.num_beam_groups;
        let rules = Rules {
            capacity: group_size,
            length_penalty: plan.config.length_penalty,
            early_stopping: plan.config.early_stopping,
            most_tokens: plan.config.max_length - plan.config.prompt_len,
        };
        let beam = |index: usize| Beam {
            score: if index.is_multiple_of(group_size) { 0.0 } else { NEGATIVE_SCORE },
            trace: Trace::default(),
            finish: None,
        };
        let items = plan.prompts.iter().map(|_| Item {
            running: (0..plan.config.num_beams).map(beam).collect(),
            groups: (0..plan.config.num_beam_groups)
                .map(|_| Group { hypotheses: Hypotheses::new(rules), done: false })
                .collect(),
            emitted: Emitted::default(),
        });
        Self {
            items: items.collect(),
            candidates: Candidates::new(&plan.config),
            recorded: vec![SequenceScores::of(&plan.config); sequences.len()],
            finished: None,
            fulfilled: Vec::new(),
            nodes: NodeRecorder::new(&plan),
            raw: Vec::new(),
            scratch: LogitsScratch::default(),
            sequences,
            plan,
        }
    }

    fn group_size(&self) -> usize {
        self.plan.config.num_beams / self.plan.config.num_beam_groups
    }

    /// One step of one group. `processed` are the processed scores of its beams, `[group_size, vocab_size]`,
    /// `raw` their log-probabilities before processing. Returns the group's next beams.
    fn advance_group(
        &mut self,
        prompt_index: usize,
        group_index: usize,
        processed: &[f32],
        raw: &[f32],
    ) -> Result<Vec<Continuation>> {
        let (vocab_size, group_size) = (self.plan.config.vocab_size, self.group_size());
        let first_beam = group_index * group_size;
        let first_sequence = prompt_index * self.plan.config.num_beams + first_beam;
        let running = &self.items[prompt_index].running[first_beam..first_beam + group_size];
        let beams = running.iter().map(|beam| beam.score);
        let mut candidates = self.candidates.of(&self.plan.config, processed, beams)?;
        if self.candidates.are_drawn() {
            let scores: Vec<f32> = candidates.iter().map(|&(_, score)| score).collect();
            candidates =
                descending_order(&scores).into_iter().map(|rank| candidates[rank as usize]).collect();
        }
        let generated = self.sequences.tokens(first_sequence).len() + 1;

        let mut next: Vec<Continuation> = Vec::with_capacity(group_size);
        let mut ended = Vec::new();
        for (rank, &(index, score)) in candidates.iter().enumerate() {
            let (parent, token) = (index / vocab_size, TokenId((index % vocab_size) as u32));
            if !self.plan.config.eos_token_ids.contains(&token) {
                next.push(Continuation { parent, token, score });
                if next.len() == group_size {
                    break;
                }
                continue;
            }
            if rank >= group_size {
                continue;
            }
            let ids = &self.sequences.sequence(first_sequence + parent).ids;
            if self.fulfils(ids)? {
                let item = &mut self.items[prompt_index];
                let trace = &item.running[first_beam + parent].trace;
                item.groups[group_index].hypotheses.add(
                    score,
                    generated,
                    ids[self.plan.config.prompt_len..].to_vec(),
                    trace.with(first_sequence + parent, raw[index], processed[index]),
                    FinishReason::Eos,
                );
                ended.push(index);
            }
        }
        if next.len() < group_size {
            return Err(Error::config(message!(
                "a beam search of {group_size} beams needs as many tokens besides " {eos_token_id} " in each \
                 step, but the vocabulary of {vocab_size} has fewer; set fewer beams"
            )));
        }
        if !self.plan.config.constraints.is_empty() {
            let rows: Vec<&[TokenId]> =
                (0..group_size).map(|beam| &self.sequences.sequence(first_sequence + beam).ids[..]).collect();
            let accumulated = &self.candidates.accumulated;
            let copies_share = self.plan.config.fields.compat == Some(Compat::V4_49);
            prefer_progress(&self.plan.config.constraints, &rows, accumulated, &mut next, copies_share)?;
        }
        if let Some(nodes) = &mut self.nodes {
            let index = |next: &Continuation| (next.parent * vocab_size + next.token.index(), next.score);
            let considered = candidates.iter().copied().chain(next.iter().map(index));
            let divisor = length_divisor(generated, self.plan.config.length_penalty);
            nodes.consider_group(
                (prompt_index, group_index),
                first_sequence,
                processed,
                considered,
                &ended,
                divisor,
            );
        }
        let best = candidates.iter().map(|&(_, score)| score).fold(f32::NEG_INFINITY, f32::max);
        let group = &mut self.items[prompt_index].groups[group_index];
        group.done = group.hypotheses.is_done(best, generated);
        Ok(next)
    }

    /// Whether a sequence fulfils the constraints.
    fn fulfils(&self, ids: &[TokenId]) -> Result<bool> {
        Ok(self.plan.config.constraints.is_empty()
            || ConstraintListState::after(&self.plan.config.constraints, ids)?.is_completed())
    }

    /// One step of all groups of all prompts.
    fn advance_groups(&mut self, logits: &mut StepLogits<'_>, raw: &[f32]) -> Result<()> {
        let (vocab_size, group_size) = (self.plan.config.vocab_size, self.group_size());
        let num_beams = self.plan.config.num_beams;
        let mut next: Vec<Option<Continuation>> = vec![None; self.sequences.len()];
        let mut current_tokens = vec![TokenId(0); self.sequences.len()];
        let pad = self.plan.config.pad_token_id.unwrap_or_default();
        for group_index in 0..self.plan.config.num_beam_groups {
            for prompt_index in 0..self.items.len() {
                let first_sequence = prompt_index * num_beams + group_index * group_size;
                let sequences = first_sequence..first_sequence + group_size;
                if self.items[prompt_index].groups[group_index].done {
                    // To the other groups a finished group generates padding. It still consumes random
                    // numbers.
                    current_tokens[sequences].fill(pad);
                    self.candidates.skip(group_size * vocab_size);
                    continue;
                }
                let Ok(row) = logits.sequences.binary_search(&first_sequence) else {
                    return Err(Error::internal("a running beam was not computed"));
                };
                let group = BeamGroup { index: group_index, current_tokens: &current_tokens };
                self.sequences.process_some(&self.plan, logits, row..row + group_size, group)?;
                let rows = row * vocab_size..(row + group_size) * vocab_size;
                let processed = &logits.scores[rows.clone()];
                for (sequence, row) in sequences.clone().zip(processed.chunks_exact(vocab_size)) {
                    self.recorded[sequence].keep_scores(row)?;
                }
                let beams = self.advance_group(prompt_index, group_index, processed, &raw[rows.clone()])?;
                for (sequence, beam) in sequences.zip(beams) {
                    current_tokens[sequence] = beam.token;
                    next[sequence] = Some(beam);
                }
            }
        }
        let mut rows = Vec::new();
        for (prompt_index, next) in next.chunks_exact(num_beams).enumerate() {
            rows.extend(self.continue_beams(prompt_index, next, logits, raw));
        }
        let config = &self.plan.config;
        let context = |&(sequence, row): &(usize, usize)| StopContext {
            input_ids: &self.sequences.sequence(sequence).ids,
            prompt_len: config.prompt_len,
            prompt_index: sequence / num_beams,
            row_index: sequence,
            scores: &logits.scores[row * vocab_size..][..vocab_size],
            isa: config.isa,
            has_ended: false,
        };
        let is_new = |sequence: &usize| rows.iter().any(|(row, _)| row == sequence);
        let ended = (0..self.items.len() * num_beams).filter(|sequence| !is_new(sequence));
        let ended = ended
            .map(|sequence| (sequence / num_beams, sequence, &self.sequences.sequence(sequence).ids[..]));
        let contexts: Vec<_> = rows.iter().map(context).collect();
        let finishes = self.plan.should_stop_rows(&contexts, ended, |row| row.row_index)?;
        for ((sequence, _), finish) in rows.into_iter().zip(finishes) {
            self.items[sequence / num_beams].running[sequence % num_beams].finish = finish;
        }
        Ok(())
    }

    /// Takes the next beams of a prompt; `None` for beams of finished groups. Returns the sequences that have
    /// a new token, with the rows of the scores that it was chosen from.
    fn continue_beams(
        &mut self,
        prompt_index: usize,
        next: &[Option<Continuation>],
        logits: &StepLogits<'_>,
        raw: &[f32],
    ) -> Vec<(usize, usize)> {
        let (vocab_size, group_size) = (self.plan.config.vocab_size, self.group_size());
        let first_sequence = prompt_index * self.plan.config.num_beams;
        let before = self.items[prompt_index].running.clone();
        let mut parents: Vec<usize> = (0..next.len()).collect();
        for (beam, continuation) in next.iter().enumerate() {
            let Some(Continuation { parent, token, score }) = continuation else { continue };
            let parent = beam / group_size * group_size + parent;
            parents[beam] = parent;
            let row = logits.sequences.binary_search(&(first_sequence + parent)).unwrap_or_default();
            let index = row * vocab_size + token.index();
            self.items[prompt_index].running[beam] = Beam {
                score: *score,
                trace: before[parent].trace.with(first_sequence + parent, raw[index], logits.scores[index]),
                finish: None,
            };
        }
        self.sequences.reorder(prompt_index, parents.clone());
        let mut rows = Vec::new();
        for (beam, continuation) in next.iter().enumerate() {
            let Some(continuation) = continuation else { continue };
            self.sequences.push(first_sequence + beam, continuation.token);
            if self.items[prompt_index].groups[beam / group_size].done {
                self.sequences.end(first_sequence + beam);
                continue;
            }
            let row = logits.sequences.binary_search(&(first_sequence + parents[beam])).unwrap_or_default();
            rows.push((first_sequence + beam, row));
        }
        if let Some(nodes) = &mut self.nodes {
            let groups = &self.items[prompt_index].groups;
            let next = next.iter().zip(&parents).enumerate().map(|(beam, (continuation, parent))| {
                let continuation = continuation.as_ref().filter(|_| !groups[beam / group_size].done)?;
                Some((first_sequence + parent, continuation.token))
            });
            nodes.advance(prompt_index, self.sequences.step() - 1, next);
        }
        rows
    }

    /// Whether every group is done, or every beam that still runs meets a criterion.
    fn is_finished(&self) -> bool {
        let group_size = self.group_size();
        self.items.iter().all(|item| {
            let beams = item.running.chunks_exact(group_size).zip(&item.groups);
            beams
                .into_iter()
                .all(|(beams, group)| group.done || beams.iter().all(|beam| beam.finish.is_some()))
        })
    }

    /// Checks the constraints of the running beams. Done before `finish`, which cannot return an error.
    fn check_fulfilled(&mut self) -> Result<()> {
        self.fulfilled = (0..self.sequences.len())
            .map(|sequence| self.fulfils(&self.sequences.sequence(sequence).ids))
            .collect::<Result<_>>()?;
        Ok(())
    }

    /// Emits what all hypotheses and running beams that may become the best row of a prompt agree on. Of the
    /// hypotheses those with the highest score: it is never lost. None of them holds its end-of-sequence
    /// token, which its row gets at the end.
    fn emit(&mut self, prompt_index: usize, step: &mut SearchStep) -> Result<()> {
        let (plan, group_size, recorded) = (&self.plan, self.group_size(), &self.recorded[..]);
        let Item { running, groups, emitted } = &mut self.items[prompt_index];
        let all = || groups.iter().flat_map(|group| group.hypotheses.iter());
        let highest = all().map(|hypothesis| hypothesis.score).max_by(f64::total_cmp);
        let finished =
            all().filter(|hypothesis| highest.is_some_and(|best| hypothesis.score.total_cmp(&best).is_eq()));
        let finished = finished.map(|found| Path { tokens: &found.tokens, trace: &found.trace, recorded });
        let running = running.iter().enumerate().filter(|(beam, _)| !groups[beam / group_size].done);
        let running = running.map(|(beam, Beam { trace, .. })| Path {
            tokens: self.sequences.tokens(prompt_index * plan.config.num_beams + beam),
            trace,
            recorded,
        });
        let paths: Vec<_> = running.chain(finished).collect();
        emitted.agree(prompt_index * plan.config.num_return_sequences, &paths, step)
    }

    /// The best hypotheses of a prompt, running beams included. `finished` tells whether the search ended by
    /// itself.
    fn best(&self, prompt_index: usize, item: &Item, finished: bool) -> Vec<Hypothesis> {
        let (plan, group_size) = (&self.plan, self.group_size());
        let mut all: Vec<Hypothesis> = Vec::new();
        for (group_index, group) in item.groups.iter().enumerate() {
            let mut hypotheses = group.hypotheses.clone();
            if !group.done {
                let beams = group_index * group_size..(group_index + 1) * group_size;
                let sequence = |beam: usize| prompt_index * plan.config.num_beams + beam;
                // A cancelled search has not checked its constraints: it returns the running beams as they
                // are.
                let fulfils = |beam: usize| self.fulfilled.get(sequence(beam));
                let fulfilled: Vec<bool> =
                    beams.clone().map(|beam| fulfils(beam).copied().unwrap_or(true)).collect();
                let enough = fulfilled.iter().filter(|&&fulfilled| fulfilled).count()
                    >= plan.config.num_return_sequences;
                // If too few fulfil the constraints, the others are results too.
                for wanted in [true, false] {
                    for (beam, &fulfilled) in beams.clone().zip(&fulfilled) {
                        if fulfilled != wanted || (!wanted && enough) {
                            continue;
                        }
                        let Beam { score, trace, finish } = item.running[beam].clone();
                        let tokens = self.sequences.tokens(sequence(beam)).to_vec();
                        let reason = finish.filter(|_| finished).unwrap_or(FinishReason::Cancelled);
                        hypotheses.add(score, tokens.len().max(1), tokens, trace, reason);
                    }
                }
            }
            all.extend(hypotheses.into_vec());
        }
        // Of equal scores, the one that was added last comes first.
        all.sort_by(|a, b| a.score.total_cmp(&b.score));
        all.reverse();
        all.truncate(plan.config.num_return_sequences);
        all
    }

    /// The rows, those of each prompt in turn. Those of a search that ended by itself are emitted to `ended`.
    fn rows(&self, mut ended: Option<&mut SearchStep>) -> Result<Vec<OutputRow>> {
        let plan = &self.plan;
        let of_items = self.items.iter().enumerate();
        let best: Vec<_> =
            of_items.map(|(prompt_index, item)| self.best(prompt_index, item, ended.is_some())).collect();
        let longest = best.iter().flatten().map(|hypothesis| hypothesis.tokens.len()).max().unwrap_or(0);
        let width = (longest + 1).min(plan.config.max_length - plan.config.prompt_len);
        let mut rows = Vec::new();
        for (prompt_index, hypotheses) in best.into_iter().enumerate() {
            let mut emitted = self.items[prompt_index].emitted;
            for Hypothesis { score, mut tokens, trace, finish } in hypotheses {
                if let Some(step) = &mut ended {
                    if let Some(&eos) = plan.config.eos_token_ids.first()
                        && tokens.len() < width
                    {
                        tokens.push(eos);
                    }
                    let path = Path { tokens: &tokens, trace: &trace, recorded: &self.recorded };
                    emitted.end(rows.len(), path, finish, step)?;
                    emitted = Emitted::default();
                }
                let mut logprobs = trace.logprobs();
                logprobs.resize(tokens.len(), f32::NAN);
                rows.push(OutputRow {
                    prompt_index,
                    token_ids: tokens,
                    finish_reason: finish,
                    logprobs,
                    score: Some(score as f32),
                    beam_indices: trace.beam_indices(),
                });
            }
        }
        Ok(rows)
    }
}

impl Search for ScorerBeamSearch {
    fn wants(&mut self, inputs: &mut SearchInputs) {
        self.sequences.wants(&self.plan, inputs);
    }

    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()> {
        let (vocab_size, now) = (self.plan.config.vocab_size, self.sequences.step());
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut logits = self.sequences.logits(&self.plan, results, &mut scratch)?;
        logits.keep(&self.plan, &mut self.recorded)?;
        logits.normalize(vocab_size);
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        memory::extend(&mut raw, &logits.scores, "logits")?;
        self.advance_groups(&mut logits, &raw).context(|| format!("step {now}"))?;
        (self.raw, self.scratch) = (raw, scratch);
        step.finished = self.is_finished();
        if step.finished {
            self.check_fulfilled()?;
            self.finished = Some(self.rows(Some(step))?);
        } else {
            (0..self.items.len()).try_for_each(|prompt_index| self.emit(prompt_index, step))?;
        }
        step.details.beams.extend(self.nodes.iter_mut().flat_map(|nodes| nodes.drain(step.finished)));
        Ok(())
    }

    fn sums(&mut self) -> Option<&mut Vec<f32>> {
        Some(&mut self.candidates.accumulated)
    }

    fn finish(mut self: Box<Self>) -> SearchOutput {
        // Only what is emitted can fail.
        let rows = self.finished.take().unwrap_or_else(|| self.rows(None).unwrap_or_default());
        SearchOutput::of(&self.plan.config, rows, self.recorded)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::plan::PlanContext;
    use super::super::super::tests::{config, rows, single, table};
    use super::super::BeamSearch;
    use super::*;
    use crate::tests::{ScriptedModel, run};

    #[test]
    fn where_nothing_ends_its_beams_are_those_of_the_newer_beam_search() {
        let config = config().num_beams(3).num_return_sequences(3).max_new_tokens(6);
        let plan = || GenerationPlan::new(&config, single(&[3, 5]), &PlanContext::new(12, 64)).unwrap();
        let found =
            |search: Box<dyn Search>| rows(&run(search, &mut ScriptedModel::bigram(table())).unwrap());
        let newer = found(Box::new(BeamSearch::new(plan())));
        assert_eq!(found(Box::new(ScorerBeamSearch::new(plan()))), newer);
    }
}
