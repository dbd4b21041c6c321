//! Numbers the continuations that a beam search considers as nodes of a tree, for events.

use rsgen_core::TokenId;

use super::super::super::plan::GenerationPlan;
use super::super::details::{BeamNode, BeamState, Beams};
use super::NEGATIVE_SCORE;

/// The nodes of a request.
pub(super) struct NodeRecorder {
    /// The sum of log-probabilities of each node, by number.
    sums: Vec<f32>,
    /// The newest node of each sequence; `None` for the prompt alone.
    newest: Vec<Option<u32>>,
    num_beams: usize,
    vocab_size: usize,
    /// For each prompt what the step has considered so far.
    considered: Vec<Vec<Considered>>,
    steps: Vec<Beams>,
}

/// A continuation that a step considers.
#[derive(Clone, Copy)]
pub(super) struct Considered {
    /// The sequence that it continues.
    pub(super) beam: usize,
    pub(super) token: TokenId,
    /// The processed log-probability of the token.
    pub(super) logprob: f32,
    /// The sum that it competes with; hopeless when it cannot win.
    pub(super) sum: f32,
    /// The sum, divided by the power of the length.
    pub(super) score: f32,
    pub(super) group: usize,
    /// Whether it ends and competes to be a result.
    pub(super) ends: bool,
}

impl NodeRecorder {
    /// A recorder for the plan's beams; `None` unless it asks for events.
    pub(super) fn new(plan: &GenerationPlan) -> Option<Self> {
        plan.config.output_events.then(|| Self {
            sums: Vec::new(),
            newest: vec![None; plan.prompts.len() * plan.config.num_beams],
            num_beams: plan.config.num_beams,
            vocab_size: plan.config.vocab_size,
            considered: vec![Vec::new(); plan.prompts.len()],
            steps: Vec::new(),
        })
    }

    /// Adds a continuation of a prompt's beams, unless it is known.
    pub(super) fn consider(&mut self, prompt_index: usize, new: Considered) {
        let considered = &mut self.considered[prompt_index];
        if considered.iter().all(|known| (known.beam, known.token) != (new.beam, new.token)) {
            considered.push(new);
        }
    }

    /// Adds continuations of the beams of a group. Each is an index into `processed`, `[group_size,
    /// vocab_size]`, and its sum, which `divisor` makes its score; those in `ended` end.
    pub(super) fn consider_group(
        &mut self,
        (prompt_index, group): (usize, usize),
        first_sequence: usize,
        processed: &[f32],
        continuations: impl Iterator<Item = (usize, f32)>,
        ended: &[usize],
        divisor: f32,
    ) {
        for (index, sum) in continuations {
            let considered = Considered {
                beam: first_sequence + index / self.vocab_size,
                token: TokenId((index % self.vocab_size) as u32),
                logprob: processed[index],
                sum,
                score: sum / divisor,
                group,
                ends: ended.contains(&index),
            };
            self.consider(prompt_index, considered);
        }
    }

    /// Ends the step of a prompt. `next` is for each of its beams the sequence and the token that it
    /// continues with, the best first; `None` for a beam that does not go on.
    pub(super) fn advance(
        &mut self,
        prompt_index: usize,
        step: usize,
        next: impl Iterator<Item = Option<(usize, TokenId)>>,
    ) {
        let next: Vec<_> = next.collect();
        let considered = std::mem::take(&mut self.considered[prompt_index]);
        let first = prompt_index * self.num_beams;
        let mut new = Beams { prompt: prompt_index, step, nodes: Vec::new(), frontier: Vec::new() };
        let mut newest = vec![None; self.num_beams];
        for Considered { beam, token, logprob, sum, score, group, ends } in considered {
            let successor = next.iter().position(|next| *next == Some((beam, token)));
            // Scores that cannot win stand for continuations that do not exist.
            if successor.is_none() && (sum.is_nan() || sum <= NEGATIVE_SCORE / 2.0) {
                continue;
            }
            let parent = self.newest[beam];
            let before = parent.map_or(0.0, |parent| self.sums[parent as usize]);
            let number = self.sums.len() as u32;
            let sum = finite(before + finite(logprob));
            self.sums.push(sum);
            let state = match successor {
                _ if ends => BeamState::Finished,
                Some(_) => BeamState::Alive,
                None => BeamState::Pruned,
            };
            new.nodes.push(BeamNode {
                n: number,
                parent,
                beam: beam as u32,
                token: token.into(),
                logprob: finite(logprob),
                sum,
                score: finite(score),
                group,
                state,
            });
            if let Some(successor) = successor {
                newest[successor] = Some(number);
            }
        }
        new.frontier.extend(newest.iter().flatten());
        self.newest[first..first + self.num_beams].copy_from_slice(&newest);
        if !new.nodes.is_empty() {
            self.steps.push(new);
        }
    }

    /// The steps since the last call. With `finished` the beams of this step are results.
    pub(super) fn drain(&mut self, finished: bool) -> impl Iterator<Item = Beams> {
        for step in self.steps.iter_mut().filter(|_| finished) {
            for node in step.nodes.iter_mut().filter(|node| step.frontier.contains(&node.n)) {
                node.state = BeamState::Finished;
            }
            step.frontier.clear();
        }
        self.steps.drain(..)
    }
}

/// A number that JSON can hold.
fn finite(value: f32) -> f32 {
    if value.is_nan() { f32::MIN } else { value.clamp(f32::MIN, f32::MAX) }
}
