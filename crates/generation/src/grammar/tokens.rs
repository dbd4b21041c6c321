//! A vocabulary as llguidance reads it: the bytes of each token, as a trie.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokRxInfo, TokTrie};

use rsgen_core::error::{Error, Result};
use rsgen_core::message;
use rsgen_core::types::TokenId;

use super::super::vocabulary::Vocabulary;

/// Marks a token that is no text: no text holds this byte.
const SPECIAL: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// The tokens of a model.
pub(super) struct GrammarTokens {
    pub(super) factory: ParserFactory,
    /// The number of ids. The one after them stands for the end of the text in masks.
    pub(super) len: usize,
}

impl GrammarTokens {
    /// Those of `vocabulary` that a model with so many logits can give.
    ///
    /// # Errors
    /// `Config` when no token has bytes.
    pub(super) fn new(vocabulary: &dyn Vocabulary, vocab_size: usize) -> Result<Self> {
        let len = vocabulary.len().min(vocab_size);
        let mut words: Vec<Vec<u8>> = (0..len as u32).map(|id| word(vocabulary, TokenId(id))).collect();
        if words.iter().all(Vec::is_empty) {
            return Err(Error::config(message!(
                {json_schema} ", " {regex} " and " {grammar} " need a tokenizer whose tokens have texts; \
                 leave them out"
            )));
        }
        let end = len as u32;
        words.push([&[SPECIAL][..], b"<[end of the text]>"].concat());
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words);
        let environment = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::json_slices();
        let factory = ParserFactory::new(&(environment as _), InferenceCapabilities::default(), &slices);
        let mut factory =
            factory.map_err(|error| Error::internal(format!("the tokens of a grammar: {error}")))?;
        factory.quiet();
        super::compile::limit(factory.limits_mut());
        Ok(Self { factory, len })
    }
}

/// A vocabulary of all bytes, to check grammars without a model.
pub(crate) struct Bytes([u8; 256]);

impl Bytes {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|byte| byte as u8))
    }
}

impl Vocabulary for Bytes {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.0.get(token.index()).map(std::slice::from_ref)
    }

    fn decode(&self, tokens: &[TokenId], _skip_special: bool) -> Result<String> {
        let bytes: Vec<u8> = tokens.iter().filter_map(|token| self.0.get(token.index()).copied()).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn encode(&self, text: &str, _add_special: bool) -> Result<Vec<TokenId>> {
        Ok(text.bytes().map(|byte| TokenId(byte.into())).collect())
    }
}

/// The bytes of a token; none for one that no grammar may use.
fn word(vocabulary: &dyn Vocabulary, token: TokenId) -> Vec<u8> {
    match vocabulary.token_bytes(token) {
        Some(bytes) if vocabulary.is_special(token) => {
            // A grammar names it as `<name>`.
            let is_name = bytes.len() > 2 && bytes[0] == b'<' && bytes.ends_with(b">");
            if is_name { [&[SPECIAL], bytes].concat() } else { Vec::new() }
        }
        Some(bytes) if bytes.first() != Some(&SPECIAL) => bytes.to_vec(),
        _ => Vec::new(),
    }
}
