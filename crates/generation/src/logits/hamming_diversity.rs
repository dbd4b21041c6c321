//! Diversity between groups of beams, as in transformers' `HammingDiversityLogitsProcessor`.

use rsgen_core::{Error, Result, message, refuse_if};

use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, ProcessContext, RowContext, ScoreRows};

/// Lowers the scores of tokens that earlier groups of the same prompt have chosen in this step, once for each
/// time.
#[derive(Debug, Clone)]
pub struct HammingDiversityLogitsProcessor {
    penalty: f32,
    num_beams: usize,
    num_sub_beams: usize,
}

impl HammingDiversityLogitsProcessor {
    /// The penalty for each earlier beam that has chosen a token.
    ///
    /// # Errors
    /// When the penalty is not positive, or the beams cannot be grouped so.
    pub fn new(diversity_penalty: f64, num_beams: usize, num_beam_groups: usize) -> Result<Self> {
        let penalty = diversity_penalty as f32;
        refuse_if(!(penalty > 0.0 && penalty.is_finite()), "diversity_penalty", || {
            format!(
                "must be a positive number within the range of float32, but is {diversity_penalty:?}; \
                 leave it out for no penalty"
            )
        })?;
        refuse_if(num_beams < 2, "num_beams", || {
            format!("must be 2 or more where there is a diversity_penalty, but is {num_beams}")
        })?;
        refuse_if(num_beam_groups < 2 || num_beam_groups > num_beams, "num_beam_groups", || {
            message!(
                "must be from 2 to the {num_beams} of " {num_beams} " where there is a diversity_penalty, but \
                 is {num_beam_groups}"
            )
        })?;
        Ok(Self { penalty, num_beams, num_sub_beams: num_beams / num_beam_groups })
    }
}

impl BuiltIn for HammingDiversityLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        match config.fields.diversity_penalty {
            Some(penalty) if penalty != 0.0 && config.num_beam_groups > 1 => {
                Self::new(penalty, config.num_beams, config.num_beam_groups).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl LogitsProcessor for HammingDiversityLogitsProcessor {
    fn process(&self, rows: &mut ScoreRows<'_>, context: &mut ProcessContext<'_>) -> Result<()> {
        let earlier_beams = context.beam_group * self.num_sub_beams;
        let vocab_size = rows.vocab_size();
        for (index, row) in context.rows.iter().enumerate() {
            let first = row.row_index / self.num_sub_beams * self.num_beams;
            let chosen = context.current_tokens.get(first..first + earlier_beams).ok_or_else(|| {
                Error::input(format!(
                    "must hold the tokens of {} beams for each prompt, but has {} for row {}",
                    self.num_beams,
                    context.current_tokens.len(),
                    row.row_index
                ))
                .about("current_tokens")
            })?;
            let mut counts: Vec<(usize, f32)> = Vec::new();
            for token in chosen.iter().map(|token| token.index()).filter(|&token| token < vocab_size) {
                match counts.iter_mut().find(|(counted, _)| *counted == token) {
                    Some((_, count)) => *count += 1.0,
                    None => counts.push((token, 1.0)),
                }
            }
            let scores = rows.row_mut(index);
            for (token, count) in counts {
                scores[token] -= self.penalty * count;
            }
        }
        Ok(())
    }

    fn process_row(&self, _scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
        // A row alone has no earlier groups.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::TokenId;

    // HammingDiversityLogitsProcessor(0.5, 4, 2)(ids, torch.zeros(4, 4), current_tokens, 1), transformers
    // 4.49: two prompts
    #[test]
    fn each_choice_of_an_earlier_group_costs_the_penalty() {
        let processor = HammingDiversityLogitsProcessor::new(0.5, 4, 2).unwrap();
        let tokens = [1, 1, 0, 0, 2, 3, 0, 0].map(TokenId);
        let rows = (0..4).map(|index| RowContext::numbered(&[], index)).collect();
        let mut context =
            ProcessContext { beam_group: 1, current_tokens: &tokens, ..ProcessContext::new(rows) };
        let mut scores = [0.0; 16];
        processor.process(&mut ScoreRows::new(&mut scores, 4), &mut context).unwrap();
        assert_eq!(scores[..8], [0.0, -1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0]);
        assert_eq!(scores[8..], [0.0, 0.0, -0.5, -0.5, 0.0, 0.0, -0.5, -0.5]);

        let mut scores = [0.0; 16];
        context.beam_group = 0;
        processor.process(&mut ScoreRows::new(&mut scores, 4), &mut context).unwrap();
        assert_eq!(scores, [0.0; 16], "the first group is free");
        (context.beam_group, context.current_tokens) = (1, &tokens[..4]);
        let error = processor.process(&mut ScoreRows::new(&mut scores, 4), &mut context).unwrap_err();
        assert!(error.to_string().contains("`current_tokens` must hold the tokens of 4 beams"), "{error}");
    }

    #[test]
    fn groups_that_cannot_be_are_refused() {
        let error = |penalty, beams, groups| {
            HammingDiversityLogitsProcessor::new(penalty, beams, groups).unwrap_err().to_string()
        };
        for penalty in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(error(penalty, 4, 2).contains("`diversity_penalty` must be a positive number"));
        }
        assert!(error(1.0, 1, 2).contains("`num_beams` must be 2 or more"));
        assert!(error(1.0, 4, 1).contains("`num_beam_groups` must be from 2 to the 4"));
        assert!(error(1.0, 4, 5).contains("but is 5"));
    }
}
