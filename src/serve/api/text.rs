//! The JSON text of an answer, written straight from its numbers: as values they would take twenty times as
//! much.

use std::io;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Serialize, Serializer};

use crate::serve::failure::Failure;
use rsgen_core::error::Error;
use rsgen_core::message;
use rsgen_core::types::Choice;
use rsgen_model::weights::{MemoryLimit, memory_limit};

/// The estimated bytes of a token in an answer, and of each token that is listed with its log-probability. A
/// text that grows takes twice its length.
const TOKEN_BYTES: usize = 32;
const LISTED_BYTES: usize = 256;
/// The estimated bytes of a number in a vector, and of its text while that grows.
pub(super) const NUMBER_BYTES: usize = 48;
/// Smaller answers are not compared with the available memory, because reading it is slow.
const UNCHECKED_BYTES: usize = 8 << 20;

/// The text of an answer.
#[derive(Debug, Default)]
pub(super) struct Text(Vec<u8>);

impl Text {
    /// Appends a value.
    ///
    /// # Errors
    /// 503 when the system gives no memory for it.
    pub(super) fn push(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut *self, value).map_err(|error| match error.io_error_kind() {
            Some(_) => {
                Error::capacity("the system gave no memory for the answer; ask for less at a time").into()
            }
            None => Failure::internal(error.to_string()),
        })
    }

    /// The beginning of an object: these fields, and one more, whose items follow.
    ///
    /// # Errors
    /// As for [`Text::push`].
    pub(super) fn begin(fields: &impl Serialize, list: &str) -> Result<Self, Failure> {
        let mut text = Self::default();
        text.push(fields)?;
        text.0.pop();
        text.0.extend_from_slice(format!(",\"{list}\":[").as_bytes());
        Ok(text)
    }

    /// Appends an item of a list.
    ///
    /// # Errors
    /// As for [`Text::push`].
    pub(super) fn item(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        if self.0.last() != Some(&b'[') {
            self.0.push(b',');
        }
        self.push(value)
    }

    /// Ends the list and the object, with a last field.
    ///
    /// # Errors
    /// As for [`Text::push`].
    pub(super) fn end(mut self, last: &str, value: &impl Serialize) -> Result<Self, Failure> {
        self.0.extend_from_slice(format!("],\"{last}\":").as_bytes());
        self.push(value)?;
        self.0.push(b'}');
        Ok(self)
    }
}

/// A list whose items are made while it is written.
pub(super) struct List<'a, T, F>(pub(super) &'a [T], pub(super) F);

impl<'a, T, V: Serialize, F: Fn(&'a T) -> V> Serialize for List<'a, T, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(&self.1))
    }
}

/// The bytes that the text of an answer may take while it grows.
pub(super) fn estimated(tokens: usize, listed: usize) -> usize {
    tokens.saturating_mul(TOKEN_BYTES).saturating_add(listed.saturating_mul(LISTED_BYTES))
}

/// Refuses an answer whose text may not fit into the available memory: so many tokens, of which some are
/// listed with their log-probabilities, with their alternatives.
///
/// # Errors
/// 503, with the sizes and the fields to change.
pub(super) fn check_memory(tokens: usize, listed: usize) -> Result<(), Failure> {
    let bytes = estimated(tokens, listed);
    match exceeded(bytes) {
        None => Ok(()),
        Some(available) => Err(Error::capacity(message!(
            ("the text of the answer may take {bytes} bytes of memory, but {} are available ({}); lower `logprobs`, \
              `prompt_logprobs`, `n` or ", available.value, available.reason)
            {max_new_tokens} ", or give fewer prompts at a time"
        ))
        .into()),
    }
}

/// Refuses an answer of so many vectors of this size, which may not fit into the available memory.
///
/// # Errors
/// 503, with the sizes and what to change.
pub(super) fn check_vectors(count: usize, size: usize) -> Result<(), Failure> {
    let bytes = count.saturating_mul(size).saturating_mul(NUMBER_BYTES);
    match exceeded(bytes) {
        None => Ok(()),
        Some(available) => Err(Error::capacity(message!((
            "the vectors of the answer may take {bytes} bytes of memory, but {} are available ({}); give fewer texts at a \
             time",
            available.value, available.reason
        )))
        .into()),
    }
}

/// The available memory, if an answer of so many bytes may exceed it.
fn exceeded(bytes: usize) -> Option<Choice<u64, MemoryLimit>> {
    if bytes < UNCHECKED_BYTES {
        return None;
    }
    memory_limit().filter(|available| bytes as u64 > available.value)
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_reserve(bytes.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl IntoResponse for Text {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}
