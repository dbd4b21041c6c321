//! The tokens of a tag, as Jinja reads them.

/// The most tokens within one tag.
const MAX_TAG_TOKENS: usize = 2000;
const SIGNS: [&str; 6] = ["//", "**", "==", "!=", "<=", ">="];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Number,
    Text,
    Sign,
}

/// A token, and how many lines begin before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind,
    pub(super) text: &'s str,
    pub(super) lines: usize,
}

impl Token<'_> {
    pub(super) fn is(&self, kind: Kind, text: &str) -> bool {
        self.kind == kind && self.text == text
    }
}

/// A tag after its opening sign.
pub(super) struct Tag<'s> {
    /// `-` or `+`, or nothing.
    pub(super) open: &'s str,
    pub(super) tokens: Vec<Token<'s>>,
    pub(super) close: &'s str,
    /// Where it ends in the source.
    pub(super) end: usize,
}

/// Reads a tag whose inside begins at `start` and which ends with `closing`.
pub(super) fn tag<'s>(source: &'s str, start: usize, closing: &str) -> Result<Tag<'s>, String> {
    let open = if source[start..].starts_with(['-', '+']) { &source[start..=start] } else { "" };
    let mut at = start + open.len();
    let (mut tokens, mut depth, mut lines) = (Vec::<Token<'_>>::new(), 0_usize, 0);
    loop {
        let rest = &source[at..];
        let Some(char) = rest.chars().next() else { return Err(format!("a tag has no `{closing}`")) };
        if char.is_whitespace() {
            lines += usize::from(char == '\n');
            at += char.len_utf8();
            continue;
        }
        let mark = usize::from(char == '-' || (char == '+' && closing == "%}"));
        if depth == 0 && rest[mark..].starts_with(closing) {
            let end = at + mark + closing.len();
            return Ok(Tag { open, tokens, close: &rest[..mark], end });
        }
        let after_point = tokens.last().is_some_and(|token| token.is(Kind::Sign, "."));
        let (kind, length) = match char {
            '"' | '\'' => (Kind::Text, text_length(rest, char)?),
            '0'..='9' => (Kind::Number, number_length(rest, after_point)),
            _ if char.is_alphabetic() || char == '_' => {
                let is_outside = |char: char| !char.is_alphanumeric() && char != '_';
                (Kind::Name, rest.find(is_outside).unwrap_or(rest.len()))
            }
            _ if SIGNS.iter().any(|sign| rest.starts_with(sign)) => (Kind::Sign, 2),
            _ if "+-/*%~[](){}<>=.:|,".contains(char) => (Kind::Sign, 1),
            _ => return Err(format!("unexpected `{char}`")),
        };
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.checked_sub(1).ok_or_else(|| format!("unexpected `{char}`"))?;
            }
            _ => {}
        }
        tokens.push(Token { kind, text: &rest[..length], lines });
        if tokens.len() > MAX_TAG_TOKENS {
            return Err(format!("a tag may have at most {MAX_TAG_TOKENS} tokens"));
        }
        lines = 0;
        at += length;
    }
}

fn text_length(rest: &str, quote: char) -> Result<usize, String> {
    let mut is_escaped = false;
    for (place, char) in rest.char_indices().skip(1) {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if char == quote => return Ok(place + 1),
            _ => {}
        }
    }
    Err("a text has no closing quote".to_owned())
}

/// Digits; after a point they are whole, as in `messages.0.role`.
fn number_length(rest: &str, after_point: bool) -> usize {
    let bytes = rest.as_bytes();
    let digit = |place: usize| bytes.get(place).is_some_and(u8::is_ascii_digit);
    let digits = |mut place: usize| {
        while digit(place) || (bytes.get(place) == Some(&b'_') && digit(place + 1)) {
            place += 1;
        }
        place
    };
    if bytes[0] == b'0' && matches!(bytes.get(1), Some(b'x' | b'X' | b'b' | b'B' | b'o' | b'O')) {
        return rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(rest.len());
    }
    let mut end = digits(0);
    if after_point {
        return end;
    }
    if bytes.get(end) == Some(&b'.') && digit(end + 1) {
        end = digits(end + 1);
    }
    let signed = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
    if matches!(bytes.get(end), Some(b'e' | b'E')) && digit(signed) {
        end = digits(signed);
    }
    end
}
