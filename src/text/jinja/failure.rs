//! Why a template cannot be rendered, and in which line of it.

use crate::error::Error;

/// The result of a part of a rendering.
pub(super) type Result<T> = std::result::Result<T, Failure>;

/// A message with its place.
#[derive(Debug)]
pub(super) struct Failure(Box<(String, Option<u32>)>);

impl Failure {
    #[cold]
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(Box::new((message.into(), None)))
    }

    /// Says in which line it happened, unless that is known more closely.
    #[must_use]
    pub(super) fn at(mut self, line: u32) -> Self {
        self.0.1.get_or_insert(line);
        self
    }

    /// The error of the crate.
    pub(super) fn into_error(self) -> Error {
        let (message, line) = *self.0;
        let place = line.map_or_else(String::new, |line| format!(", line {line}"));
        Error::input(format!("chat template{place}: {message}"))
    }
}
