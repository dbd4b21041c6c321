//! [`FieldValue`]: what a caller or a file may write for a configuration field.
//!
//! It has its own type, not JSON's, because a call from Python can hold what JSON cannot: NaN, integers
//! beyond 64 bits, and maps whose keys are lists. The type of the field decides which forms it takes.

use std::fmt;

use serde_json::{Map, Number, Value};

/// A value of a field before its type is checked.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FieldValue {
    /// Not set: JSON's `null`, Python's `None`.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A floating-point number, also NaN or infinity.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<FieldValue>),
    /// Keys with their values, in order.
    Map(Vec<(FieldValue, FieldValue)>),
    /// Anything else, as an error shows it.
    Other(String),
}

macro_rules! from_values {
    ($($from:ty => $make:expr;)*) => {$(
        impl From<$from> for FieldValue {
            fn from(value: $from) -> Self {
                $make(value)
            }
        }
    )*};
}

from_values! {
    bool => FieldValue::Bool;
    i64 => |value| FieldValue::Int(i128::from(value));
    u64 => |value| FieldValue::Int(i128::from(value));
    i128 => FieldValue::Int;
    f64 => FieldValue::Float;
    &str => |value: &str| FieldValue::Text(value.to_owned());
    String => FieldValue::Text;
    Vec<FieldValue> => FieldValue::List;
}

impl FromIterator<FieldValue> for FieldValue {
    fn from_iter<I: IntoIterator<Item = FieldValue>>(values: I) -> Self {
        Self::List(values.into_iter().collect())
    }
}

impl From<Value> for FieldValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => match number.as_i128() {
                Some(integer) => Self::Int(integer),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::Text(text),
            Value::Array(values) => Self::List(values.into_iter().map(Self::from).collect()),
            Value::Object(map) => Self::from_object(map),
        }
    }
}

impl From<FieldValue> for Value {
    fn from(value: FieldValue) -> Self {
        match value {
            FieldValue::Null => Self::Null,
            FieldValue::Bool(value) => Self::Bool(value),
            FieldValue::Int(value) => Number::from_i128(value).map_or(Self::Null, Self::Number),
            FieldValue::Float(value) => match Number::from_f64(value) {
                Some(number) => Self::Number(number),
                None => Self::Object(Map::from_iter([(FLOAT.to_owned(), name_of(value).into())])),
            },
            FieldValue::Text(text) | FieldValue::Other(text) => Self::String(text),
            FieldValue::List(values) => values.into_iter().map(Self::from).collect(),
            FieldValue::Map(entries) => {
                let entry = |(key, value): (FieldValue, FieldValue)| match key {
                    FieldValue::Text(key) => (key, Self::from(value)),
                    key => (key.to_string(), Self::from(value)),
                };
                Self::Object(entries.into_iter().map(entry).collect())
            }
        }
    }
}

/// The key that marks a number JSON cannot hold, `{"__float__": "-Infinity"}`, as in transformers' model
/// configurations.
const FLOAT: &str = "__float__";

fn name_of(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

impl FieldValue {
    fn from_object(map: Map<String, Value>) -> Self {
        if let (1, Some(Value::String(name))) = (map.len(), map.get(FLOAT))
            && let Some(value) =
                [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().find(|value| name_of(*value) == name)
        {
            return Self::Float(value);
        }
        Self::Map(map.into_iter().map(|(key, value)| (Self::Text(key), value.into())).collect())
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 60;
        let text = match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
            Self::Text(value) => format!("{:?}", value.chars().take(SHOWN + 1).collect::<String>()),
            Self::List(values) => {
                let shown: Vec<String> = values.iter().take(8).map(ToString::to_string).collect();
                format!("[{}{}]", shown.join(", "), if values.len() > 8 { ", …" } else { "" })
            }
            Self::Map(entries) => {
                let shown = entries.iter().take(8).map(|(key, value)| format!("{key}: {value}"));
                let more = if entries.len() > 8 { ", …" } else { "" };
                format!("{{{}{more}}}", shown.collect::<Vec<_>>().join(", "))
            }
            Self::Other(shown) => shown.clone(),
        };
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{}…", &text[..end]),
            None => f.write_str(&text),
        }
    }
}
