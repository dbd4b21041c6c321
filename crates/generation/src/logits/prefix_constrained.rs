//! Allows the tokens that a function of the ids so far returns, as in transformers'
//! `PrefixConstrainedLogitsProcessor`.

use std::sync::Arc;

use rsgen_core::{Error, Result, TokenId, refuse_if};

use super::super::config::Compat;
use super::super::prefix_allowed_tokens::PrefixAllowedTokens;
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, ProcessContext, RowContext, ScoreRows};

/// Removes all tokens but those that the function allows.
///
/// When no row of a prompt can go on, because earlier processors have removed the allowed tokens, these get
/// the score 0.
#[derive(Clone)]
pub struct PrefixConstrainedLogitsProcessor {
    prefix_allowed_tokens_fn: Arc<dyn PrefixAllowedTokens>,
    num_beams: usize,
    first_batch_id: usize,
    rescues: bool,
}

impl PrefixConstrainedLogitsProcessor {
    /// Passes the function a batch id, which `num_beams` consecutive rows share.
    ///
    /// # Errors
    /// When `num_beams` is 0.
    pub fn new(prefix_allowed_tokens_fn: Arc<dyn PrefixAllowedTokens>, num_beams: usize) -> Result<Self> {
        refuse_if(num_beams == 0, "num_beams", || "must be 1 or more, but is 0; it is 1 without beams")?;
        Ok(Self { prefix_allowed_tokens_fn, num_beams, first_batch_id: 0, rescues: true })
    }

    /// The tokens allowed in a row, all of which are in the vocabulary.
    fn allowed(&self, row: &RowContext<'_>, vocab_size: usize) -> Result<Vec<TokenId>> {
        let batch_id = self.first_batch_id + row.row_index / self.num_beams;
        let allowed = self.prefix_allowed_tokens_fn.allowed_tokens(batch_id, row.input_ids)?;
        if allowed.is_empty() {
            return Err(Error::callback(format!(
                "must allow at least one token, but returned none for batch_id {batch_id} after {} ids; \
                 allow an end-of-sequence token where nothing else may follow",
                row.input_ids.len()
            ))
            .about("prefix_allowed_tokens_fn"));
        }
        match allowed.iter().find(|token| token.index() >= vocab_size) {
            None => Ok(allowed),
            Some(token) => Err(Error::callback(format!(
                "must return ids of the model's vocabulary, 0 to {}, but returned {token} for batch_id \
                 {batch_id}",
                vocab_size - 1
            ))
            .about("prefix_allowed_tokens_fn")),
        }
    }
}

impl BuiltIn for PrefixConstrainedLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(function) = &config.prefix_allowed_tokens_fn else { return Ok(None) };
        let processor = Self::new(Arc::clone(function), rows_each(config))?;
        let has_own_numbers = config.fields.compat.is_some() && config.num_beams == 1;
        let numbers_each = if has_own_numbers { config.num_return_sequences } else { 1 };
        Ok(Some(Self { first_batch_id: config.first_prompt * numbers_each, ..processor }))
    }

    fn with_compat(self, compat: Option<Compat>) -> Self {
        Self { rescues: compat != Some(Compat::V4_49), ..self }
    }
}

impl LogitsProcessor for PrefixConstrainedLogitsProcessor {
    fn process(&self, rows: &mut ScoreRows<'_>, context: &mut ProcessContext<'_>) -> Result<()> {
        let batch_id = |row: &RowContext<'_>| row.row_index / self.num_beams;
        let mut index = 0;
        for neighbours in context.rows.chunk_by(|a, b| batch_id(a) == batch_id(b)) {
            let mut allowed = Vec::with_capacity(neighbours.len());
            for row in neighbours {
                allowed.push(self.allowed(row, rows.vocab_size())?);
            }
            let mut any_left = false;
            for (offset, allowed) in allowed.iter().enumerate() {
                any_left |= keep_only(rows.row_mut(index + offset), allowed);
            }
            if !any_left && self.rescues {
                for (offset, allowed) in allowed.iter().enumerate() {
                    let scores = rows.row_mut(index + offset);
                    for token in allowed {
                        scores[token.index()] = 0.0;
                    }
                }
            }
            index += neighbours.len();
        }
        Ok(())
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let allowed = self.allowed(row, scores.len())?;
        if !keep_only(scores, &allowed) && self.rescues {
            for token in &allowed {
                scores[token.index()] = 0.0;
            }
        }
        Ok(())
    }
}

/// The consecutive rows that share a batch id. Until 5.23 each row without beams had its own.
pub(super) fn rows_each(config: &ResolvedConfig) -> usize {
    match config.fields.compat {
        None if config.num_beams == 1 => config.num_return_sequences,
        Some(_) if config.num_beams == 1 => 1,
        _ => config.num_beams / config.num_beam_groups.max(1),
    }
}

/// Removes all other tokens. Returns whether a token is left.
fn keep_only(scores: &mut [f32], tokens: &[TokenId]) -> bool {
    let kept: Vec<(usize, f32)> = tokens.iter().map(|token| (token.index(), scores[token.index()])).collect();
    // NaN and infinity become NaN, as when negative infinity is added.
    for score in scores.iter_mut() {
        *score += f32::NEG_INFINITY;
    }
    for (id, score) in kept {
        scores[id] = score;
    }
    scores.iter().any(|score| *score != f32::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::super::tests::process_rows;
    use super::*;

    const NEG_INF: f32 = f32::NEG_INFINITY;

    fn processor(num_beams: usize, allowed: &'static [u32]) -> PrefixConstrainedLogitsProcessor {
        let function = move |batch_id: usize, ids: &[TokenId]| {
            let next = allowed.iter().map(|id| TokenId(id + batch_id as u32));
            next.chain(ids.last().copied()).collect()
        };
        PrefixConstrainedLogitsProcessor::new(Arc::new(function), num_beams).unwrap()
    }

    #[test]
    fn only_what_the_function_allows_stays() {
        let rows = process_rows(&processor(2, &[1]), &[&[], &[0], &[3], &[3]], &[1.0, 2.0, NEG_INF, 4.0]);
        assert_eq!(rows[0], [NEG_INF, 2.0, NEG_INF, NEG_INF]);
        assert_eq!(rows[1], [1.0, 2.0, NEG_INF, NEG_INF]);
        assert_eq!(rows[2], [NEG_INF, NEG_INF, NEG_INF, 4.0]);
        let lone = process_rows(&processor(1, &[1]), &[&[], &[0]], &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(lone[1], [1.0, NEG_INF, 3.0, NEG_INF], "each row has a number of its own");
    }

    // PrefixConstrainedLogitsProcessor(fn, 2)(ids, scores), transformers 5.23
    #[test]
    fn the_allowed_tokens_are_rescued_when_no_row_of_a_prompt_can_go_on() {
        let scores = [NEG_INF, NEG_INF, 1.0, 2.0];
        let rescued = process_rows(&processor(2, &[0]), &[&[1], &[]], &scores);
        assert_eq!(rescued, [vec![0.0, 0.0, NEG_INF, NEG_INF], vec![0.0, NEG_INF, NEG_INF, NEG_INF]]);
        let one_is_enough = process_rows(&processor(2, &[0]), &[&[1], &[2]], &scores);
        assert_eq!(one_is_enough, [vec![NEG_INF; 4], vec![NEG_INF, NEG_INF, 1.0, NEG_INF]]);
        let old = processor(2, &[0]).with_compat(Some(Compat::V4_49));
        assert_eq!(process_rows(&old, &[&[1], &[]], &scores), [[NEG_INF; 4]; 2]);
    }

    #[test]
    fn answers_that_no_token_can_be_taken_from_are_errors() {
        let error = |allowed: &'static [u32]| {
            let function = move |_: usize, _: &[TokenId]| allowed.iter().copied().map(TokenId).collect();
            let processor = PrefixConstrainedLogitsProcessor::new(Arc::new(function), 1).unwrap();
            processor.process_row(&mut [0.0; 4], &mut RowContext::of_prompt(&[])).unwrap_err().to_string()
        };
        assert!(error(&[]).contains("`prefix_allowed_tokens_fn` must allow at least one token"));
        assert!(error(&[1, 4]).contains("must return ids of the model's vocabulary, 0 to 3, but returned 4"));
        let none = PrefixConstrainedLogitsProcessor::new(Arc::new(|_: usize, _: &[TokenId]| vec![]), 0);
        assert!(none.err().unwrap().to_string().contains("`num_beams` must be 1 or more"));
    }
}
