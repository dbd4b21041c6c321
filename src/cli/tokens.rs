//! Formats single tokens, for people and as JSON.

use std::fmt::Write as _;

use rsgen_core::{TokenId, escape};
use rsgen_text::Tokenizer;

/// A token for people: its text in quotes, with bytes that are no whole character as `\xe2`; a special token
/// as the vocabulary writes it. At most 200 characters, none of them hidden.
pub(super) fn shown(tokenizer: &Tokenizer, id: TokenId) -> String {
    let Some(token) = tokenizer.token(id) else { return "no token".to_owned() };
    if tokenizer.is_special(id) {
        return escape::name(&token.escape_debug().to_string()).into_owned();
    }
    let mut shown = String::from("\"");
    for chunk in tokenizer.token_bytes(id).unwrap_or_default().utf8_chunks() {
        let _ = write!(shown, "{}", chunk.valid().escape_debug());
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown.push('"');
    escape::name(&shown).into_owned()
}

/// The ids as numbers.
pub(super) fn numbers(ids: impl IntoIterator<Item = TokenId>) -> Vec<u32> {
    ids.into_iter().map(|id| id.0).collect()
}

/// The tokens as the vocabulary writes them, such as `Ġthe`; empty for an id that is not a token.
pub(super) fn names(tokenizer: &Tokenizer, ids: impl IntoIterator<Item = TokenId>) -> Vec<Option<&str>> {
    ids.into_iter().map(|id| tokenizer.token(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_characters_and_control_characters_are_written_out() {
        let json = br#"{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "post_processor": null, "added_tokens": [{"id": 3, "content": "\u001b[2J",
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            "model": {"type": "WordLevel", "vocab": {"a\u0120\u00c3\u00a9\u00c3": 0, "\u010a\"": 1, "x": 2},
            "unk_token": "x"}}"#;
        let tokenizer = Tokenizer::from_bytes(json, None, None).unwrap();
        let all = [0, 1, 2, 3, 4].map(|id| shown(&tokenizer, TokenId(id)));
        assert_eq!(all, [r#""a é\xc3""#, r#""\n\"""#, r#""x""#, r"\u{1b}[2J", "no token"]);
    }
}
