//! Biases for sequences of tokens, as in transformers' `SequenceBiasLogitsProcessor`.

use crate::error::{Error, Result};
use crate::types::TokenId;

use super::super::config::{Compat, SequenceBias};
use super::{BuiltIn, LogitsProcessor, ProcessorSettings, RowContext};

/// Adds to the score of a sequence's last token when the ids end with the others.
#[derive(Debug, Clone)]
pub struct SequenceBiasLogitsProcessor {
    biases: Biases,
}

impl SequenceBiasLogitsProcessor {
    /// The biases of several sequences that are completed by one token add up.
    ///
    /// # Errors
    /// When there is no sequence, one is empty, or a bias is NaN.
    pub fn new(sequence_bias: SequenceBias) -> Result<Self> {
        if sequence_bias.entries().is_empty() {
            return Err(Error::config(
                "`sequence_bias` must hold at least one sequence, but is empty; leave it out for no bias",
            ));
        }
        for (sequence, bias) in sequence_bias.entries() {
            if sequence.is_empty() {
                return Err(Error::config(
                    "`sequence_bias` must give biases to sequences of one token or more, but one of them is empty",
                ));
            }
            if bias.is_nan() {
                return Err(Error::config(format!(
                    "`sequence_bias` must hold numbers, but the bias of {} is NaN",
                    shown(sequence)
                )));
            }
        }
        Ok(Self { biases: Biases::new("sequence_bias", sequence_bias.entries().iter().cloned()) })
    }
}

impl BuiltIn for SequenceBiasLogitsProcessor {
    fn from_settings(settings: &ProcessorSettings<'_>) -> Result<Option<Self>> {
        let Some(sequence_bias) = settings.config.sequence_bias.clone() else { return Ok(None) };
        let processor = Self::new(sequence_bias)?;
        processor.biases.check(settings.vocab_size)?;
        Ok(Some(processor))
    }

    fn with_compat(self, compat: Option<Compat>) -> Self {
        Self { biases: self.biases.with_compat(compat) }
    }
}

impl LogitsProcessor for SequenceBiasLogitsProcessor {
    fn name(&self) -> &'static str {
        "SequenceBiasLogitsProcessor"
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        self.biases.apply(scores, row.input_ids)
    }
}

/// Sequences with what is added to the score of their last token.
#[derive(Debug, Clone)]
pub(super) struct Biases {
    /// The argument they came in, for errors.
    argument: &'static str,
    /// The first tokens, the last one, and its bias; in the order in which biases of one token are added up.
    entries: Vec<(Vec<TokenId>, TokenId, f32)>,
    /// As long as the ids are no longer than a sequence's first tokens, it has no effect in transformers 4.49.
    needs_longer_ids: bool,
    /// The entries in the order in which they were given.
    as_given: Vec<usize>,
}

impl Biases {
    /// Empty sequences are left out.
    pub(super) fn new(argument: &'static str, given: impl Iterator<Item = (Vec<TokenId>, f64)>) -> Self {
        let mut lens: Vec<usize> = vec![1];
        let mut entries = Vec::new();
        for (place, (mut sequence, bias)) in given.enumerate() {
            if !lens.contains(&sequence.len()) {
                lens.push(sequence.len());
            }
            let group = lens.iter().position(|&len| len == sequence.len());
            if let Some(last) = sequence.pop() {
                entries.push((group, place, (sequence, last, bias as f32)));
            }
        }
        // Single tokens first, then the sequences by their lengths, as those first occurred.
        entries.sort_by_key(|(group, place, _)| (*group, *place));
        let mut as_given: Vec<usize> = (0..entries.len()).collect();
        as_given.sort_by_key(|&index| (!entries[index].2.0.is_empty(), entries[index].1));
        let entries = entries.into_iter().map(|(_, _, entry)| entry).collect();
        Self { argument, entries, needs_longer_ids: false, as_given }
    }

    pub(super) fn with_compat(mut self, compat: Option<Compat>) -> Self {
        if compat == Some(Compat::V4_49) {
            self.needs_longer_ids = true;
            let given = self.as_given.iter().map(|&index| self.entries[index].clone()).collect();
            self.entries = given;
        }
        self
    }

    /// Checks that all tokens are in the vocabulary.
    pub(super) fn check(&self, vocab_size: usize) -> Result<()> {
        let all = self.entries.iter().flat_map(|(first, last, _)| first.iter().chain([last]));
        match all.copied().find(|token| token.index() >= vocab_size) {
            None => Ok(()),
            Some(token) => Err(Error::config(format!(
                "`{}` must hold ids of the model's vocabulary, 0 to {}, but one of them is {token}",
                self.argument,
                vocab_size.saturating_sub(1)
            ))),
        }
    }

    /// Adds the biases of the sequences that one more token completes.
    pub(super) fn apply(&self, scores: &mut [f32], input_ids: &[TokenId]) -> Result<()> {
        self.check(scores.len())?;
        let mut sums: Vec<(TokenId, f32)> = Vec::new();
        for (first, last, bias) in &self.entries {
            let long_enough = !self.needs_longer_ids || first.is_empty() || input_ids.len() > first.len();
            if long_enough && input_ids.ends_with(first) {
                match sums.iter_mut().find(|(token, _)| token == last) {
                    Some((_, sum)) => *sum += bias,
                    None => sums.push((*last, *bias)),
                }
            }
        }
        for (token, sum) in sums {
            scores[token.index()] += sum;
        }
        Ok(())
    }
}

fn shown(sequence: &[TokenId]) -> String {
    let ids: Vec<String> = sequence.iter().take(8).map(ToString::to_string).collect();
    format!("[{}{}]", ids.join(", "), if sequence.len() > 8 { ", …" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SECOND, process};
    use super::*;

    fn tokens(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn processor(entries: &[(&[u32], f64)]) -> SequenceBiasLogitsProcessor {
        let bias = SequenceBias::new(entries.iter().map(|&(ids, bias)| (tokens(ids), bias)));
        SequenceBiasLogitsProcessor::new(bias).unwrap()
    }

    fn changed(processor: &SequenceBiasLogitsProcessor, ids: &[u32]) -> Vec<(usize, f32)> {
        let after = process(processor, ids, &SECOND);
        (0..SECOND.len()).filter(|&id| after[id] != SECOND[id]).map(|id| (id, after[id])).collect()
    }

    #[test]
    fn the_last_token_is_biased_when_the_others_have_just_occurred() {
        let processor = processor(&[(&[3], 1.0), (&[5, 6, 3], 0.5), (&[6, 2], -2.0)]);
        assert_eq!(changed(&processor, &[5, 6]), [(2, -2.7), (3, 3.7)]);
        assert_eq!(changed(&processor, &[6, 5]), [(3, 3.2)]);
        assert_eq!(changed(&processor, &[6]), [(2, -2.7), (3, 3.2)]);
        assert_eq!(changed(&processor, &[]), [(3, 3.2)]);
    }

    #[test]
    fn the_ids_must_be_longer_than_the_first_tokens_in_transformers_4_49() {
        let processor = processor(&[(&[6, 2], -2.0)]).with_compat(Some(Compat::V4_49));
        assert_eq!(changed(&processor, &[6]), []);
        assert_eq!(changed(&processor, &[1, 6]), [(2, -2.7)]);
    }

    #[test]
    fn impossible_biases_are_refused() {
        let error = |entries: Vec<(Vec<TokenId>, f64)>| {
            SequenceBiasLogitsProcessor::new(SequenceBias::new(entries)).unwrap_err().to_string()
        };
        assert!(error(vec![]).contains("`sequence_bias` must hold at least one sequence"));
        assert!(error(vec![(vec![], 1.0)]).contains("one of them is empty"));
        assert!(error(vec![(tokens(&[1, 2]), f64::NAN)]).contains("the bias of [1, 2] is NaN"));
        let beyond = processor(&[(&[1, 8], 1.0)]);
        let error = beyond.process_row(&mut [0.0; 8], &mut RowContext::of_prompt(&[])).unwrap_err();
        assert!(
            error.to_string().contains("`sequence_bias` must hold ids of the model's vocabulary, 0 to 7"),
            "{error}"
        );
    }
}
