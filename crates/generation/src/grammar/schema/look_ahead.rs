//! Patterns that look ahead where they begin, as pydantic writes decimal numbers and zod addresses of mail. The
//! engine does not look ahead, but a text can match several patterns at once: what was looked for, and the rest.

/// A pattern without the `(?!…)` at its beginning, and the patterns that a text must match besides. What is in none
/// of the known forms stays, and is refused by its reader.
pub(super) fn split(pattern: &str) -> (String, Vec<String>) {
    let (mut rest, mut besides) = (pattern, Vec::new());
    while let Some(ahead) = ahead_of(pattern, rest) {
        let Some((beside, after)) = one(ahead) else { break };
        besides.push(beside);
        rest = after;
    }
    let whole = if besides.is_empty() { pattern.to_owned() } else { format!("^{rest}") };
    (whole, besides)
}

/// What follows the bracket of a look ahead, if what is left of a pattern begins with one.
fn ahead_of<'a>(pattern: &'a str, rest: &'a str) -> Option<&'a str> {
    let after_anchor = if rest.len() == pattern.len() { rest.strip_prefix('^')? } else { rest };
    after_anchor.strip_prefix("(?!")
}

/// The pattern that stands for a look ahead, and what follows its bracket.
fn one(ahead: &str) -> Option<(String, &str)> {
    // Not only letters of a class: one of the others.
    if let Some((class, after)) = ahead.strip_prefix("^[").and_then(|ahead| ahead.split_once("]*$)")) {
        let is_plain = !class.contains(['[', ']', '\\', '^']);
        return is_plain.then(|| (format!("[^{class}]"), after));
    }
    // Nowhere twice the same letter in a row.
    if let Some(ahead) = ahead.strip_prefix(".*") {
        let (letter, after) = letter(ahead)?;
        let after = after.strip_prefix(letter)?.strip_prefix(')')?;
        return Some((format!("^(?s:[^{letter}]|{letter}[^{letter}])*{letter}?$"), after));
    }
    // Not this letter first.
    let (letter, after) = letter(ahead)?;
    Some((format!("^(?s:[^{letter}].*)?$"), after.strip_prefix(')')?))
}

/// A letter of a pattern, as it is written there.
fn letter(pattern: &str) -> Option<(&str, &str)> {
    let mut letters = pattern.chars();
    let len = match letters.next()? {
        '\\' => 1 + letters.next().filter(char::is_ascii_punctuation)?.len_utf8(),
        letter if letter.is_ascii_alphanumeric() => 1,
        _ => return None,
    };
    Some(pattern.split_at(len))
}
