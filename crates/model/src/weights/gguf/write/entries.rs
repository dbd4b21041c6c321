//! The header of a GGUF file as bytes: the entries of its metadata, and the list of its tensors.

use std::collections::BTreeMap;

use super::super::container::MAGIC;
use super::super::value::{Kind, Metadata, Number, Value, decimal};
use super::Planned;

/// The version of the format that is written.
const VERSION: u32 = 3;
/// What every tensor begins at a multiple of: the format's default.
pub(super) const ALIGNMENT: usize = 32;

/// A value of the metadata, in the type that llama.cpp's converter gives it.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
    Bools(Vec<bool>),
}

/// The metadata, in the order in which it is written.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries(Vec<(String, Entry)>);

impl Entries {
    pub(super) fn set(&mut self, key: impl Into<String>, entry: Entry) {
        self.0.push((key.into(), entry));
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// What reading them gives.
    pub(super) fn metadata(&self) -> Metadata {
        let read = |(key, entry): &(String, Entry)| (key.clone(), entry.read());
        Metadata(self.0.iter().map(read).collect::<BTreeMap<_, _>>())
    }

    /// The file up to the first tensor.
    pub(super) fn header(&self, tensors: &[Planned]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend((tensors.len() as u64).to_le_bytes());
        out.extend((self.0.len() as u64).to_le_bytes());
        for (key, entry) in &self.0 {
            put_text(&mut out, key);
            entry.put(&mut out);
        }
        for tensor in tensors {
            put_text(&mut out, &tensor.info.name);
            out.extend((tensor.info.shape.len() as u32).to_le_bytes());
            // The fastest axis comes first.
            for &size in tensor.info.shape.iter().rev() {
                out.extend((size as u64).to_le_bytes());
            }
            out.extend(tensor.info.type_id.to_le_bytes());
            out.extend((tensor.info.place.start as u64).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out
    }
}

impl Entry {
    fn read(&self) -> Value {
        let numbers = |kind, bytes: Vec<u8>| Value::Numbers(kind, bytes);
        match self {
            Self::U32(value) => Value::Number(Number::Integer((*value).into())),
            Self::F32(value) => Value::Number(Number::Float(decimal(*value))),
            Self::Bool(value) => Value::Number(Number::Bool(*value)),
            Self::Text(text) => Value::Text(text.clone()),
            Self::Texts(texts) => Value::Texts(texts.clone()),
            Self::F32s(list) => {
                numbers(Kind::F32, list.iter().flat_map(|value| value.to_le_bytes()).collect())
            }
            Self::I32s(list) => {
                numbers(Kind::I32, list.iter().flat_map(|value| value.to_le_bytes()).collect())
            }
            Self::Bools(list) => numbers(Kind::Bool, list.iter().map(|&value| value.into()).collect()),
        }
    }

    /// Writes the type and the value.
    fn put(&self, out: &mut Vec<u8>) {
        const TEXT: u32 = 8;
        const LIST: u32 = 9;
        let type_id = match self {
            Self::U32(_) => 4,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Text(_) => TEXT,
            Self::Texts(_) | Self::F32s(_) | Self::I32s(_) | Self::Bools(_) => LIST,
        };
        out.extend(u32::to_le_bytes(type_id));
        let list = |out: &mut Vec<u8>, element: u32, len: usize| {
            out.extend(element.to_le_bytes());
            out.extend((len as u64).to_le_bytes());
        };
        match self {
            Self::U32(value) => out.extend(value.to_le_bytes()),
            Self::F32(value) => out.extend(value.to_le_bytes()),
            Self::Bool(value) => out.push((*value).into()),
            Self::Text(text) => put_text(out, text),
            Self::Texts(texts) => {
                list(out, TEXT, texts.len());
                for text in texts {
                    put_text(out, text);
                }
            }
            Self::F32s(numbers) => {
                list(out, 6, numbers.len());
                out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            }
            Self::I32s(numbers) => {
                list(out, 5, numbers.len());
                out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            }
            Self::Bools(flags) => {
                list(out, 7, flags.len());
                out.extend(flags.iter().map(|&flag| u8::from(flag)));
            }
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.bytes());
}
