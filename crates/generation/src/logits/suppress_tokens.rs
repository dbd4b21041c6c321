//! Tokens that never occur, as in transformers' `SuppressTokensLogitsProcessor`.

use rsgen_core::{Result, TokenId, message, refuse_if};

use super::super::config::{Compat, OneOrMany};
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes tokens in every step.
#[derive(Debug, Clone)]
pub struct SuppressTokensLogitsProcessor {
    suppress_tokens: Vec<TokenId>,
}

impl SuppressTokensLogitsProcessor {
    /// These tokens never occur.
    pub fn new(suppress_tokens: Vec<TokenId>) -> Self {
        Self { suppress_tokens }
    }
}

impl BuiltIn for SuppressTokensLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(tokens) = config.fields.suppress_tokens.clone() else { return Ok(None) };
        if config.fields.compat != Some(Compat::V4_49) {
            let eos = config.fields.forced_eos_token_id.as_ref().map_or(&[][..], OneOrMany::as_slice);
            let bos = config.fields.forced_bos_token_id;
            for (field, forced) in [("forced_bos_token_id", bos.as_slice()), ("forced_eos_token_id", eos)] {
                refuse_if(
                    !forced.is_empty() && forced.iter().all(|token| tokens.contains(token)),
                    "suppress_tokens",
                    || {
                        message!(
                            "must leave a token of " {(field)}
                            (", but holds all of them ({}), and no token could be chosen; take them out, or set ",
                             forced.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
                            {min_new_tokens} " to delay the end"
                        )
                    },
                )?;
            }
        }
        Ok(Some(Self::new(tokens)))
    }
}

impl LogitsProcessor for SuppressTokensLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
        super::remove(scores, &self.suppress_tokens);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::GenerationConfig;
    use super::super::tests::{SECOND, kept, process, resolved};
    use super::*;

    #[test]
    fn these_tokens_are_removed_in_every_step() {
        let processor = SuppressTokensLogitsProcessor::new([1, 7, 99].map(TokenId).to_vec());
        assert_eq!(kept(&process(&processor, &[], &SECOND)), [0, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_forced_token_cannot_be_suppressed_but_in_transformers_4_49() {
        let config = |forced: [u32; 2]| {
            GenerationConfig::new()
                .suppress_tokens([1, 3].map(TokenId).to_vec())
                .forced_eos_token_id(forced.map(TokenId).to_vec())
        };
        let built = |config: &GenerationConfig| {
            SuppressTokensLogitsProcessor::from_config(&resolved(config)).map(|built| built.is_some())
        };
        let error = built(&config([3, 1])).unwrap_err().to_string();
        assert!(
            error.contains("must leave a token of `forced_eos_token_id`, but holds all of them (3, 1)"),
            "{error}"
        );
        assert!(built(&config([3, 2])).unwrap());
        assert!(built(&config([3, 1]).compat(Compat::V4_49)).unwrap());
        assert!(built(&config([2, 2]).forced_bos_token_id(1)).is_err());
    }
}
