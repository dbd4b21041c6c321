//! Biases for single tokens, as OpenAI's `logit_bias`.

use rsgen_core::{Error, Result, message};

use super::super::config::LogitBias;
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// The largest bias, which practically forces a token; its negative practically forbids it.
const MAX_BIAS: f64 = 100.0;

/// Adds a number to the score of a token in every step.
#[derive(Debug, Clone)]
pub struct LogitBiasLogitsProcessor {
    bias: LogitBias,
}

impl LogitBiasLogitsProcessor {
    /// Adds these biases.
    ///
    /// # Errors
    /// When a bias is not from -100 to 100.
    pub fn new(logit_bias: LogitBias) -> Result<Self> {
        match logit_bias.entries().iter().find(|(_, bias)| !(-MAX_BIAS..=MAX_BIAS).contains(bias)) {
            None => Ok(Self { bias: logit_bias }),
            Some((token, bias)) => Err(Error::config(message!(
                "must hold numbers from -100 to 100, but that of token {token} is {bias:?}; "
                {suppress_tokens} " forbids tokens"
            ))
            .about("logit_bias")),
        }
    }

    fn check(&self, vocab_size: usize) -> Result<()> {
        super::check_held("logit_bias", self.bias.entries().iter().map(|(token, _)| *token), vocab_size)
    }
}

impl BuiltIn for LogitBiasLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(bias) = config.fields.logit_bias.clone() else { return Ok(None) };
        let processor = Self::new(bias)?;
        processor.check(config.vocab_size)?;
        Ok(Some(processor))
    }
}

impl LogitsProcessor for LogitBiasLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
        self.check(scores.len())?;
        for &(token, bias) in self.bias.entries() {
            scores[token.index()] += bias as f32;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::process;
    use super::*;
    use rsgen_core::TokenId;

    fn processor(entries: &[(u32, f64)]) -> Result<LogitBiasLogitsProcessor> {
        LogitBiasLogitsProcessor::new(LogitBias::new(entries.iter().map(|&(id, bias)| (TokenId(id), bias))))
    }

    #[test]
    fn biases_are_added_to_the_scores_of_their_tokens() {
        let processor = processor(&[(0, 1.5), (2, -100.0)]).unwrap();
        assert_eq!(process(&processor, &[], &[1.0, 2.0, 3.0]), [2.5, 2.0, -97.0]);
    }

    #[test]
    fn impossible_biases_are_refused() {
        for bad in [100.5, -101.0, f64::NAN, f64::INFINITY] {
            let error = processor(&[(0, 1.0), (5, bad)]).unwrap_err().to_string();
            assert!(error.contains("from -100 to 100, but that of token 5 is"), "{error}");
        }
        let beyond = processor(&[(3, 1.0)]).unwrap();
        let error = beyond.process_row(&mut [0.0; 3], &mut RowContext::of_prompt(&[])).unwrap_err();
        assert!(
            error.to_string().contains("`logit_bias` must hold ids of the model's vocabulary, 0 to 2"),
            "{error}"
        );
    }
}
