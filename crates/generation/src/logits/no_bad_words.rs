//! Sequences that never occur, as in transformers' `NoBadWordsLogitsProcessor`.

use std::collections::HashSet;

use rsgen_core::{Result, TokenId, refuse_if};

use super::super::config::{Compat, OneOrMany};
use super::super::resolved::ResolvedConfig;
use super::sequence_bias::Biases;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes the last token of a sequence when the ids end with the others.
#[derive(Debug, Clone)]
pub struct NoBadWordsLogitsProcessor {
    biases: Biases,
}

impl NoBadWordsLogitsProcessor {
    /// Ignores a sequence that is only an end-of-sequence token.
    ///
    /// # Errors
    /// When there is no sequence.
    #[expect(clippy::needless_pass_by_value, reason = "as all constructors of the table")]
    pub fn new(bad_words_ids: Vec<Vec<TokenId>>, eos_token_id: Option<OneOrMany<TokenId>>) -> Result<Self> {
        refuse_if(
            bad_words_ids.is_empty(),
            "bad_words_ids",
            || "must hold at least one list of token ids, but is empty; leave it out to allow all",
        )?;
        let eos = eos_token_id.as_ref().map_or(&[][..], OneOrMany::as_slice);
        let ends = |word: &[TokenId]| matches!(word, [token] if eos.contains(token));
        let words = bad_words_ids.into_iter().filter(|word| !ends(word));
        let words: HashSet<Vec<TokenId>> = words.collect();
        Ok(Self {
            biases: Biases::new("bad_words_ids", words.into_iter().map(|word| (word, f64::NEG_INFINITY))),
        })
    }
}

impl BuiltIn for NoBadWordsLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(words) = config.fields.bad_words_ids.clone() else { return Ok(None) };
        let processor = Self::new(words, Some(config.eos_token_ids.clone().into()))?;
        processor.biases.check(config.vocab_size)?;
        Ok(Some(processor))
    }

    fn with_compat(self, compat: Option<Compat>) -> Self {
        Self { biases: self.biases.with_compat(compat) }
    }
}

impl LogitsProcessor for NoBadWordsLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        self.biases.apply(scores, row.input_ids)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SECOND, kept, process};
    use super::*;

    fn tokens(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn a_bad_word_is_not_completed_and_a_lone_end_is_no_bad_word() {
        let words = vec![tokens(&[4]), tokens(&[1]), tokens(&[5, 6]), tokens(&[5, 1]), vec![]];
        let processor = NoBadWordsLogitsProcessor::new(words, Some(TokenId(1).into())).unwrap();
        assert_eq!(kept(&process(&processor, &[0, 5], &SECOND)), [0, 2, 3, 5, 7]);
        assert_eq!(kept(&process(&processor, &[5, 0], &SECOND)), [0, 1, 2, 3, 5, 6, 7]);
    }

    #[test]
    fn an_empty_list_is_refused() {
        let error = NoBadWordsLogitsProcessor::new(vec![], None).unwrap_err().to_string();
        assert!(error.contains("`bad_words_ids` must hold at least one list"), "{error}");
    }
}
