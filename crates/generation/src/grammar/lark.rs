//! The text of a grammar in the notation of Lark, in pieces: where its regular expressions and schemas are.

use serde_json::Value;

/// A piece of a grammar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece<'a> {
    /// A text in quotes.
    Text,
    /// A regular expression, without its slashes, and the letters after them.
    Regex { pattern: &'a str, flags: &'a str },
    /// The JSON after a keyword such as `%json`.
    Json { keyword: &'a str, value: Value },
    /// The name of a rule or a terminal, or a number.
    Name,
    /// `{…}` after what repeats.
    Count,
    /// A comment.
    Comment,
    /// Any other letter.
    Sign(char),
}

/// Splits a text into pieces, each with where it begins. What is no Lark is a sign: llguidance refuses it.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = (usize, &str, Piece<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let (len, piece) = first(rest)?;
        let piece = (at, &rest[..len], piece);
        at += len;
        Some(piece)
    })
}

fn first(rest: &str) -> Option<(usize, Piece<'_>)> {
    let letter = rest.chars().next()?;
    let line = || (rest.find('\n').unwrap_or(rest.len()), Piece::Comment);
    Some(match letter {
        '"' => (1 + quoted(&rest[1..], '"'), Piece::Text),
        '#' => line(),
        '/' if rest.starts_with("//") => line(),
        '/' => {
            let end = 1 + quoted(&rest[1..], '/');
            let after = &rest[end..];
            let flags = &after[..after.find(|flag| !"imslux".contains(flag)).unwrap_or(after.len())];
            let pattern = rest[1..end].strip_suffix('/').unwrap_or(&rest[1..end]);
            (end + flags.len(), Piece::Regex { pattern, flags })
        }
        '{' => (rest.find('}').map_or(1, |end| end + 1), Piece::Count),
        '%' => {
            let end = 1 + rest[1..].find(|letter| !is_in_name(letter)).unwrap_or(rest.len() - 1);
            let (keyword, after) = rest.split_at(end);
            let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
            match values.next() {
                Some(Ok(value)) if ["%json", "%regex", "%llguidance"].contains(&keyword) => {
                    (end + values.byte_offset(), Piece::Json { keyword, value })
                }
                _ => (end, Piece::Sign('%')),
            }
        }
        letter if is_in_name(letter) => {
            (rest.find(|letter| !is_in_name(letter)).unwrap_or(rest.len()), Piece::Name)
        }
        letter => (letter.len_utf8(), Piece::Sign(letter)),
    })
}

fn is_in_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

/// The bytes up to the end of a quoted text, its mark included.
fn quoted(text: &str, mark: char) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().find(|(_, letter)| {
        let ends = *letter == mark && !is_escaped;
        is_escaped = *letter == '\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + mark.len_utf8())
}
