//! The values and the types of configuration fields: what a caller or a file may write, and what it becomes.
//!
//! A value has its own type, not JSON's, because a call from Python can hold what JSON cannot: NaN, and
//! integers beyond 64 bits. Ranges are not checked here but where a plan is made, since they depend on the
//! model and on other fields.

use std::fmt;

use serde_json::Value;

use crate::types::TokenId;

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
    /// Anything else, as it is to be shown in an error.
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
            Value::Object(_) => Self::Other(value.to_string()),
        }
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
            Self::Other(shown) => shown.clone(),
        };
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{}…", &text[..end]),
            None => f.write_str(&text),
        }
    }
}

/// One value or a list of values: an id or several ids, a text or several texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OneOrMany<T> {
    /// A single value.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// The values.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

impl<T> From<T> for OneOrMany<T> {
    fn from(value: T) -> Self {
        Self::One(value)
    }
}

impl<T> From<Vec<T>> for OneOrMany<T> {
    fn from(values: Vec<T>) -> Self {
        Self::Many(values)
    }
}

impl<T, const N: usize> From<[T; N]> for OneOrMany<T> {
    fn from(values: [T; N]) -> Self {
        Self::Many(values.into())
    }
}

impl From<&str> for OneOrMany<String> {
    fn from(value: &str) -> Self {
        Self::One(value.to_owned())
    }
}

impl<const N: usize> From<[&str; N]> for OneOrMany<String> {
    fn from(values: [&str; N]) -> Self {
        Self::Many(values.into_iter().map(str::to_owned).collect())
    }
}

impl From<u32> for OneOrMany<TokenId> {
    fn from(value: u32) -> Self {
        Self::One(TokenId(value))
    }
}

/// When a beam search ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EarlyStopping {
    /// Once the running beams are unlikely to beat what has finished.
    #[default]
    False,
    /// With as many finished hypotheses as beams.
    True,
    /// When no running beam can beat what has finished.
    Never,
}

/// The inner layers that `DoLa` contrasts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DolaLayers {
    /// The lower half, every second layer.
    Low,
    /// The upper half, every second layer.
    High,
    /// These; 0 is the embedding.
    Layers(Vec<usize>),
}

impl From<Vec<usize>> for DolaLayers {
    fn from(layers: Vec<usize>) -> Self {
        Self::Layers(layers)
    }
}

impl From<bool> for EarlyStopping {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

/// A type that fields may have.
pub(super) trait FieldType: Sized {
    /// What a value has to be, to complete "must be …".
    const KIND: &'static str;

    /// The value, or `None` when it is of another type.
    fn parse(value: &FieldValue) -> Option<Self>;

    /// The value as JSON.
    fn to_json(&self) -> Value;
}

/// A type that may be given singly or as a list.
pub(super) trait ListElement: FieldType {
    /// What a value has to be, to complete "must be …".
    const ONE_OR_MANY: &'static str;
}

macro_rules! field_types {
    ($($type:ty: $kind:literal $(or $many:literal)? => $parse:expr, $json:expr;)*) => {$(
        impl FieldType for $type {
            const KIND: &'static str = $kind;
            fn parse(value: &FieldValue) -> Option<Self> {
                let parse: fn(&FieldValue) -> Option<Self> = $parse;
                parse(value)
            }
            fn to_json(&self) -> Value {
                let json: fn(&$type) -> Value = $json;
                json(self)
            }
        }
        $(impl ListElement for $type {
            const ONE_OR_MANY: &'static str = $many;
        })?
    )*};
}

field_types! {
    bool: "true or false" =>
        |value| if let FieldValue::Bool(value) = value { Some(*value) } else { None },
        |value| Value::from(*value);
    usize: "an integer of 0 or more" =>
        |value| integer(value)?.try_into().ok(),
        |value| Value::from(*value);
    f64: "a number" =>
        |value| match value {
            FieldValue::Float(value) => Some(*value),
            other => integer(other).map(|value| value as f64),
        },
        |value| Value::from(*value);
    EarlyStopping: "true, false or \"never\"" =>
        |value| match value {
            FieldValue::Bool(value) => Some(EarlyStopping::from(*value)),
            FieldValue::Text(text) if text == "never" => Some(EarlyStopping::Never),
            _ => None,
        },
        |value| match value {
            EarlyStopping::False => Value::from(false),
            EarlyStopping::True => Value::from(true),
            EarlyStopping::Never => Value::from("never"),
        };
    DolaLayers: "\"low\", \"high\" or a list of layers" =>
        |value| match value {
            FieldValue::Text(text) if text == "low" => Some(DolaLayers::Low),
            FieldValue::Text(text) if text == "high" => Some(DolaLayers::High),
            FieldValue::List(layers) =>
                layers.iter().map(usize::parse).collect::<Option<_>>().map(DolaLayers::Layers),
            _ => None,
        },
        |value| match value {
            DolaLayers::Low => Value::from("low"),
            DolaLayers::High => Value::from("high"),
            DolaLayers::Layers(layers) => Value::from(layers.clone()),
        };
    String: "a text" or "a text or a list of texts" =>
        |value| if let FieldValue::Text(value) = value { Some(value.clone()) } else { None },
        |value| Value::from(value.as_str());
    TokenId: "a token id (an integer of 0 or more)" or "a token id (an integer of 0 or more) or a list of them" =>
        |value| integer(value)?.try_into().ok().map(TokenId),
        |value| Value::from(value.0);
    // As torch.manual_seed has it, a negative seed stands for its two's complement.
    u64: "an integer from -2^63 to 2^64 - 1" or "an integer from -2^63 to 2^64 - 1 or a list of them" =>
        |value| {
            let value = integer(value)?;
            (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value as u64)
        },
        |value| Value::from(*value);
}

fn integer(value: &FieldValue) -> Option<i128> {
    if let FieldValue::Int(value) = value { Some(*value) } else { None }
}

impl<T: ListElement> FieldType for OneOrMany<T> {
    const KIND: &'static str = T::ONE_OR_MANY;

    fn parse(value: &FieldValue) -> Option<Self> {
        match value {
            FieldValue::List(values) => values.iter().map(T::parse).collect::<Option<_>>().map(Self::Many),
            value => T::parse(value).map(Self::One),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::One(value) => value.to_json(),
            Self::Many(values) => values.iter().map(T::to_json).collect(),
        }
    }
}
