//! Python's string functions that Rust lacks or defines differently: white space, lines and case as in Python.

/// Whether Python treats it as white space.
pub(super) fn is_space(char: char) -> bool {
    char.is_whitespace() || ('\x1c'..='\x1f').contains(&char)
}

/// Whether it ends a line.
pub(super) fn is_line_end(char: char) -> bool {
    matches!(char, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// `str.splitlines()`
pub(super) fn lines(text: &str, with_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(is_line_end) {
        let next = if rest[end..].starts_with("\r\n") {
            2
        } else {
            rest[end..].chars().next().map_or(1, char::len_utf8)
        };
        lines.push(&rest[..if with_ends { end + next } else { end }]);
        rest = &rest[end + next..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// Strips white space, or the characters of `chars`, from the requested sides.
pub(super) fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
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
        Some(separator) => return text.splitn(most.saturating_add(1), separator).collect(),
        None if from_right => words_from_right(text, most),
        None => return words(text, most),
    };
    parts.reverse();
    parts
}

fn words(text: &str, most: usize) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if words.len() == most {
            words.push(rest);
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        words.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    words
}

fn words_from_right(text: &str, most: usize) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if words.len() == most {
            words.push(rest);
            break;
        }
        let start = rest.char_indices().rev().find(|(_, char)| is_space(*char));
        let start = start.map_or(0, |(index, char)| index + char.len_utf8());
        words.push(&rest[start..]);
        rest = rest[..start].trim_end_matches(is_space);
    }
    words
}

/// `str.capitalize()`
pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let mut out: String = chars.next().map(title_char).into_iter().collect();
    // Lower-cases the whole string: a sigma at the end of a word has its own form.
    let lower = text.to_lowercase();
    let first: usize = text.chars().next().map_or(0, |char| char.to_lowercase().map(char::len_utf8).sum());
    out.push_str(lower.get(first..).unwrap_or_default());
    out
}

/// `str.title()`: upper case after each character that is not a letter.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for char in text.chars() {
        if in_word {
            out.extend(char.to_lowercase());
        } else {
            out.push_str(&title_char(char));
        }
        in_word = is_cased(char);
    }
    out
}

/// `str.swapcase()`
pub(super) fn swapcase(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_uppercase() {
            out.extend(char.to_lowercase());
        } else {
            out.extend(char.to_uppercase());
        }
    }
    out
}

/// The title case of a character: of digraphs, only the first letter is upper case.
fn title_char(char: char) -> String {
    match char {
        'Ǆ' | 'ǅ' | 'ǆ' => "ǅ".to_owned(),
        'Ǉ' | 'ǈ' | 'ǉ' => "ǈ".to_owned(),
        'Ǌ' | 'ǋ' | 'ǌ' => "ǋ".to_owned(),
        'Ǳ' | 'ǲ' | 'ǳ' => "ǲ".to_owned(),
        _ => {
            let mut upper = char.to_uppercase();
            let first: String = upper.next().into_iter().collect();
            first + &upper.flat_map(char::to_lowercase).collect::<String>()
        }
    }
}

/// Whether Python counts a character as cased.
fn is_cased(char: char) -> bool {
    char.is_lowercase() || char.is_uppercase() || matches!(char, 'ǅ' | 'ǈ' | 'ǋ' | 'ǲ')
}

/// The alignment of a string within a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
    Center,
}

/// Pads a string to a width in characters.
pub(super) fn pad(text: &str, width: usize, fill: char, side: Side) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let before = match side {
        Side::Left => 0,
        Side::Right => missing,
        Side::Center => missing / 2 + (missing & width & 1),
    };
    let fill = |count: usize| std::iter::repeat_n(fill, count);
    fill(before).chain(text.chars()).chain(fill(missing - before)).collect()
}
