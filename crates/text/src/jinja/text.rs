//! Python's string functions that Rust lacks or defines differently: white space, lines and case as in
//! Python.

use minijinja::{State, Value};

use super::value::Result;

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
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.find(is_line_end).unwrap_or(rest.len()));
        let is_pair = after.starts_with("\r\n");
        let end = if is_pair { 2 } else { after.chars().next().map_or(0, char::len_utf8) };
        lines.push(if with_ends { &rest[..line.len() + end] } else { line });
        rest = &after[end..];
    }
    lines
}

/// Strips white space, or the characters of `chars`, from the requested sides.
pub(crate) fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
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
    let stripped =
        |text: &'a str| if separator.is_none() { strip(text, None, !from_right, from_right) } else { text };
    let (mut parts, mut rest) = (Vec::new(), stripped(text));
    while parts.len() < most {
        let cut = match separator {
            Some(separator) if from_right => rest.rsplit_once(separator),
            Some(separator) => rest.split_once(separator),
            None if from_right => rest.rsplit_once(is_space),
            None => rest.split_once(is_space),
        };
        let Some((left, right)) = cut else { break };
        parts.push(if from_right { right } else { left });
        rest = stripped(if from_right { left } else { right });
    }
    if separator.is_some() || !rest.is_empty() {
        parts.push(rest);
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// `str.title()`: upper case after each character that is not a letter.
pub(super) fn title(state: &mut State<'_, '_>, text: &str) -> Result<Value> {
    let is_letter =
        |char: char| char.is_lowercase() || char.is_uppercase() || matches!(char, 'ǅ' | 'ǈ' | 'ǋ' | 'ǲ');
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(is_letter) {
        let (before, word) = rest.split_at(start);
        let (word, after) = word.split_at(word.find(|char| !is_letter(char)).unwrap_or(word.len()));
        out += before;
        let word = state.apply_filter("capitalize", &[Value::from(word)])?;
        out += word.as_str().unwrap_or_default();
        rest = after;
    }
    Ok(Value::from(out + rest))
}
