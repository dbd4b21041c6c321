//! The logits of a step, one row for each active sequence, and what else the model gave for them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rsgen_core::{Error, Result, message};
use rsgen_kernels::{Isa, log_sum_exp};

use super::super::layer_states::LayerStates;
use super::super::logits::watched::WatchedToken;
use super::super::output::SequenceScores;
use super::super::plan::GenerationPlan;

/// Memory for what a step tells of its logits, reused from step to step.
#[derive(Default)]
pub(super) struct LogitsScratch {
    pub(super) sequences: Vec<usize>,
    pub(super) main_rows: Vec<usize>,
    pub(super) normalizers: Vec<f32>,
}

/// Logits, `[sequences, vocab_size]`.
pub(super) enum Scores<'a> {
    /// The model's results.
    Given(&'a mut [f32]),
    /// Copies of them, one for each sequence of a prompt. They end with their step, the only one that has such: of many
    /// beams and a large vocabulary they take as much memory as the results of all later steps.
    Expanded(Vec<f32>),
}

impl Deref for Scores<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Given(scores) => scores,
            Self::Expanded(scores) => scores,
        }
    }
}

impl DerefMut for Scores<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Given(scores) => scores,
            Self::Expanded(scores) => scores,
        }
    }
}

/// The logits of a step.
pub(super) struct StepLogits<'a> {
    /// One row for each active sequence, `[sequences, vocab_size]`.
    pub(super) scores: Scores<'a>,
    /// Their sequences.
    pub(super) sequences: &'a [usize],
    /// The log-sum-exp of each main row.
    pub(super) normalizers: &'a [f32],
    /// Logits of inner layers, by main row.
    pub(super) layer_logits: &'a [f32],
    /// For each sequence its main row: in the first step one for each prompt.
    pub(super) main_rows: &'a [usize],
    pub(super) unconditional_logits: &'a [f32],
    /// Of each main row what its layers computed; empty unless it is to be kept.
    pub(super) states: Vec<Arc<LayerStates>>,
    /// The watched tokens of each row; empty unless events tell the alternatives of each token.
    pub(super) watched: Vec<Vec<WatchedToken>>,
}

impl StepLogits<'_> {
    /// Turns the logits into log-probabilities.
    pub(super) fn normalize(&mut self, vocab_size: usize) {
        for (row, &main_row) in self.scores.chunks_exact_mut(vocab_size).zip(self.main_rows) {
            let normalizer = self.normalizers[main_row];
            for score in row {
                *score -= normalizer;
            }
        }
    }

    /// Records what the layers of a row computed.
    pub(super) fn keep_states(&self, row: usize, recorded: &mut SequenceScores) {
        recorded.keep_states(self.states.get(self.main_rows[row]));
    }

    /// Records the model's own logits of all rows and what their layers computed, by sequence.
    pub(super) fn keep(&self, plan: &GenerationPlan, recorded: &mut [SequenceScores]) -> Result<()> {
        for (row, logits) in self.scores.chunks_exact(plan.config.vocab_size).enumerate() {
            let recorded = &mut recorded[self.sequences[row]];
            recorded.keep_logits(plan.config.isa, logits)?;
            self.keep_states(row, recorded);
        }
        Ok(())
    }

    /// The log-sum-exp of a row.
    pub(super) fn normalizer(&self, row: usize) -> f32 {
        self.normalizers[self.main_rows[row]]
    }
}

/// Writes the log-sum-exp of each row of the model's own logits to `out`. They must be numbers, unless a
/// processor repairs them.
pub(super) fn log_sum_exps(
    isa: Isa,
    logits: &[f32],
    vocab_size: usize,
    any_logits: bool,
    out: &mut Vec<f32>,
) -> Result<()> {
    out.clear();
    for row in logits.chunks_exact(vocab_size) {
        let normalizer = log_sum_exp(isa, row);
        if !normalizer.is_finite() && !any_logits {
            return Err(not_finite(normalizer));
        }
        out.push(normalizer);
    }
    Ok(())
}

/// The error of a row of the model's logits with this log-sum-exp.
pub(super) fn not_finite(normalizer: f32) -> Error {
    Error::numerical(message!(
        "the model's logits hold NaN or infinity (their log-sum-exp is {normalizer}); its weights may be damaged, or "
        {compute_dtype} " too narrow for them"
    ))
}
