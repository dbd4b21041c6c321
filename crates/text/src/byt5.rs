//! Transformers' `ByT5Tokenizer`: the bytes of a text after three special tokens, and added tokens behind them.

use std::collections::{BTreeMap, HashSet};

use super::budget::{Budget, check_length};
use super::decoder::Decoder;
use super::sentencepiece::{AddedTokens, Part, number_added};
use super::settings::Settings;
use rsgen_core::error::Result;

/// The id of the byte 0.
const OFFSET: u32 = 3;

/// The tokenizer.
#[derive(Debug)]
pub(super) struct ByT5Tokenizer {
    added: AddedTokens,
    /// The texts of special tokens.
    special: HashSet<String>,
    split_special_tokens: bool,
}

impl ByT5Tokenizer {
    pub(super) fn new(settings: &Settings) -> Result<Self> {
        let mut first = BTreeMap::new();
        for (id, name) in (0..).zip(["pad_token", "eos_token", "unk_token"]) {
            if let Some(token) = settings.named(name) {
                let stripped = settings.is_plain(name);
                first.insert(
                    id,
                    if stripped { token.clone().lstrip(true).rstrip(true) } else { token.clone() },
                );
            }
        }
        let bytes = (0..=255_u32).map(|byte| (byte + OFFSET, byte_token(byte)));
        let by_id = number_added(first, bytes, settings)?;
        Ok(Self {
            added: AddedTokens::new(by_id),
            special: settings.special_tokens().map(|token| token.content.clone()).collect(),
            split_special_tokens: settings.split_special_tokens,
        })
    }

    /// The ids of a text, without those that are put around it.
    pub(super) fn encode(&self, text: &str, budget: &Budget<'_>) -> Result<Vec<u32>> {
        check_length(text.len())?;
        let mut ids = Vec::with_capacity(text.len());
        let bytes = |text: &str| -> Vec<u32> { text.bytes().map(|byte| u32::from(byte) + OFFSET).collect() };
        if self.split_special_tokens {
            return Ok(bytes(text));
        }
        for part in self.added.split(text, budget)? {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => ids.extend(bytes(&text)),
            }
        }
        Ok(ids)
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        let byte = || {
            let mut chars = token.chars();
            let byte = chars.next().map(u32::from).filter(|&byte| byte < 256)?;
            chars.next().is_none().then_some(byte + OFFSET)
        };
        self.added.id(token).or_else(byte)
    }

    pub(super) fn tokens(&self) -> Vec<(u32, String, bool)> {
        let bytes = (0..=255).map(|byte| (byte + OFFSET, byte_token(byte), false));
        let added = self.added.iter().map(|(id, token)| {
            let special = token.special || self.special.contains(&token.content);
            (id, token.content.clone(), special)
        });
        bytes.chain(added).collect()
    }

    pub(super) fn vocab_size(&self) -> usize {
        self.tokens().into_iter().map(|(_, token, _)| token).collect::<HashSet<_>>().len()
    }

    pub(super) fn decoder(&self, clean_up: bool) -> Decoder {
        Decoder::of_bytes(self.added.iter().map(|(_, token)| token.content.clone()), clean_up)
    }
}

/// The token of a byte: the character of the same number.
fn byte_token(byte: u32) -> String {
    char::from_u32(byte).into_iter().collect()
}
