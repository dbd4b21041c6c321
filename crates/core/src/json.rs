//! JSON objects from untrusted files: capped in size, depth and memory, duplicate keys refused.
//!
//! Two readers of one file must not see two different values, so a key that comes twice is an error instead
//! of a choice. Anything Python's reader would accept beyond JSON (`NaN`, comments) is refused. Values take
//! up to fifty times the memory of their text, so that is counted while they are read.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

use crate::error::{Error, Result, ResultExt as _};
use crate::escape;

/// The memory that the values of a file may take: ten times that of the largest known.
const MAX_VALUE_BYTES: usize = 64 << 20;
/// The same for a vocabulary, which another reader is going to read. The largest known takes half.
const MAX_CHECKED_BYTES: usize = 512 << 20;
/// A list grows by doubling, and begins with room for four values.
const LIST_BYTES: usize = 2 * size_of::<Value>();
/// An object also holds the key and its place in a table.
const ENTRY_BYTES: usize = 2 * (size_of::<Value>() + size_of::<String>() + 2 * size_of::<usize>());
/// What the error of a key says.
const COMES_TWICE: &str = "comes twice";
/// The overhead of an allocation, in bytes.
const ALLOCATION_BYTES: usize = 16;

/// Reads an object of at most `max_bytes` bytes; `file` is its name in errors.
///
/// # Errors
/// `Load` when the text is too long, no JSON object, nested deeper than 127 levels, has a key twice, or when
/// its values would take more than 64 MiB of memory.
pub fn read_object(file: &str, text: &[u8], max_bytes: usize) -> Result<Map<String, Value>> {
    object(text, max_bytes).context(|| file)
}

/// As [`read_object`], for a caller that names the file itself.
///
/// # Errors
/// As for [`read_object`].
pub fn object(text: &[u8], max_bytes: usize) -> Result<Map<String, Value>> {
    if text.len() > max_bytes {
        let found = text.len();
        return Err(Error::load(format!("a file of at most {max_bytes} bytes is read, found {found}")));
    }
    let budget = Budget::new(MAX_VALUE_BYTES);
    match read(text, Strict(&budget), &budget)? {
        Value::Object(object) => Ok(object),
        _ => Err(Error::load("it must be a JSON object; download it again")),
    }
}

/// Refuses a text that is no JSON, has a key twice or holds too much, without keeping what it says: for files
/// that another reader, which would choose between the two, is going to read.
///
/// # Errors
/// `Load` for such a text.
pub fn check(text: &[u8]) -> Result<()> {
    let budget = Budget::new(MAX_CHECKED_BYTES);
    read(text, Checked(&budget), &budget)
}

fn read<'de, T: DeserializeSeed<'de>>(text: &'de [u8], seed: T, budget: &Budget) -> Result<T::Value> {
    if text.trim_ascii().is_empty() {
        return Err(Error::load("it is empty, so it is not valid JSON; download it again"));
    }
    if [&b"\xef\xbb\xbf"[..], b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| text.starts_with(mark)) {
        return Err(Error::load(
            "it begins with a byte order mark, so it is not valid JSON; save it as UTF-8 without one",
        ));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = seed.deserialize(&mut deserializer);
    read.and_then(|value| deserializer.end().map(|()| value)).map_err(|error| {
        let what = error.to_string();
        let message = match error.classify() {
            _ if budget.left.get() == 0 => "a file of a model is smaller; download it again".to_owned(),
            Category::Eof => "it is cut off, so it is not valid JSON; download it again".to_owned(),
            Category::Data if what.contains(COMES_TWICE) => format!("{what}; leave one of them out"),
            _ => "it is not valid JSON, which has no NaN and no Infinity; correct it or download it again"
                .to_owned(),
        };
        Error::load(message).with_source(error)
    })
}

/// A value as an error shows it: its beginning, without hidden characters.
pub fn shown(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = value.to_string();
    let beginning = match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    };
    escape::name(&beginning).into_owned()
}

/// The memory that values may still take.
pub struct Budget {
    most: usize,
    /// 0 once it did not suffice.
    left: Cell<usize>,
}

impl Budget {
    /// A budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { most: bytes, left: Cell::new(bytes) }
    }

    /// The memory that values have taken.
    pub fn taken(&self) -> usize {
        self.most - self.left.get()
    }

    fn take<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        self.left.set(self.left.get().saturating_sub(bytes));
        match self.left.get() {
            0 => Err(E::custom(format!("its values take more than {} bytes of memory", self.most))),
            _ => Ok(()),
        }
    }

    /// Takes the memory of the value at `index` of a list, which has to be there first.
    fn take_element<E: serde::de::Error>(&self, index: usize) -> Result<(), E> {
        self.take(if index == 0 { 2 * LIST_BYTES + ALLOCATION_BYTES } else { LIST_BYTES })
    }

    fn take_entry<E: serde::de::Error>(&self, index: usize, key: &str) -> Result<(), E> {
        let entry = if index == 0 { 2 * (ENTRY_BYTES + ALLOCATION_BYTES) } else { ENTRY_BYTES };
        self.take(entry + key.len() + ALLOCATION_BYTES)
    }
}

/// Reads any JSON value without duplicate keys.
#[derive(Clone, Copy)]
pub struct Strict<'a>(pub &'a Budget);

/// As [`Strict`], and forgets it.
#[derive(Clone, Copy)]
pub struct Checked<'a>(pub &'a Budget);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
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

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.take(value.len() + ALLOCATION_BYTES)?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            self.0.take_element(list.len())?;
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(comes_twice(&key));
            }
            self.0.take_entry(object.len(), &key)?;
            let value = entries.next_value_seed(self)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

impl<'de> DeserializeSeed<'de> for Checked<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Methods that take a scalar and forget it.
macro_rules! forgotten {
    ($($name:ident($type:ty);)*) => {$(
        fn $name<E>(self, _: $type) -> Result<(), E> {
            Ok(())
        }
    )*};
}

impl<'de> Visitor<'de> for Checked<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    forgotten! {
        visit_bool(bool);
        visit_i64(i64);
        visit_u64(u64);
        visit_f64(f64);
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.0.take(value.len() + ALLOCATION_BYTES)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut len = 0;
        while items.next_element_seed(self)?.is_some() {
            self.0.take_element(len)?;
            len += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.0.take_entry(keys.len(), &key)?;
            entries.next_value_seed(self)?;
            if let Some(key) = keys.replace(key) {
                return Err(comes_twice(&key));
            }
        }
        Ok(())
    }
}

fn comes_twice<E: serde::de::Error>(key: &str) -> E {
    E::custom(format!("the key \"{}\" {COMES_TWICE}", escape::name(key)))
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
            ("", "config.json: it is empty"),
            (" \n", "config.json: it is empty"),
            ("\u{feff}{}", "config.json: it begins with a byte order mark"),
            (r#"{"a": 1, "a": 2}"#, "config.json: the key \"a\" comes twice at line 1 column"),
            (r#"{"a": [1, {"#, "config.json: it is cut off"),
            (r#"{"a"#, "config.json: it is cut off"),
            (r#"{"a": NaN}"#, "which has no NaN"),
            (r#"{"a": 1e999}"#, "not valid JSON"),
            (r#"{"a": 1} x"#, "not valid JSON"),
            (deep.as_str(), "recursion limit"),
        ] {
            let error = read_object("config.json", text.as_bytes(), 1 << 20).unwrap_err().to_string();
            assert!(error.starts_with("config.json: ") && error.contains(reason), "{error}");
            let checked = check(text.as_bytes());
            assert_eq!(checked.is_ok(), text == "[1]", "{text}");
            let reason = reason.trim_start_matches("config.json: ");
            assert!(checked.is_ok() || checked.unwrap_err().to_string().contains(reason));
        }
    }

    #[test]
    fn a_long_text_is_refused_unread() {
        let error = read_object("config.json", &[b' '; 101], 100).unwrap_err().to_string();
        assert_eq!(error, "config.json: a file of at most 100 bytes is read, found 101");
    }

    #[test]
    fn values_that_take_much_memory_are_refused_while_they_are_read() {
        let nested = |part: &str| format!("{{\"a\":[{part}0]}}", part = part.repeat((1 << 24) / part.len()));
        for part in ["[],", "[[]],", "{},", "0,", "\"\",", "[0],", "{\"a\":0},", "[[[[{}]]]],", "null,"] {
            let text = nested(part);
            for error in
                [read_object("x.json", text.as_bytes(), 1 << 25).map(|_| ()), check(nested(part).as_bytes())]
            {
                let Err(error) = error else { continue };
                assert!(error.to_string().contains("of memory"), "{error}");
            }
            let error = read_object("x.json", text.as_bytes(), 1 << 25).unwrap_err().to_string();
            assert!(error.contains("a file of a model is smaller"), "{part}: {error}");
            assert!(error.contains("its values take more than 67108864 bytes of memory"), "{part}: {error}");
        }
    }
}
