//! The one error type of the crate.
//!
//! It is opaque, so messages may improve without breaking callers; what a caller can act on is its
//! [`ErrorKind`], the [field](Error::field) that it is about, the [origin](Error::origin) of that field's
//! value, and the [prompt](Error::prompt_index) of a list. A message names the field or file, the rule, the
//! value that broke it, and the remedy. It has at most 1,000 characters, and none that controls a terminal,
//! whatever a file or a request puts into it. Interfaces tell it [in their own words](Error::in_words).

use std::fmt;

use crate::escape;
pub use crate::message::{Mention, Message, Words};

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
    message: Message,
    field: Option<String>,
    prompt_index: Option<usize>,
    /// Innermost first.
    context: Vec<Place>,
    source: Option<Source>,
}

/// A place that an error passed through.
enum Place {
    Named(String),
    Origin(Origin),
}

/// Where the value comes from that an error is about, where it is not the call itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A file of the model's folder.
    ModelFile(&'static str),
    /// An environment variable.
    Environment(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ModelFile(name) => write!(f, "the model's {name}"),
            Self::Environment(variable) => write!(f, "environment variable {variable}"),
        }
    }
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {$(
        $(#[$doc])*
        #[cold]
        pub fn $name(message: impl Into<Message>) -> Self {
            Self::new(ErrorKind::$kind, message)
        }
    )*};
}

impl Error {
    /// An error of any kind.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<Message>) -> Self {
        let message = message.into();
        let (field, prompt_index, context, source) = (None, None, Vec::new(), None);
        Self(Box::new(Repr { kind, message, field, prompt_index, context, source }))
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

    /// Says which field or argument it is about, such as `num_beams`: its name is printed before the message.
    #[must_use]
    pub fn about(mut self, field: impl Into<String>) -> Self {
        let field = field.into();
        self.0.message = self.0.message.about(&field);
        self.concerning(field)
    }

    /// [`Error::about`], for a message that needs no name before it.
    #[must_use]
    pub fn concerning(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(escape::name(&field.into()).into_owned());
        self
    }

    /// Says which field its own field belongs to: it is about the outer one then.
    #[must_use]
    pub fn within(mut self, field: impl Into<String>) -> Self {
        let field = field.into();
        self.0.message = Message::names([field.as_str()]).then(": ").then(self.0.message);
        self.concerning(field)
    }

    /// Adds a place on the way out, such as a tensor name or a file: it is printed before the message.
    #[must_use]
    pub fn context(mut self, place: impl Into<String>) -> Self {
        self.0.context.push(Place::Named(escape::name(&place.into()).into_owned()));
        self
    }

    /// Says which prompt, text, source or candidate of a list it is about: `item` and its index are printed
    /// before the message.
    #[must_use]
    pub fn of_prompt(self, item: &str, index: usize) -> Self {
        self.context(format!("{item} {index}")).concerning_prompt(index)
    }

    /// [`Error::of_prompt`], for a message that names the prompt itself.
    #[must_use]
    pub fn concerning_prompt(mut self, index: usize) -> Self {
        self.0.prompt_index = Some(index);
        self
    }

    /// Says where the value comes from: it is printed before the message.
    #[must_use]
    pub fn from_origin(mut self, origin: Origin) -> Self {
        self.0.context.push(Place::Origin(origin));
        self
    }

    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The field or argument that it is about.
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// The index of the prompt that it is about; `None` when it is about no prompt of a list alone.
    pub fn prompt_index(&self) -> Option<usize> {
        self.0.prompt_index
    }

    /// Where the field's value comes from; `None` when it was given to the call.
    pub fn origin(&self) -> Option<&Origin> {
        self.0.context.iter().find_map(|place| match place {
            Place::Origin(origin) => Some(origin),
            Place::Named(_) => None,
        })
    }

    /// Its text in the words of an interface.
    pub fn in_words(&self, words: Words<'_>) -> String {
        let Repr { message, context, source, .. } = &*self.0;
        let places = context.iter().rev().map(|place| match place {
            Place::Named(name) => format!("{name}: "),
            Place::Origin(origin) => format!("{origin}: "),
        });
        let cause = source.iter().map(|source| match source.downcast_ref::<Self>() {
            Some(error) => format!(": {}", error.in_words(words)),
            None => format!(": {source}"),
        });
        let whole: String = places.chain([message.in_words(words)]).chain(cause).collect();
        escape::message(&whole).into_owned()
    }

    /// The caller's own error behind a [`ErrorKind::Callback`] error, or the cause of another one.
    pub fn into_source(self) -> Option<Source> {
        self.0.source
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(&Mention::plain))
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

/// Refuses the value of `field` if it is wrong: an error of the kind `Config` with this rule about the field.
///
/// # Errors
/// When `is_wrong`.
pub fn refuse_if<M: Into<Message>>(is_wrong: bool, field: &str, rule: impl FnOnce() -> M) -> Result<()> {
    if is_wrong { Err(Error::config(rule()).about(field)) } else { Ok(()) }
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
    fn the_field_and_the_origin_of_its_value_are_data() {
        let error = Error::config("must be 1 or more, but is 0").about("num_beams");
        assert_eq!(error.to_string(), "`num_beams` must be 1 or more, but is 0");
        assert_eq!((error.field(), error.origin()), (Some("num_beams"), None));
        let error = error.from_origin(Origin::ModelFile("generation_config.json")).context("prompt 2");
        assert_eq!(error.origin(), Some(&Origin::ModelFile("generation_config.json")));
        let expected =
            "prompt 2: the model's generation_config.json: `num_beams` must be 1 or more, but is 0";
        assert_eq!(error.to_string(), expected);
        let shouted = error.in_words(&|mention| format!("{mention:?}"));
        assert!(shouted.ends_with("generation_config.json: Name(\"num_beams\") must be 1 or more, but is 0"));
        assert_eq!(Error::input("`top_p` is quoted").field(), None, "no text is read");
        assert_eq!(Error::config("is long").concerning("x").to_string(), "is long");
        let inner = Error::config("is 0").about("bias").within("watermarking_config");
        assert_eq!(inner.to_string(), "`watermarking_config`: `bias` is 0");
        assert_eq!(inner.field(), Some("watermarking_config"));
    }

    #[test]
    fn the_prompt_of_a_list_is_data() {
        let error = Error::input("prompt 7 is quoted").of_prompt("text", 3).context("the call");
        assert_eq!(
            (error.prompt_index(), error.to_string()),
            (Some(3), "the call: text 3: prompt 7 is quoted".into())
        );
        assert_eq!(Error::input("prompt 2 is padding").concerning_prompt(2).prompt_index(), Some(2));
        assert_eq!(Error::input("is long").context("prompt 3").prompt_index(), None, "no text is read");
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
