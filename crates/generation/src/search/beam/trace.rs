//! The history of a beam: for each generated token its sequence, its log-probability and its score.

/// Grows with its sequence and is copied with it.
#[derive(Debug, Clone, Default)]
pub(super) struct Trace(Vec<TracedToken>);

/// A generated token of a beam.
#[derive(Debug, Clone, Copy)]
pub(super) struct TracedToken {
    /// The sequence it was generated in.
    pub(super) sequence: u32,
    /// Its log-probability under the model's own logits.
    pub(super) logprob: f32,
    /// Its processed score, without that of the beam.
    pub(super) score: f32,
}

impl Trace {
    /// The trace of a sequence that is one token longer.
    pub(super) fn with(&self, sequence: usize, logprob: f32, score: f32) -> Self {
        let mut longer = Vec::with_capacity(self.0.len() + 1);
        longer.extend_from_slice(&self.0);
        longer.push(TracedToken { sequence: sequence as u32, logprob, score });
        Self(longer)
    }

    pub(super) fn get(&self, index: usize) -> Option<&TracedToken> {
        self.0.get(index)
    }

    pub(super) fn logprobs(&self) -> Vec<f32> {
        self.0.iter().map(|token| token.logprob).collect()
    }

    pub(super) fn beam_indices(&self) -> Vec<u32> {
        self.0.iter().map(|token| token.sequence).collect()
    }
}
