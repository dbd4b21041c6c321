//! The tokenizer as generation sees it: the bytes of each token, encoding and decoding.
//!
//! A trait, so that this layer does not depend on tokenizers: the engine implements it for them, tests have
//! their own.

use rsgen_core::{Result, TokenId};

/// A model's vocabulary as text.
pub trait Vocabulary: Send + Sync {
    /// The number of ids, including ids without a token: one more than the largest.
    fn len(&self) -> usize;

    /// Whether the vocabulary is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A token as the tokenizer stores it, such as `Ġthe`; `None` for an id without a token, or where that is
    /// not known.
    fn token(&self, token: TokenId) -> Option<&str> {
        let _ = token;
        None
    }

    /// The exact bytes a token contributes to a text, which need not be whole characters. Special tokens have
    /// the bytes of their text; `None` for an id without a token.
    fn token_bytes(&self, token: TokenId) -> Option<&[u8]>;

    /// Whether a token is special: `decode` may skip it.
    fn is_special(&self, token: TokenId) -> bool {
        let _ = token;
        false
    }

    /// The token that begins a text, if the tokenizer has one.
    fn bos(&self) -> Option<TokenId> {
        None
    }

    /// The token that pads shorter rows, if the tokenizer has one.
    fn pad(&self) -> Option<TokenId> {
        None
    }

    /// The id of a token as the tokenizer stores it, or that of its unknown token.
    fn id_or_unknown(&self, token: &str) -> Option<TokenId> {
        let _ = token;
        None
    }

    /// The tokens that begin with `text`, as the tokenizer stores them, in any order.
    fn tokens_from(&self, text: &str) -> Vec<TokenId> {
        let ids = (0..self.len() as u32).map(TokenId);
        ids.filter(|&id| self.token(id).is_some_and(|token| token.starts_with(text))).collect()
    }

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
