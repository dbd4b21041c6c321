//! No n-gram twice, as in transformers' `NoRepeatNGramLogitsProcessor`.

use rsgen_core::{Result, TokenId, refuse_if};

use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes every token that would complete an n-gram which has occurred, prompt and padding included.
#[derive(Debug, Clone)]
pub struct NoRepeatNGramLogitsProcessor {
    ngram_size: usize,
}

impl NoRepeatNGramLogitsProcessor {
    /// No `ngram_size` tokens in a row occur twice.
    ///
    /// # Errors
    /// When `ngram_size` is 0.
    pub fn new(ngram_size: usize) -> Result<Self> {
        refuse_if(
            ngram_size == 0,
            "ngram_size",
            || "must be 1 or more, but is 0; without the processor n-grams may repeat",
        )?;
        Ok(Self { ngram_size })
    }
}

impl BuiltIn for NoRepeatNGramLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        match config.fields.no_repeat_ngram_size {
            None | Some(0) => Ok(None),
            Some(ngram_size) => Self::new(ngram_size).map(Some),
        }
    }
}

impl LogitsProcessor for NoRepeatNGramLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        remove_repeated(scores, row.input_ids, row.input_ids, self.ngram_size);
        Ok(())
    }
}

/// Removes the tokens that followed, in `earlier`, the last `ngram_size - 1` of `input_ids`.
pub(super) fn remove_repeated(
    scores: &mut [f32],
    earlier: &[TokenId],
    input_ids: &[TokenId],
    ngram_size: usize,
) {
    let Some(start) = (input_ids.len() + 1).checked_sub(ngram_size) else { return };
    let prefix = &input_ids[start..];
    for ngram in earlier.windows(ngram_size) {
        if let Some((last, first)) = ngram.split_last()
            && first == prefix
        {
            super::remove(scores, &[*last]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SECOND, kept, process};
    use super::*;

    // NoRepeatNGramLogitsProcessor(n)(torch.tensor([ids]), scores), transformers 5.23
    #[test]
    fn what_would_repeat_an_ngram_is_removed_as_in_transformers() {
        let kept_after = |n: usize, ids: &[u32]| {
            kept(&process(&NoRepeatNGramLogitsProcessor::new(n).unwrap(), ids, &SECOND))
        };
        let ids = [1, 2, 3, 1, 2, 4, 1, 2];
        assert_eq!(kept_after(1, &ids), [0, 5, 6, 7]);
        assert_eq!(kept_after(2, &ids), [0, 1, 2, 5, 6, 7]);
        assert_eq!(kept_after(3, &ids), [0, 1, 2, 5, 6, 7]);
        assert_eq!(kept_after(4, &ids), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(kept_after(20, &ids), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(kept_after(2, &[5, 9, 5]), [0, 1, 2, 3, 4, 5, 6, 7], "an id beyond the scores");
    }

    #[test]
    fn none_is_refused() {
        let error = NoRepeatNGramLogitsProcessor::new(0).unwrap_err().to_string();
        assert!(error.contains("`ngram_size` must be 1 or more, but is 0"), "{error}");
    }
}
