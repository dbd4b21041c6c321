//! A least length, prompt included, as in transformers' `MinLengthLogitsProcessor`.

use rsgen_core::{Result, TokenId};

use super::super::config::OneOrMany;
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes the end-of-sequence tokens while a row, padding included, is shorter than `min_length`.
#[derive(Debug, Clone)]
pub struct MinLengthLogitsProcessor {
    min_length: usize,
    eos_token_ids: Vec<TokenId>,
}

impl MinLengthLogitsProcessor {
    /// Removes `eos_token_id` before `min_length` ids.
    pub fn new(min_length: usize, eos_token_id: impl Into<OneOrMany<TokenId>>) -> Self {
        Self { min_length, eos_token_ids: eos_token_id.into().as_slice().to_vec() }
    }
}

impl BuiltIn for MinLengthLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        if config.min_length == 0 || config.eos_token_ids.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self::new(config.min_length, config.eos_token_ids.clone())))
    }
}

impl LogitsProcessor for MinLengthLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if row.input_ids.len() < self.min_length {
            super::remove(scores, &self.eos_token_ids);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SECOND, kept, process};
    use super::*;

    #[test]
    fn the_end_is_removed_until_the_length_is_reached() {
        let processor = MinLengthLogitsProcessor::new(3, vec![TokenId(3), TokenId(4)]);
        assert_eq!(kept(&process(&processor, &[1, 1], &SECOND)), [0, 1, 2, 5, 6, 7]);
        assert_eq!(kept(&process(&processor, &[1, 1, 1], &SECOND)), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
