//! Implements the searches' `Vocabulary` for tokenizers.

use rsgen_core::{Result, TokenId};
use rsgen_generation::Vocabulary;
use rsgen_text::Tokenizer;

/// A tokenizer as stopping criteria and processors see it.
pub struct TokenizerVocabulary(pub Tokenizer);

impl Vocabulary for TokenizerVocabulary {
    fn len(&self) -> usize {
        self.0.vocab_size()
    }

    fn token(&self, token: TokenId) -> Option<&str> {
        self.0.token(token)
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.0.token_bytes(token)
    }

    fn is_special(&self, token: TokenId) -> bool {
        self.0.is_special(token)
    }

    fn bos(&self) -> Option<TokenId> {
        self.0.bos()
    }

    fn pad(&self) -> Option<TokenId> {
        self.0.pad()
    }

    fn id_or_unknown(&self, token: &str) -> Option<TokenId> {
        self.0.id(token).or_else(|| self.0.unknown())
    }

    fn tokens_from(&self, text: &str) -> Vec<TokenId> {
        self.0.tokens_from(text)
    }

    fn decode(&self, token_ids: &[TokenId], skip_special_tokens: bool) -> Result<String> {
        self.0.decode(token_ids, skip_special_tokens)
    }

    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>> {
        self.0.encode(text, add_special_tokens)
    }
}
