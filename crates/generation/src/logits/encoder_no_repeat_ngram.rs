//! No n-gram of the prompt again, as in transformers' `EncoderNoRepeatNGramLogitsProcessor`.

use rsgen_core::{Result, refuse_if};

use super::super::resolved::ResolvedConfig;
use super::encoder_input_ids::EncoderInputIds;
use super::no_repeat_ngram::remove_repeated;
use super::{BuiltIn, LogitsProcessor, ProcessContext, RowContext, ScoreRows};

/// Removes every token that would complete an n-gram of the prompt.
#[derive(Debug, Clone)]
pub struct EncoderNoRepeatNGramLogitsProcessor {
    ngram_size: usize,
    prompts: EncoderInputIds,
}

impl EncoderNoRepeatNGramLogitsProcessor {
    /// No `encoder_ngram_size` consecutive tokens of a row's prompt occur again.
    ///
    /// # Errors
    /// When `encoder_ngram_size` is 0, or there is no prompt.
    pub fn new(encoder_ngram_size: usize, encoder_input_ids: EncoderInputIds) -> Result<Self> {
        refuse_if(
            encoder_ngram_size == 0,
            "encoder_ngram_size",
            || "must be 1 or more, but is 0; without the processor n-grams may repeat",
        )?;
        Ok(Self { ngram_size: encoder_ngram_size, prompts: encoder_input_ids.checked()? })
    }
}

impl BuiltIn for EncoderNoRepeatNGramLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        match config.fields.encoder_no_repeat_ngram_size {
            None | Some(0) => Ok(None),
            Some(ngram_size) => {
                // transformers has no prompts for it where they are embeddings, ids or not.
                let prompts = EncoderInputIds::new(config.encoder_input_ids.clone());
                Self::new(ngram_size, prompts).map(|own| (!config.has_embeddings).then_some(own))
            }
        }
    }
}

impl LogitsProcessor for EncoderNoRepeatNGramLogitsProcessor {
    fn process(&self, rows: &mut ScoreRows<'_>, context: &mut ProcessContext<'_>) -> Result<()> {
        for (index, row) in context.rows.iter().enumerate() {
            let prompt = self.prompts.of_row(row.row_index, context.num_rows)?;
            remove_repeated(rows.row_mut(index), prompt, row.input_ids, self.ngram_size);
        }
        Ok(())
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let prompt = self.prompts.of_row(row.row_index, row.row_index + 1)?;
        remove_repeated(scores, prompt, row.input_ids, self.ngram_size);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SECOND, kept, process_rows};
    use super::*;
    use rsgen_core::TokenId;

    // EncoderNoRepeatNGramLogitsProcessor(2, torch.tensor([[1, 2, 1, 3], [1, 4, 5, 6]]))(ids, scores),
    // transformers 5.23
    #[test]
    fn what_followed_in_the_prompt_does_not_follow_again() {
        let prompts = [[1, 2, 1, 3], [1, 4, 5, 6]].map(|ids| ids.map(TokenId).to_vec());
        let processor =
            EncoderNoRepeatNGramLogitsProcessor::new(2, EncoderInputIds::new(prompts.to_vec())).unwrap();
        let after = process_rows(&processor, &[&[7, 1], &[1, 7], &[7, 1], &[1, 5]], &SECOND);
        let kept: Vec<_> = after.iter().map(|scores| kept(scores)).collect();
        assert_eq!(kept[0], [0, 1, 4, 5, 6, 7]);
        assert_eq!(kept[1], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(kept[2], [0, 1, 2, 3, 5, 6, 7]);
        assert_eq!(kept[3], [0, 1, 2, 3, 4, 5, 7]);
    }

    #[test]
    fn impossible_arguments_are_refused() {
        let error = |size, prompts| {
            EncoderNoRepeatNGramLogitsProcessor::new(size, EncoderInputIds::new(prompts))
                .unwrap_err()
                .to_string()
        };
        assert!(error(0, vec![vec![]]).contains("`encoder_ngram_size` must be 1 or more"));
        assert!(error(2, vec![]).contains("`encoder_input_ids` must hold at least one prompt"));
    }
}
