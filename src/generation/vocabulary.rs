//! What generation needs to know of text: the bytes of each token, and encoding and decoding.
//!
//! A trait, so that this layer stays free of tokenizers: the engine implements it for them, tests write their own.

use crate::error::Result;
use crate::types::TokenId;

/// The text side of a model's vocabulary.
pub trait Vocabulary: Send + Sync {
    /// The number of ids, including ids without a token: one more than the largest.
    fn len(&self) -> usize;

    /// Whether there is no id at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The exact bytes a token contributes to a text, which need not be whole characters. Special tokens give
    /// their text; an id without a token gives `None`.
    fn token_bytes(&self, token: TokenId) -> Option<&[u8]>;

    /// The text of `tokens`, without special tokens if `skip_special`.
    ///
    /// # Errors
    /// When the tokenizer's decoder fails.
    fn decode(&self, tokens: &[TokenId], skip_special: bool) -> Result<String>;

    /// The ids of `text`, with the tokenizer's special tokens around them if `add_special`.
    ///
    /// # Errors
    /// When the tokenizer fails.
    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<TokenId>>;
}
