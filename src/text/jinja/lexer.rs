//! The tokens of a tag, as Jinja reads them.

use std::sync::LazyLock;

use regex::Regex;

/// The most tokens within one tag.
const MAX_TAG_TOKENS: usize = 2000;
/// A string, a number, a name or a sign, one group each. An unterminated string does not match.
const TOKEN: &str = r#"(?x) ^(?:
    ( (?s) "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) |
    ( 0[bB](?:_?[01])+ | 0[oO](?:_?[0-7])+ | 0[xX](?:_?[0-9a-fA-F])+
        | [0-9](?:_?[0-9])*(?: (?:\.[0-9](?:_?[0-9])*)? [eE][-+]?[0-9](?:_?[0-9])* | \.[0-9](?:_?[0-9])* )? ) |
    ( \w+ ) |
    ( // | \*\* | [=!<>]= | [-+/*%~\[\](){}<>=.:|,] )
)"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Name,
    Sign,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind,
    pub(super) text: &'s str,
}

impl Token<'_> {
    /// Whether it is this sign or word, not a string.
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

/// A tag without its opening sign.
pub(super) struct Tag<'s> {
    /// `-`, `+` or empty.
    pub(super) open: &'s str,
    pub(super) tokens: Vec<Token<'s>>,
    pub(super) close: &'s str,
    /// Where it ends in the source.
    pub(super) end: usize,
}

/// Reads a tag whose inside begins at `start` and which ends with `closing`.
pub(super) fn tag<'s>(source: &'s str, start: usize, closing: &str) -> Result<Tag<'s>, String> {
    static REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(TOKEN).ok());
    let open = if source[start..].starts_with(['-', '+']) { &source[start..=start] } else { "" };
    let mut at = start + open.len();
    let (mut tokens, mut depth) = (Vec::<Token<'_>>::new(), 0_usize);
    loop {
        let rest = &source[at..];
        let Some(char) = rest.chars().next() else { return Err(format!("a tag has no `{closing}`")) };
        if char.is_whitespace() {
            at += char.len_utf8();
            continue;
        }
        let mark = usize::from(char == '-' || (char == '+' && closing == "%}"));
        if depth == 0 && rest[mark..].starts_with(closing) {
            return Ok(Tag { open, tokens, close: &rest[..mark], end: at + mark + closing.len() });
        }
        let found = REGEX.as_ref().and_then(|regex| regex.captures(rest));
        let kinds = [(1, Kind::Text), (2, Kind::Number), (3, Kind::Name), (4, Kind::Sign)];
        let token = found.and_then(|found| {
            kinds.into_iter().find_map(|(group, kind)| Some((kind, found.get(group)?.end())))
        });
        let Some((kind, mut length)) = token else { return Err(format!("unexpected `{char}`")) };
        // After a point numbers are integers, as in `messages.0.role`.
        if kind == Kind::Number && tokens.last().is_some_and(|token| token.is(".")) {
            length = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        }
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.checked_sub(1).ok_or_else(|| format!("unexpected `{char}`"))?;
            }
            _ => {}
        }
        tokens.push(Token { kind, text: &rest[..length] });
        if tokens.len() > MAX_TAG_TOKENS {
            return Err(format!("a tag may have at most {MAX_TAG_TOKENS} tokens"));
        }
        at += length;
    }
}
