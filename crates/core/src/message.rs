//! The text of an error or a warning, in which the names of fields are data: each interface shows them in its
//! own words.

use std::fmt;

use crate::escape;

/// A text with fields in it. [`message!`](macro@crate::message) makes one; a plain text is one, too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message(Vec<Part>);

/// A part of a [`Message`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
pub enum Part {
    Text(String),
    Mention(Mention),
}

/// What each interface has its own word for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mention {
    /// A field or an argument, such as `num_beams`.
    Name(String),
    /// A field with a value to set, such as `num_beams` and `4`. The value is JSON.
    Setting(String, String),
    /// What leaves a field unset, as the subject of a sentence.
    Unset,
}

/// The words of an interface.
pub type Words<'a> = &'a dyn Fn(&Mention) -> String;

impl Mention {
    /// The words that belong to no interface.
    pub fn plain(&self) -> String {
        match self {
            Self::Name(name) => format!("`{name}`"),
            Self::Setting(name, value) => format!("{name}={value}"),
            Self::Unset => "leaving it out".to_owned(),
        }
    }
}

impl Message {
    #[doc(hidden)]
    pub fn new(parts: impl IntoIterator<Item = Part>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// The text in the words of an interface. It controls no terminal, and is at most 1,000 characters long.
    pub fn in_words(&self, words: Words<'_>) -> String {
        let parts = self.0.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Mention(mention) => words(mention),
        });
        escape::message(&parts.collect::<String>()).into_owned()
    }

    /// The names of fields, with commas between them.
    pub fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let name = |name: &str| Self(vec![Part::Mention(Mention::Name(name.to_owned()))]);
        names.into_iter().map(name).reduce(|all, name| all.then(", ").then(name)).unwrap_or_default()
    }

    /// This text and another one.
    #[must_use]
    pub fn then(mut self, rest: impl Into<Self>) -> Self {
        self.0.extend(rest.into().0);
        self
    }

    /// The same text after the name of what it is about.
    #[must_use]
    pub(crate) fn about(mut self, field: &str) -> Self {
        let is_apart = !matches!(self.0.first(), Some(Part::Text(text)) if text.starts_with([':', ' ']));
        let space = is_apart.then(|| Part::Text(" ".to_owned()));
        self.0.splice(..0, [Part::Mention(Mention::Name(field.to_owned()))].into_iter().chain(space));
        self
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(&Mention::plain))
    }
}

/// Whether it reads so in plain words.
impl PartialEq<&str> for Message {
    fn eq(&self, text: &&str) -> bool {
        self.in_words(&Mention::plain) == **text
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        // What is longer than a message is cut once, so that nothing keeps the whole of it.
        Self(vec![Part::Text(escape::message(&text).into_owned())])
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A [`Message`](crate::message::Message): texts as for `format!`, `{field}` or `{(expression)}` for a name,
/// `{field = value}` for a value to set, `{None}` for what leaves a field unset, and `(expression)` or
/// `("format", arguments)` for a text.
///
/// ```
/// let beams = 3;
/// let message = rsgen_core::message!("must divide " {num_beams} " ({beams}); set " {num_beams = 4});
/// assert_eq!(message.to_string(), "must divide `num_beams` (3); set num_beams=4");
/// ```
#[macro_export]
macro_rules! message {
    ($($part:tt)+) => { $crate::message::Message::new([$($crate::message_part!($part)),+]) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! message_part {
    ({None}) => {
        $crate::message::Part::Mention($crate::message::Mention::Unset)
    };
    ({$name:ident}) => {
        $crate::message_part!({ (stringify!($name)) })
    };
    ({($name:expr)}) => {
        $crate::message::Part::Mention($crate::message::Mention::Name(($name).to_string()))
    };
    ({$name:ident = $value:expr}) => {
        $crate::message::Part::Mention($crate::message::Mention::Setting(
            stringify!($name).to_owned(),
            format!("{:?}", $value),
        ))
    };
    (($text:literal, $($argument:expr),+)) => { $crate::message::Part::Text(format!($text, $($argument),+)) };
    (($text:expr)) => {
        $crate::message::Part::Text(($text).to_string())
    };
    ($text:literal) => {
        $crate::message::Part::Text(format!($text))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interface_has_its_own_words() {
        let (field, why) = ("top_p", "a reason");
        let message =
            crate::message!({(field)} " has {why}; set " {do_sample = false} "; " {None} (" is fine"));
        assert_eq!(message.to_string(), "`top_p` has a reason; set do_sample=false; leaving it out is fine");
        let shouted = message.in_words(&|mention| match mention {
            Mention::Name(name) => name.to_uppercase(),
            Mention::Setting(name, value) => format!("{name}: {value}"),
            Mention::Unset => "null".to_owned(),
        });
        assert_eq!(shouted, "TOP_P has a reason; set do_sample: false; null is fine");
    }

    #[test]
    fn marks_in_values_are_no_names() {
        let value = "`top_p` do_sample=true [None]";
        let message = crate::message!("is {value}");
        assert_eq!(message.in_words(&|_| panic!("no mention")), format!("is {value}"));
    }
}
