//! A table of the bytes that each token adds to a text, to match stop strings and constraints.
//!
//! Bytes rather than text, because a token may hold half a character. Special tokens have the bytes of their
//! text; the decoder decides whether to skip them.

use super::decoder::Decoder;

/// One flat buffer: a vocabulary of 128,000 tokens takes about 1.5 MB.
#[derive(Debug)]
pub(super) struct TokenBytes {
    bytes: Box<[u8]>,
    /// Where each token ends in `bytes`.
    ends: Box<[u32]>,
}

impl TokenBytes {
    /// The table for tokens in the order of their ids; an id without a token has no bytes.
    pub(super) fn new(decoder: &Decoder, tokens: &[Option<Box<str>>]) -> Self {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(tokens.len());
        for token in tokens {
            if let Some(token) = token {
                bytes.extend(decoder.bytes(token));
            }
            // The texts come from a file of at most 64 MiB. A decoder may lengthen them; beyond 4 GiB they
            // are cut.
            bytes.truncate(u32::MAX as usize);
            ends.push(bytes.len() as u32);
        }
        Self { bytes: bytes.into_boxed_slice(), ends: ends.into_boxed_slice() }
    }

    /// The bytes of the token with this id; `None` beyond the table.
    pub(super) fn get(&self, id: usize) -> Option<&[u8]> {
        let end = *self.ends.get(id)?;
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start as usize..end as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_its_own_slice() {
        let decoder = Decoder::from_json(&serde_json::json!({"type": "ByteLevel"}), false).unwrap();
        let tokens = [Some("Ġa".into()), None, Some("".into()), Some("bc".into())];
        let table = TokenBytes::new(&decoder, &tokens);
        let expected: [Option<&[u8]>; 5] = [Some(b" a"), Some(b""), Some(b""), Some(b"bc"), None];
        assert_eq!([0, 1, 2, 3, 4].map(|id| table.get(id)), expected);
    }
}
