//! The history of a beam: for each generated token its sequence, its log-probability and its score.

/// Grows with its sequence and is copied with it.
#[derive(Debug, Clone, Default)]
pub(super) struct Trace {
    /// For each token the sequence it was generated in.
    pub(super) beam_indices: Vec<u32>,
    /// For each token its log-probability under the model's own logits.
    pub(super) logprobs: Vec<f32>,
    /// For each token its processed score, without that of the beam.
    pub(super) scores: Vec<f32>,
}

impl Trace {
    /// The trace of a sequence that is one token longer.
    pub(super) fn with(&self, sequence: usize, logprob: f32, score: f32) -> Self {
        let mut longer = self.clone();
        longer.beam_indices.push(sequence as u32);
        longer.logprobs.push(logprob);
        longer.scores.push(score);
        longer
    }
}
