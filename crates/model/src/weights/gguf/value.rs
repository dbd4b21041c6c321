//! The metadata of a GGUF file: typed values by key, and the errors for those that are missing or wrong.

use std::collections::BTreeMap;

use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

/// The type of a number, by its place in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    U64,
    I64,
    F64,
}

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A number of any type, or true or false as 1 or 0.
    Number(Number),
    Text(String),
    /// The little-endian bytes of numbers.
    Numbers(Kind, Vec<u8>),
    Texts(Vec<String>),
}

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Float(f64),
    Bool(bool),
}

impl Kind {
    /// The kind of this number in the format; 8 and 9 are texts and lists.
    pub(super) fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// The bytes of one.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The number in these bytes; `None` for a truth value that is neither 0 nor 1.
    pub(super) fn read(self, bytes: &[u8]) -> Option<Number> {
        let mut word = [0; 8];
        word[..self.bytes()].copy_from_slice(&bytes[..self.bytes()]);
        let bits = u64::from_le_bytes(word);
        // The sign is the highest bit of its own width.
        let signed = || (bits << (64 - 8 * self.bytes())).cast_signed() >> (64 - 8 * self.bytes());
        Some(match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => Number::Integer(bits.into()),
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => Number::Integer(signed().into()),
            Self::F32 => Number::Float(decimal(f32::from_bits(bits as u32))),
            Self::F64 => Number::Float(f64::from_bits(bits)),
            Self::Bool => Number::Bool(match bits {
                0 => false,
                1 => true,
                _ => return None,
            }),
        })
    }
}

/// The number that was written before it was rounded: 1e-5 instead of 9.999999747e-6.
pub(super) fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

impl Number {
    pub(super) fn as_f64(self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(value as f64),
            Self::Float(value) => Some(value).filter(|value| value.is_finite()),
            Self::Bool(_) => None,
        }
    }

    /// A whole number from 0 on.
    pub(super) fn as_count(self) -> Option<u64> {
        match self {
            Self::Integer(value) => value.try_into().ok(),
            Self::Float(_) | Self::Bool(_) => None,
        }
    }

    pub(super) fn as_bool(self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(value),
            Self::Integer(_) | Self::Float(_) => None,
        }
    }
}

/// All values by their keys.
#[derive(Debug, Default)]
pub(super) struct Metadata(pub(super) BTreeMap<String, Value>);

impl Metadata {
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// A text.
    ///
    /// # Errors
    /// `Load` when it is of another type.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(key, "a text", Some(other))),
        }
    }

    /// A whole number from 0 on.
    ///
    /// # Errors
    /// `Load` when it is another value.
    pub(super) fn count(&self, key: &str) -> Result<Option<u64>> {
        self.number(key, "a whole number from 0 on", Number::as_count)
    }

    /// A finite number.
    ///
    /// # Errors
    /// `Load` when it is another value.
    pub(super) fn float(&self, key: &str) -> Result<Option<f64>> {
        self.number(key, "a finite number", Number::as_f64)
    }

    /// True or false.
    ///
    /// # Errors
    /// `Load` when it is another value.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.number(key, "true or false", Number::as_bool)
    }

    fn number<T>(&self, key: &str, rule: &str, read: fn(Number) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = if let Value::Number(number) = value { read(*number) } else { None };
        number.map(Some).ok_or_else(|| wrong(key, rule, Some(value)))
    }

    /// A list of texts.
    ///
    /// # Errors
    /// `Load` when it is another value.
    pub(super) fn texts(&self, key: &str) -> Result<Option<&[String]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Texts(texts)) => Ok(Some(texts)),
            // A list without elements has any type.
            Some(Value::Numbers(_, bytes)) if bytes.is_empty() => Ok(Some(&[])),
            Some(other) => Err(wrong(key, "a list of texts", Some(other))),
        }
    }

    /// A list of bytes.
    ///
    /// # Errors
    /// `Load` when it is another value.
    pub(super) fn bytes(&self, key: &str) -> Result<Option<&[u8]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Numbers(Kind::U8 | Kind::I8, bytes)) => Ok(Some(bytes)),
            Some(other) => Err(wrong(key, "a list of bytes", Some(other))),
        }
    }

    /// A list of numbers; a single number is a list of one.
    ///
    /// # Errors
    /// `Load` when it is another value.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<Number>>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(vec![*number])),
            Some(value @ Value::Numbers(kind, bytes)) => {
                let numbers: Option<Vec<Number>> =
                    bytes.chunks_exact(kind.bytes()).map(|bytes| kind.read(bytes)).collect();
                numbers.map(Some).ok_or_else(|| wrong(key, "a list of numbers", Some(value)))
            }
            Some(other) => Err(wrong(key, "a list of numbers", Some(other))),
        }
    }
}

/// The error for a key that breaks its rule.
#[cold]
pub(super) fn wrong(key: &str, rule: &str, found: Option<&Value>) -> Error {
    let found = match found {
        None => "nothing".to_owned(),
        Some(Value::Number(Number::Integer(value))) => value.to_string(),
        Some(Value::Number(Number::Float(value))) => value.to_string(),
        Some(Value::Number(Number::Bool(value))) => value.to_string(),
        Some(Value::Text(text)) => format!("\"{}\"", escape::name(text)),
        Some(Value::Numbers(kind, bytes)) => format!("a list of {} numbers", bytes.len() / kind.bytes()),
        Some(Value::Texts(texts)) => format!("a list of {} texts", texts.len()),
    };
    Error::load(format!(
        "{} must be {rule}, found {found}; the file is damaged or of another writer, download it again",
        escape::name(key)
    ))
}
