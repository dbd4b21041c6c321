//! Log-probabilities in place of scores, as in transformers' `LogitNormalization`.

use rsgen_core::Result;

use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Replaces the scores by the logarithms of their softmax.
#[derive(Debug, Clone, Default)]
pub struct LogitNormalization;

impl LogitNormalization {
    /// The processor; it has no settings.
    pub fn new() -> Self {
        Self
    }
}

impl BuiltIn for LogitNormalization {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        Ok((config.fields.renormalize_logits == Some(true)).then_some(Self))
    }
}

impl LogitsProcessor for LogitNormalization {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        rsgen_kernels::log_softmax(row.isa, scores);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FIRST, process};
    use super::*;

    // LogitNormalization()(ids, scores), transformers 5.23
    #[test]
    fn scores_become_log_probabilities_as_in_transformers() {
        let expected = [
            -2.485_838_4,
            -6.235_838_4,
            -3.985_838_4,
            -0.860_838_53,
            -4.485_838_4,
            -0.860_838_53,
            f32::NEG_INFINITY,
            -3.235_838_4,
        ];
        assert_eq!(process(&LogitNormalization::new(), &[], &FIRST), expected);
    }
}
