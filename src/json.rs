//! JSON objects from untrusted files: capped in size and depth, duplicate keys refused.
//!
//! Two readers of one file must not see two different values, so a key that comes twice is an error instead of a
//! choice. Anything Python's reader would accept beyond JSON (`NaN`, comments) is refused.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::{Error, Result, ResultExt as _};

/// Reads an object of at most `max_bytes` bytes; `file` is its name in errors.
///
/// # Errors
/// `Load` when the text is too long, no JSON object, nested deeper than 127 levels, or has a key twice.
pub fn read_object(file: &str, text: &[u8], max_bytes: usize) -> Result<Map<String, Value>> {
    object(text, max_bytes).context(|| file)
}

/// As [`read_object`], for a caller that names the file itself.
pub(crate) fn object(text: &[u8], max_bytes: usize) -> Result<Map<String, Value>> {
    if text.len() > max_bytes {
        let found = text.len();
        return Err(Error::load(format!("a file of at most {max_bytes} bytes is read, found {found}")));
    }
    match serde_json::from_slice(text) {
        Ok(Strict(Value::Object(object))) => Ok(object),
        Ok(_) => Err(Error::load("it must be a JSON object; download it again")),
        Err(error) => Err(invalid(error)),
    }
}

/// Refuses a text that is no JSON or has a key twice, without keeping what it says: for files that another reader, which
/// would choose between the two, is going to read.
pub(crate) fn check(text: &[u8]) -> Result<()> {
    serde_json::from_slice::<Checked>(text).map(|_| ()).map_err(invalid)
}

fn invalid(error: serde_json::Error) -> Error {
    Error::load("it is not valid JSON, which has no NaN and no Infinity; correct it or download it again")
        .with_source(error)
}

/// A value as an error shows it: its beginning.
pub(crate) fn shown(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Any JSON value without duplicate keys.
pub(crate) struct Strict(pub(crate) Value);

/// The same, forgotten.
pub(crate) struct Checked;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} comes twice")));
            }
            let Strict(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CheckVisitor)
    }
}

struct CheckVisitor;

/// Methods that take a scalar and forget it.
macro_rules! forgotten {
    ($($name:ident($type:ty);)*) => {$(
        fn $name<E>(self, _: $type) -> Result<Checked, E> {
            Ok(Checked)
        }
    )*};
}

impl<'de> Visitor<'de> for CheckVisitor {
    type Value = Checked;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Checked, E> {
        Ok(Checked)
    }

    forgotten! {
        visit_bool(bool);
        visit_i64(i64);
        visit_u64(u64);
        visit_f64(f64);
        visit_str(&str);
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Checked, A::Error> {
        while items.next_element::<Checked>()?.is_some() {}
        Ok(Checked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Checked, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            entries.next_value::<Checked>()?;
            if let Some(key) = keys.replace(key) {
                return Err(A::Error::custom(format!("the key {key:?} comes twice")));
            }
        }
        Ok(Checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_json_is_read_as_serde_json_reads_it() {
        let text = r#"{"a": [1, -2, 3.5, true, null, {"b": "ü\n"}], "c": {}, "d": 18446744073709551615}"#;
        let expected: Map<String, Value> = serde_json::from_str(text).unwrap();
        assert_eq!(read_object("x.json", text.as_bytes(), 1000).unwrap(), expected);
    }

    #[test]
    fn what_is_not_strict_json_is_refused_with_the_name_of_the_file() {
        let deep = format!("{}{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        for (text, reason) in [
            (r#"{"a": 1, "a": 1}"#, "the key \"a\" comes twice"),
            (r#"{"b": [{"a": 1, "c": {}, "a": 2}]}"#, "the key \"a\" comes twice"),
            ("[1]", "must be a JSON object"),
            ("", "not valid JSON"),
            (r#"{"a": NaN}"#, "which has no NaN"),
            (r#"{"a": 1e999}"#, "not valid JSON"),
            (r#"{"a": 1} x"#, "not valid JSON"),
            (deep.as_str(), "recursion limit"),
        ] {
            let error = read_object("config.json", text.as_bytes(), 1 << 20).unwrap_err().to_string();
            assert!(error.starts_with("config.json: ") && error.contains(reason), "{error}");
            let checked = check(text.as_bytes());
            assert_eq!(checked.is_ok(), text == "[1]", "{text}");
            assert!(checked.is_ok() || checked.unwrap_err().to_string().contains(reason));
        }
    }

    #[test]
    fn a_long_text_is_refused_unread() {
        let error = read_object("config.json", &[b' '; 101], 100).unwrap_err().to_string();
        assert_eq!(error, "config.json: a file of at most 100 bytes is read, found 101");
    }
}
