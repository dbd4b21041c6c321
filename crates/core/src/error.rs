//! The one error type of the crate.
//!
//! It is opaque, so messages may improve without breaking callers; what a caller can act on is its [`ErrorKind`].
//! A message names the field or file, the rule, the value that broke it, and the remedy. It has at most 1,000 characters,
//! and none that controls a terminal, whatever a file or a request puts into it.

use std::fmt;

use crate::escape;

/// The result of every fallible operation of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What kind of thing went wrong: one Python exception class each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A field of a `GenerationConfig` or an argument of a call breaks a rule.
    Config,
    /// A model folder cannot be read: a file is missing, damaged, or of a kind that is not supported.
    Load,
    /// The text or the token ids of a request cannot be used.
    Input,
    /// Memory or the KV cache does not suffice.
    Capacity,
    /// The model computed NaN or infinity where a number is needed.
    Numerical,
    /// Code of the caller's, such as a logits processor, failed.
    Callback,
    /// The work was interrupted by its caller.
    Cancelled,
    /// A generator or stream was used in a process that was forked after it had been made.
    Fork,
    /// A defect of this crate.
    Internal,
}

impl ErrorKind {
    /// The name that JSON uses, such as `config` or `load`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Load => "load",
            Self::Input => "input",
            Self::Capacity => "capacity",
            Self::Numerical => "numerical",
            Self::Callback => "callback",
            Self::Cancelled => "cancelled",
            Self::Fork => "fork",
            Self::Internal => "internal",
        }
    }
}

/// An error, with the path of places it passed through.
pub struct Error(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    message: String,
    /// Innermost first.
    context: Vec<String>,
    source: Option<Source>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {$(
        $(#[$doc])*
        #[cold]
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(ErrorKind::$kind, message)
        }
    )*};
}

impl Error {
    /// An error of any kind.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = escape::message(&message.into()).into_owned();
        Self(Box::new(Repr { kind, message, context: Vec::new(), source: None }))
    }

    constructors! {
        /// A configuration value breaks a rule.
        config => Config;
        /// A model folder cannot be used.
        load => Load;
        /// A prompt cannot be used.
        input => Input;
        /// Memory does not suffice.
        capacity => Capacity;
        /// A computation left the real numbers.
        numerical => Numerical;
        /// The caller's own code failed.
        callback => Callback;
        /// Something belongs to the process that this one was forked from.
        fork => Fork;
        /// A defect of this crate.
        internal => Internal;
    }

    /// The work was interrupted by its caller.
    #[cold]
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "the request was cancelled")
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds a place on the way out, such as a tensor name or a file: it is printed before the message.
    #[must_use]
    pub fn context(mut self, place: impl Into<String>) -> Self {
        self.0.context.push(escape::name(&place.into()).into_owned());
        self
    }

    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The caller's own error behind a [`ErrorKind::Callback`] error, or the cause of another one.
    pub fn into_source(self) -> Option<Source> {
        self.0.source
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { message, context, source, .. } = &*self.0;
        let places = context.iter().rev().map(|place| format!("{place}: "));
        let cause = source.iter().map(|source| format!(": {source}"));
        let whole: String = places.chain([message.clone()]).chain(cause).collect();
        f.write_str(&escape::message(&whole))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} error: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Adds a place to the error of a result.
pub trait ResultExt<T> {
    /// Says where the error happened; the closure runs only when there is one.
    ///
    /// # Errors
    /// The error of the result, with the place added.
    fn context<P: Into<String>>(self, place: impl FnOnce() -> P) -> Result<T>;
}

impl<T> ResultExt<T> for Result<T> {
    fn context<P: Into<String>>(self, place: impl FnOnce() -> P) -> Result<T> {
        self.map_err(|error| error.context(place()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_printed_outermost_first() {
        let failed: Result<()> = Err(Error::load("shape [2, 3], expected [3, 2]"));
        let error = failed.context(|| "lm_head.weight").context(|| "model.safetensors").unwrap_err();
        assert_eq!(error.to_string(), "model.safetensors: lm_head.weight: shape [2, 3], expected [3, 2]");
        assert_eq!(error.kind(), ErrorKind::Load);
    }

    #[test]
    fn no_message_is_long_or_controls_a_terminal() {
        let evil = "\x1b]0;title\x07\n\u{202e}\u{2028}".repeat(20_000);
        let error = Error::load(format!("{evil}; download it again")).context(evil.clone());
        for error in
            [error, Error::load("it is damaged").with_source(evil.clone()), Error::load("x").context(evil)]
        {
            let message = error.to_string();
            assert!(message.chars().count() <= 1000, "{message}");
            assert!(
                !message.contains(|c: char| c.is_control() || "\u{202e}\u{2028}".contains(c)),
                "{message}"
            );
        }
        let long = Error::load(format!("{} must be short; shorten it", "x".repeat(5000))).to_string();
        assert!(long.ends_with("must be short; shorten it"), "the remedy stays: {long}");
    }

    #[test]
    fn the_cause_is_printed_and_kept() {
        let error = Error::callback("the logits processor failed").with_source("boom");
        assert_eq!(error.to_string(), "the logits processor failed: boom");
        assert_eq!(error.into_source().map(|source| source.to_string()), Some("boom".to_owned()));
    }
}
