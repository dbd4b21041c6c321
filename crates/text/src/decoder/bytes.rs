//! Tokens that stand for bytes, and the text of bytes as far as it is known.

use std::collections::HashSet;

/// The byte that each character below U+0144 stands for in byte-level vocabularies: printable Latin-1
/// characters stand for themselves, the other bytes follow from U+0100 on, in order.
pub(super) const BYTE_OF_CHAR: [Option<u8>; 0x144] = {
    let mut table = [None; 0x144];
    let mut next = 0x100;
    let mut byte = 0_usize;
    while byte < 256 {
        if matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) {
            table[byte] = Some(byte as u8);
        } else {
            table[next] = Some(byte as u8);
            next += 1;
        }
        byte += 1;
    }
    table
};

/// A token with a character that stands for no byte is its own text.
pub(super) fn byte_level_bytes(token: &str) -> Vec<u8> {
    let byte = |char: char| BYTE_OF_CHAR.get(char as usize).copied().flatten();
    token.chars().map(byte).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The bytes of a token of characters that are bytes, or of an added one.
pub(super) fn character_bytes(token: &str, added: &HashSet<String>) -> Vec<u8> {
    let bytes: Result<Vec<u8>, _> = token.chars().map(|char| u8::try_from(u32::from(char))).collect();
    match bytes {
        Ok(bytes) if !added.contains(token) => bytes,
        _ => token.as_bytes().to_vec(),
    }
}

pub(super) fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

pub(super) fn emit_byte_run(run: &mut Vec<u8>, emit: &mut impl FnMut(&str)) {
    match str::from_utf8(run) {
        Ok("") => {}
        Ok(text) => emit(text),
        Err(_) => (0..run.len()).for_each(|_| emit("\u{fffd}")),
    }
    run.clear();
}

/// Removes the text at the start of `bytes` and returns it, with `invalid` for each invalid part. A character
/// that may still be completed stays, unless `last`.
pub(super) fn take_text(bytes: &mut Vec<u8>, last: bool, invalid: &str) -> String {
    let mut text = String::new();
    let mut taken = 0;
    while taken < bytes.len() {
        match str::from_utf8(&bytes[taken..]) {
            Ok(valid) => {
                text.push_str(valid);
                taken = bytes.len();
            }
            Err(error) => {
                let valid = &bytes[taken..taken + error.valid_up_to()];
                text.push_str(&String::from_utf8_lossy(valid));
                taken += valid.len();
                match error.error_len() {
                    Some(length) => taken += length,
                    None if last => taken = bytes.len(),
                    None => break,
                }
                text.push_str(invalid);
            }
        }
    }
    bytes.drain(..taken);
    text
}
