//! The tokens of a tag, as Jinja reads them.

use std::sync::LazyLock;

use fancy_regex::Regex;

/// The deepest nesting of brackets: below minijinja's limit.
const MAX_DEPTH: usize = 40;
/// The most tokens within one tag.
const MAX_TAG_TOKENS: usize = 2000;
/// A string, a number, a name or a sign. An unterminated string does not match.
const TOKEN: &str = r#"(?x) ^(?:
    (?s: "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) |
    0[bB](?:_?[01])+ | 0[oO](?:_?[0-7])+ | 0[xX](?:_?[0-9a-fA-F])+ |
    [0-9](?:_?[0-9])*(?: (?:\.[0-9](?:_?[0-9])*)? [eE][-+]?[0-9](?:_?[0-9])* | \.[0-9](?:_?[0-9])* )? |
    \w+ |
    // | \*\* | [=!<>]= | [-+/*%~\[\](){}<>=.:|,]
)"#;

/// Whether a token is a string.
pub(super) fn is_text(token: &str) -> bool {
    token.starts_with(['"', '\''])
}

pub(super) fn is_number(token: &str) -> bool {
    token.starts_with(|char: char| char.is_ascii_digit())
}

pub(super) fn is_name(token: &str) -> bool {
    !is_text(token) && !is_number(token) && !is_sign(token)
}

pub(super) fn is_sign(token: &str) -> bool {
    token.starts_with(|char: char| char.is_ascii_punctuation() && !['_', '"', '\''].contains(&char))
}

/// A tag without its opening sign.
pub(super) struct Tag<'s> {
    /// `-`, `+` or empty.
    pub(super) open: &'s str,
    pub(super) tokens: Vec<&'s str>,
    pub(super) close: &'s str,
    /// Where it ends in the source.
    pub(super) end: usize,
}

/// Reads a tag whose inside begins at `start` and which ends with `closing`.
pub(super) fn tag<'s>(source: &'s str, start: usize, closing: &str) -> Result<Tag<'s>, String> {
    static REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(TOKEN).ok());
    let open = if source[start..].starts_with(['-', '+']) { &source[start..=start] } else { "" };
    let mut rest = &source[start + open.len()..];
    let (mut tokens, mut depth) = (Vec::new(), 0_usize);
    loop {
        rest = rest.trim_start();
        let mark = usize::from(rest.starts_with('-') || (rest.starts_with('+') && closing == "%}"));
        if depth == 0 && rest[mark..].starts_with(closing) {
            let end = source.len() - rest.len() + mark + closing.len();
            return Ok(Tag { open, tokens, close: &rest[..mark], end });
        }
        let Some(found) = REGEX.as_ref().and_then(|regex| regex.find(rest).ok()?) else {
            let unexpected = rest.chars().next().map(|char| format!("unexpected `{char}`"));
            return Err(unexpected.unwrap_or_else(|| format!("a tag has no `{closing}`")));
        };
        let (mut token, mut after) = rest.split_at(found.end());
        // After a point numbers are integers, as in `messages.0.role`.
        if is_number(token) && tokens.last() == Some(&".") {
            (token, after) =
                rest.split_at(rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len()));
        }
        match token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1).ok_or_else(|| format!("unexpected `{token}`"))?,
            _ => {}
        }
        tokens.push(token);
        if depth > MAX_DEPTH {
            return Err(format!("expressions may be nested {MAX_DEPTH} deep"));
        }
        if tokens.len() > MAX_TAG_TOKENS {
            return Err(format!("a tag may have at most {MAX_TAG_TOKENS} tokens"));
        }
        rest = after;
    }
}
