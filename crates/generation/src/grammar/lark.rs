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
    /// The name of a special token, such as `</s>`.
    Special,
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
        '<' if let Some(len) = special(rest) => (len, Piece::Special),
        letter if is_in_name(letter) => {
            (rest.find(|letter| !is_in_name(letter)).unwrap_or(rest.len()), Piece::Name)
        }
        letter => (letter.len_utf8(), Piece::Sign(letter)),
    })
}

/// The bytes of the name of a special token, if there is one.
fn special(rest: &str) -> Option<usize> {
    let end = 1 + rest[1..].find(|letter: char| letter == '<' || letter == '>' || letter.is_whitespace())?;
    (end > 1 && rest[end..].starts_with('>')).then_some(end + 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_expressions_are_found_beside_whatever_else_has_slashes_and_quotes() {
        let text = "start: </s> \"a/\\\"b\"i /\\d\\/[\"]/is | X{1,2} // /no/ \"\n# it's /no/\n<|im/end|> %json {\"a\": \"/no/\"} /x/ a<b /y";
        let pieces: Vec<_> = pieces(text).map(|(_, _, piece)| piece).collect();
        let regexes: Vec<_> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Regex { pattern, flags } => Some((*pattern, *flags)),
                _ => None,
            })
            .collect();
        assert_eq!(regexes, [("\\d\\/[\"]", "is"), ("x", ""), ("y", "")]);
        let count = |kind: Piece<'_>| pieces.iter().filter(|piece| **piece == kind).count();
        assert_eq!((count(Piece::Special), count(Piece::Comment), count(Piece::Count)), (2, 2, 1));
        let json = Piece::Json { keyword: "%json", value: serde_json::json!({"a": "/no/"}) };
        assert_eq!((count(Piece::Text), count(json)), (1, 1));
    }
}
