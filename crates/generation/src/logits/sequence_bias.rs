//! Biases for sequences of tokens, as in transformers' `SequenceBiasLogitsProcessor`.

use std::collections::HashMap;

use rsgen_core::{Result, TokenId, refuse_if};

use super::super::config::{Compat, SequenceBias};
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Adds a bias to the score of a sequence's last token when the ids end with its other tokens.
#[derive(Debug, Clone)]
pub struct SequenceBiasLogitsProcessor {
    biases: Biases,
}

impl SequenceBiasLogitsProcessor {
    /// The biases of several sequences that are completed by one token add up.
    ///
    /// # Errors
    /// When there is no sequence, one is empty, or a bias is NaN.
    #[expect(clippy::needless_pass_by_value, reason = "as all constructors of the table")]
    pub fn new(sequence_bias: SequenceBias) -> Result<Self> {
        refuse_if(
            sequence_bias.entries().is_empty(),
            "sequence_bias",
            || "must hold at least one sequence, but is empty; leave it out for no bias",
        )?;
        for (sequence, bias) in sequence_bias.entries() {
            refuse_if(
                sequence.is_empty(),
                "sequence_bias",
                || "must give biases to sequences of one token or more, but one of them is empty",
            )?;
            refuse_if(bias.is_nan(), "sequence_bias", || {
                format!("must hold numbers, but the bias of {} is NaN", shown(sequence))
            })?;
        }
        Ok(Self { biases: Biases::new("sequence_bias", sequence_bias.entries().iter().cloned()) })
    }
}

impl BuiltIn for SequenceBiasLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(sequence_bias) = config.fields.sequence_bias.clone() else { return Ok(None) };
        let processor = Self::new(sequence_bias)?;
        processor.biases.check(config.vocab_size)?;
        Ok(Some(processor))
    }

    fn with_compat(self, compat: Option<Compat>) -> Self {
        Self { biases: self.biases.with_compat(compat) }
    }
}

impl LogitsProcessor for SequenceBiasLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        self.biases.apply(scores, row.input_ids)
    }
}

/// Sequences with the bias of their last token.
#[derive(Debug, Clone)]
pub(super) struct Biases {
    /// The name of the argument, for errors.
    argument: &'static str,
    /// The biases of single tokens.
    single: HashMap<TokenId, f32>,
    /// The biases of longer sequences, in the order in which those of one token are summed.
    longer: Vec<LongerBias>,
    /// The largest id of all.
    largest: Option<TokenId>,
    /// While the ids are no longer than a sequence's first tokens, it has no effect in transformers 4.49.
    needs_longer_ids: bool,
}

#[derive(Debug, Clone)]
struct LongerBias {
    first: Vec<TokenId>,
    last: TokenId,
    bias: f32,
    /// Its index in the argument.
    given: usize,
}

impl Biases {
    /// No two of the sequences are equal; empty ones are left out.
    pub(super) fn new(argument: &'static str, given: impl Iterator<Item = (Vec<TokenId>, f64)>) -> Self {
        let mut biases = Self {
            argument,
            single: HashMap::new(),
            longer: Vec::new(),
            largest: None,
            needs_longer_ids: false,
        };
        let mut lens: Vec<usize> = Vec::new();
        for (given, (mut first, bias)) in given.enumerate() {
            biases.largest = biases.largest.max(first.iter().copied().max());
            let Some(last) = first.pop() else { continue };
            if first.is_empty() {
                biases.single.insert(last, bias as f32);
                continue;
            }
            if !lens.contains(&first.len()) {
                lens.push(first.len());
            }
            biases.longer.push(LongerBias { first, last, bias: bias as f32, given });
        }
        // transformers groups sequences by length, in the order in which the lengths first occur.
        biases.longer.sort_by_key(|bias| lens.iter().position(|&len| len == bias.first.len()));
        biases
    }

    pub(super) fn with_compat(mut self, compat: Option<Compat>) -> Self {
        if compat == Some(Compat::V4_49) {
            self.needs_longer_ids = true;
            self.longer.sort_by_key(|bias| bias.given);
        }
        self
    }

    /// Checks that all tokens are in the vocabulary.
    pub(super) fn check(&self, vocab_size: usize) -> Result<()> {
        super::check_held(self.argument, self.largest, vocab_size)
    }

    /// Adds the biases of the sequences that one more token completes.
    pub(super) fn apply(&self, scores: &mut [f32], input_ids: &[TokenId]) -> Result<()> {
        self.check(scores.len())?;
        let least_more = usize::from(self.needs_longer_ids);
        let completed = self.longer.iter().filter(|bias| {
            input_ids.len() >= bias.first.len() + least_more && input_ids.ends_with(&bias.first)
        });
        // The biases of one token are summed before they are added to its score.
        let mut sums: Vec<(TokenId, f32)> = Vec::new();
        for LongerBias { last, bias, .. } in completed {
            match sums.iter_mut().find(|(token, _)| token == last) {
                Some((_, sum)) => *sum += bias,
                None => sums.push((*last, self.single.get(last).unwrap_or(&0.0) + bias)),
            }
        }
        for (token, bias) in &self.single {
            if !sums.iter().any(|(summed, _)| summed == token) {
                scores[token.index()] += bias;
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
    fn the_id_0_is_an_id_in_transformers_4_49_too() {
        let processor = processor(&[(&[0], 1.0)]).with_compat(Some(Compat::V4_49));
        assert_eq!(changed(&processor, &[1]), [(0, 1.3)]);
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
