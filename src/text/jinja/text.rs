//! Python's string functions that Rust lacks or defines differently: white space, lines and case as in Python.

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

/// `str.capitalize()`
pub(super) fn capitalize(text: &str) -> String {
    let Some(first) = text.chars().next() else { return String::new() };
    // Lower-cases the whole string: a sigma at the end of a word has its own form.
    let lower = text.to_lowercase();
    title_char(first).chars().chain(lower.chars().skip(first.to_lowercase().count())).collect()
}

/// `str.title()`: upper case after each character that is not a letter.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for char in text.chars() {
        if in_word {
            out.extend(char.to_lowercase());
        } else if char.is_ascii() {
            out.push(char.to_ascii_uppercase());
        } else {
            out.push_str(&title_char(char));
        }
        in_word = char.is_lowercase() || char.is_uppercase() || matches!(char, 'ǅ' | 'ǈ' | 'ǋ' | 'ǲ');
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
            let upper = char.to_uppercase().enumerate();
            upper
                .map(|(index, char)| if index > 0 { char.to_lowercase().to_string() } else { char.into() })
                .collect()
        }
    }
}
