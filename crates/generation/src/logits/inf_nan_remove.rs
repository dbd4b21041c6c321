//! Replaces NaN and infinities, as in transformers' `InfNanRemoveLogitsProcessor`.

use rsgen_core::Result;

use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Replaces NaN by 0 and the infinities by the largest and the least number.
#[derive(Debug, Clone, Default)]
pub struct InfNanRemoveLogitsProcessor;

impl InfNanRemoveLogitsProcessor {
    /// The processor; it has no settings.
    pub fn new() -> Self {
        Self
    }
}

impl BuiltIn for InfNanRemoveLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        Ok((config.fields.remove_invalid_values == Some(true)).then_some(Self))
    }
}

impl LogitsProcessor for InfNanRemoveLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
        for score in scores {
            // Infinities become the largest and the least finite number.
            *score = if score.is_nan() { 0.0 } else { score.clamp(f32::MIN, f32::MAX) };
        }
        Ok(())
    }

    fn takes_invalid_logits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::process;
    use super::*;

    #[test]
    fn what_is_no_number_becomes_one() {
        let scores = [1.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.5];
        assert_eq!(
            process(&InfNanRemoveLogitsProcessor::new(), &[], &scores),
            [1.5, 0.0, f32::MAX, f32::MIN, -0.5]
        );
    }
}
