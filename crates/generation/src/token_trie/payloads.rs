//! What entries carry: a JSON value each, kept as its text.

use serde_json::Value;

/// The payloads of all entries.
#[derive(Clone, PartialEq, Default)]
pub(super) struct Payloads {
    /// The JSON texts, one after the other.
    pub(super) text: String,
    /// Where each ends.
    pub(super) ends: Vec<u64>,
}

impl Payloads {
    /// Adds that of the next entry.
    pub(super) fn push(&mut self, value: &Value) {
        self.text.push_str(&value.to_string());
        self.ends.push(self.text.len() as u64);
    }

    /// The text of that of an entry.
    pub(super) fn text_of(&self, index: usize) -> Option<&str> {
        let start = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.text.get(start as usize..*self.ends.get(index)? as usize)
    }

    /// That of an entry.
    pub(super) fn get(&self, index: usize) -> Option<Value> {
        serde_json::from_str(self.text_of(index)?).ok()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.text.len() + 8 * self.ends.len()
    }
}
