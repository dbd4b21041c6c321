//! [`PrefixAllowedTokens`]: a caller's function of the ids so far, which the processor of that name asks.

use rsgen_core::{Result, TokenId};

/// Returns the tokens that may follow: transformers' `prefix_allowed_tokens_fn`. Closures implement it.
pub trait PrefixAllowedTokens: Send + Sync {
    /// The tokens that may follow `input_ids`, prompt and padding included, in a row of prompt `batch_id`.
    ///
    /// # Errors
    /// Any error ends the request.
    fn allowed_tokens(&self, batch_id: usize, input_ids: &[TokenId]) -> Result<Vec<TokenId>>;
}

impl<F: Fn(usize, &[TokenId]) -> Vec<TokenId> + Send + Sync> PrefixAllowedTokens for F {
    fn allowed_tokens(&self, batch_id: usize, input_ids: &[TokenId]) -> Result<Vec<TokenId>> {
        Ok(self(batch_id, input_ids))
    }
}
