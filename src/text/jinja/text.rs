//! Python's string functions that Rust lacks or defines differently: white space, lines and case as in Python.

use minijinja::Value;

use super::value::Result;
use super::{budget, native};

/// The steps of changing the case of a word.
const WORD_STEPS: usize = 8;

/// Whether Python treats it as white space.
pub(super) fn is_space(char: char) -> bool {
    char.is_whitespace() || ('\x1c'..='\x1f').contains(&char)
}

/// Whether it ends a line.
fn is_line_end(char: char) -> bool {
    matches!(char, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// `str.splitlines()`
pub(super) fn lines(text: &str, with_ends: bool) -> Vec<&str> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while let Some(end) = rest.find(is_line_end) {
        let width = rest[end..].chars().next().map_or(1, char::len_utf8);
        let width = if rest[end..].starts_with("\r\n") { 2 } else { width };
        lines.push(&rest[..if with_ends { end + width } else { end }]);
        rest = &rest[end + width..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// Strips white space, or the characters of `chars`, from the requested sides.
pub(in crate::text) fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let set: Option<std::collections::HashSet<char>> = chars.map(|chars| chars.chars().collect());
    let is_stripped = |char: char| set.as_ref().map_or_else(|| is_space(char), |set| set.contains(&char));
    let text = if left { text.trim_start_matches(is_stripped) } else { text };
    if right { text.trim_end_matches(is_stripped) } else { text }
}

/// `str.split()`, from either end. `separator` must not be empty.
pub(super) fn split<'a>(
    text: &'a str,
    separator: Option<&str>,
    most: usize,
    from_right: bool,
) -> Vec<&'a str> {
    let mut parts: Vec<&str> = match separator {
        Some(separator) if from_right => text.rsplitn(most.saturating_add(1), separator).collect(),
        Some(separator) => text.splitn(most.saturating_add(1), separator).collect(),
        None => words(text, most, from_right),
    };
    if from_right {
        parts.reverse();
    }
    parts
}

fn words(text: &str, most: usize, from_right: bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = strip(text, None, !from_right, from_right);
    while !rest.is_empty() {
        let space = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(space) = space.filter(|_| words.len() < most) else {
            words.push(rest);
            break;
        };
        let width = rest[space..].chars().next().map_or(1, char::len_utf8);
        let (before, after) = (&rest[..space], &rest[space + width..]);
        let (word, left) = if from_right { (after, before) } else { (before, after) };
        words.push(word);
        rest = strip(left, None, !from_right, from_right);
    }
    words
}

/// `str.title()`: upper case after each character that is not a letter.
pub(super) fn title(text: &str) -> Result<Value> {
    let is_letter =
        |char: char| char.is_lowercase() || char.is_uppercase() || matches!(char, 'ǅ' | 'ǈ' | 'ǋ' | 'ǲ');
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(is_letter) {
        budget::steps(WORD_STEPS)?;
        let (before, word) = rest.split_at(start);
        let (word, after) = word.split_at(word.find(|char| !is_letter(char)).unwrap_or(word.len()));
        out += before;
        out += native::filter("capitalize", &[Value::from(word)])?.as_str().unwrap_or(word);
        rest = after;
    }
    Ok(Value::from(out + rest))
}
