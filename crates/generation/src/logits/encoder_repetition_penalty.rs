//! A penalty for tokens that are not in the prompt, as in transformers'
//! `EncoderRepetitionPenaltyLogitsProcessor`.

use rsgen_core::{Result, TokenId, refuse_if};

use super::super::config::Compat;
use super::super::resolved::ResolvedConfig;
use super::encoder_input_ids::EncoderInputIds;
use super::{BuiltIn, LogitsProcessor, ProcessContext, RowContext, ScoreRows};

/// Favours the tokens of the prompt: divides their negative and multiplies their other scores, once each.
#[derive(Debug, Clone)]
pub struct EncoderRepetitionPenaltyLogitsProcessor {
    /// The inverse of the penalty.
    factor: f32,
    prompts: EncoderInputIds,
    first_rows_only: bool,
}

impl EncoderRepetitionPenaltyLogitsProcessor {
    /// Above 1 makes the tokens of the prompts more probable, below 1 less.
    ///
    /// # Errors
    /// When `penalty` is not a positive number that float32 can hold, or there is no prompt.
    pub fn new(penalty: f64, encoder_input_ids: EncoderInputIds) -> Result<Self> {
        let factor = (1.0 / penalty) as f32;
        refuse_if(!(factor > 0.0 && factor.is_finite()), "encoder_repetition_penalty", || {
            format!(
                "must be a positive number within the range of float32, but is {penalty:?}; 1.0 is no \
                 penalty"
            )
        })?;
        Ok(Self { factor, prompts: encoder_input_ids.checked()?, first_rows_only: false })
    }

    fn apply(&self, scores: &mut [f32], prompt: &[TokenId]) {
        super::penalize_once(scores, prompt.iter(), self.factor);
    }
}

impl BuiltIn for EncoderRepetitionPenaltyLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        match config.fields.encoder_repetition_penalty {
            None | Some(1.0) => Ok(None),
            Some(penalty) => {
                // transformers has no prompts for it where they are embeddings, ids or not.
                let prompts = EncoderInputIds::new(config.encoder_input_ids.clone());
                Self::new(penalty, prompts).map(|own| (!config.has_embeddings).then_some(own))
            }
        }
    }

    fn with_compat(self, compat: Option<Compat>) -> Self {
        Self { first_rows_only: compat == Some(Compat::V4_49), ..self }
    }
}

impl LogitsProcessor for EncoderRepetitionPenaltyLogitsProcessor {
    fn process(&self, rows: &mut ScoreRows<'_>, context: &mut ProcessContext<'_>) -> Result<()> {
        for (index, row) in context.rows.iter().enumerate() {
            // transformers 4.49 applies the prompts to the first rows, whether these continue them or not.
            let prompt = if self.first_rows_only {
                self.prompts.rows().get(row.row_index).map(Vec::as_slice)
            } else {
                Some(self.prompts.of_row(row.row_index, context.num_rows)?)
            };
            if let Some(prompt) = prompt {
                self.apply(rows.row_mut(index), prompt);
            }
        }
        Ok(())
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        self.apply(scores, self.prompts.of_row(row.row_index, row.row_index + 1)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::process_rows;
    use super::*;

    fn processor(penalty: f64) -> EncoderRepetitionPenaltyLogitsProcessor {
        let prompts = EncoderInputIds::new(vec![vec![TokenId(1), TokenId(1)], vec![TokenId(2), TokenId(9)]]);
        EncoderRepetitionPenaltyLogitsProcessor::new(penalty, prompts).unwrap()
    }

    // EncoderRepetitionPenaltyLogitsProcessor(2.0, torch.tensor([[1, 1], [2, 2]]))(ids, scores), transformers
    // 5.23
    #[test]
    fn each_row_has_the_tokens_of_its_prompt_multiplied_once() {
        let scores = [1.0, 2.0, -3.0];
        let two = process_rows(&processor(2.0), &[&[], &[]], &scores);
        assert_eq!(two, [vec![1.0, 4.0, -3.0], vec![1.0, 2.0, -1.5]]);
        let four = process_rows(&processor(2.0), &[&[][..]; 4], &scores);
        assert_eq!(four, [&two[0], &two[0], &two[1], &two[1]].map(Vec::clone));
    }

    // the same in transformers 4.49
    #[test]
    fn only_the_first_rows_are_changed_in_transformers_4_49() {
        let scores = [1.0, 2.0, -3.0];
        let old = processor(2.0).with_compat(Some(Compat::V4_49));
        let four = process_rows(&old, &[&[][..]; 4], &scores);
        assert_eq!(four, [vec![1.0, 4.0, -3.0], vec![1.0, 2.0, -1.5], scores.to_vec(), scores.to_vec()]);
    }

    #[test]
    fn impossible_arguments_are_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
            let prompts = EncoderInputIds::new(vec![vec![TokenId(1)]]);
            let error = EncoderRepetitionPenaltyLogitsProcessor::new(bad, prompts).unwrap_err().to_string();
            assert!(error.starts_with("`encoder_repetition_penalty` must be a positive number"), "{error}");
        }
        let none = EncoderRepetitionPenaltyLogitsProcessor::new(2.0, EncoderInputIds::new(vec![]));
        assert!(none.unwrap_err().to_string().contains("`encoder_input_ids` must hold at least one prompt"));
    }
}
