//! JSON read byte by byte: whether a text can still become a value, and where in it the text is.

/// The deepest nesting of brackets in a call.
const MAX_DEPTH: usize = 128;

/// What may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Value,
    /// The first item of a list, or its end.
    ItemOrEnd,
    /// The first key of an object, or its end.
    KeyOrEnd,
    Key,
    Colon,
    /// A comma, or the end of what is open.
    After,
    Text {
        is_key: bool,
    },
    Escape {
        is_key: bool,
    },
    Hex {
        is_key: bool,
        left: u8,
    },
    Number(Number),
    Word(&'static [u8]),
    /// Nothing: the value is whole.
    End,
}

/// The part of a number that was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// The place in a value.
#[derive(Debug, Clone)]
pub(super) struct JsonReader {
    /// The brackets that are open.
    open: Vec<u8>,
    place: Place,
}

impl JsonReader {
    /// Before a value.
    pub(super) fn new() -> Self {
        Self { open: Vec::new(), place: Place::Value }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether what comes next is the value of a key.
    pub(super) fn is_member(&self) -> bool {
        self.place == Place::Value && self.open.last() == Some(&b'{')
    }

    /// Whether it is within a text.
    pub(super) fn is_in_text(&self) -> bool {
        matches!(self.place, Place::Text { .. })
    }

    /// Reads a letter, and returns whether the text can still become a value. Control characters in texts are
    /// not looked at: models write line breaks there.
    pub(super) fn push(&mut self, letter: char) -> bool {
        let mut bytes = [0; 4];
        letter.encode_utf8(&mut bytes).bytes().all(|byte| self.push_byte(byte))
    }

    fn push_byte(&mut self, byte: u8) -> bool {
        let next = match self.place {
            Place::Text { is_key } => match byte {
                b'"' if is_key => Some(Place::Colon),
                b'"' => Some(self.after()),
                b'\\' => Some(Place::Escape { is_key }),
                _ => Some(self.place),
            },
            Place::Escape { is_key } => match byte {
                b'u' => Some(Place::Hex { is_key, left: 4 }),
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(Place::Text { is_key }),
                _ => None,
            },
            Place::Hex { is_key, left } => byte.is_ascii_hexdigit().then_some(match left {
                1 => Place::Text { is_key },
                left => Place::Hex { is_key, left: left - 1 },
            }),
            Place::Word([first, rest @ ..]) if *first == byte => {
                Some(if rest.is_empty() { self.after() } else { Place::Word(rest) })
            }
            Place::Word(_) => None,
            Place::Number(number) => match number.next(byte) {
                Some(number) => Some(Place::Number(number)),
                None if number.may_end() => {
                    self.place = self.after();
                    return self.push_byte(byte);
                }
                None => None,
            },
            place if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => Some(place),
            place => self.next(place, byte),
        };
        next.inspect(|&place| self.place = place).is_some()
    }

    /// What follows a sign.
    fn next(&mut self, place: Place, byte: u8) -> Option<Place> {
        use Place::{After, Colon, ItemOrEnd, Key, KeyOrEnd, Text, Value};
        match (place, byte) {
            (KeyOrEnd, b'}') | (ItemOrEnd, b']') => Some(self.close()),
            (After, b'}') if self.open.last() == Some(&b'{') => Some(self.close()),
            (After, b']') if self.open.last() == Some(&b'[') => Some(self.close()),
            (After, b',') => Some(if self.open.last() == Some(&b'{') { Key } else { Value }),
            (Key | KeyOrEnd, b'"') => Some(Text { is_key: true }),
            (Colon, b':') => Some(Value),
            (Value | ItemOrEnd, _) => self.value(byte),
            _ => None,
        }
    }

    fn value(&mut self, byte: u8) -> Option<Place> {
        Some(match byte {
            b'{' | b'[' if self.open.len() == MAX_DEPTH => return None,
            b'{' => {
                self.open.push(byte);
                Place::KeyOrEnd
            }
            b'[' => {
                self.open.push(byte);
                Place::ItemOrEnd
            }
            b'"' => Place::Text { is_key: false },
            b'-' => Place::Number(Number::Minus),
            b'0' => Place::Number(Number::Zero),
            b'1'..=b'9' => Place::Number(Number::Digits),
            b't' => Place::Word(b"rue"),
            b'f' => Place::Word(b"alse"),
            b'n' => Place::Word(b"ull"),
            _ => return None,
        })
    }

    fn close(&mut self) -> Place {
        self.open.pop();
        self.after()
    }

    /// The place after a value.
    fn after(&self) -> Place {
        if self.open.is_empty() { Place::End } else { Place::After }
    }
}

impl Number {
    fn next(self, byte: u8) -> Option<Self> {
        use Number::{Digits, Exponent, ExponentDigits, ExponentSign, Fraction, Minus, Point, Zero};
        match (self, byte) {
            (Minus, b'0') => Some(Zero),
            (Minus, b'1'..=b'9') | (Digits, b'0'..=b'9') => Some(Digits),
            (Zero | Digits, b'.') => Some(Point),
            (Point | Fraction, b'0'..=b'9') => Some(Fraction),
            (Zero | Digits | Fraction, b'e' | b'E') => Some(Exponent),
            (Exponent, b'+' | b'-') => Some(ExponentSign),
            (Exponent | ExponentSign | ExponentDigits, b'0'..=b'9') => Some(ExponentDigits),
            _ => None,
        }
    }

    fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Digits | Self::Fraction | Self::ExponentDigits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Whether the whole text is read, and is an object.
    fn is_read(text: &str) -> bool {
        let mut reader = JsonReader::new();
        text.chars().all(|letter| reader.push(letter)) && reader.place() == Place::End
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_reads(text in r#"\{("[ab\\"u0-9n]{0,7}"|[{}\[\]:,]|-?[0-9.e]{1,4}|true|fals|null| ){0,9}\}"#) {
            let known = serde_json::from_str::<Value>(&text);
            // It lets surrogates stand alone, and numbers be of any size.
            let is_other = known.as_ref().is_err_and(|error| error.to_string().contains("surrogate") || error.to_string().contains("range"));
            prop_assert_eq!(is_read(&text), known.is_ok() || (is_other && is_read(&text)), "{}", text);
        }

        #[test]
        fn it_reads_every_value(keys in proptest::collection::vec(any::<String>(), 0..4), numbers in proptest::collection::vec(any::<f64>(), 0..4), pretty in any::<bool>()) {
            let value = serde_json::json!({ "k": keys, "n": numbers, "o": { "a": [null, true, {}, []] } });
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            prop_assert!(is_read(&text.unwrap()));
        }
    }

    #[test]
    fn brackets_nest_up_to_a_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(is_read(&nested(MAX_DEPTH)));
        assert!(!is_read(&nested(MAX_DEPTH + 1)));
    }
}
