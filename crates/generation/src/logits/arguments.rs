//! The arguments of processors' constructors, by name, for calls from Python and for goldens.
//!
//! They have the types of configuration fields, or are functions. The constructors check ranges.

use std::fmt;
use std::sync::Arc;

use rsgen_core::{Error, Result};

use super::super::config::{Compat, FieldKind, FieldType, FieldValue};
use super::PrefixAllowedTokens;

/// An argument as it was given.
#[derive(Clone)]
#[non_exhaustive]
pub enum Argument {
    /// A value as configuration fields take it.
    Value(FieldValue),
    /// A function that returns the tokens that may follow.
    AllowedTokens(Arc<dyn PrefixAllowedTokens>),
}

impl<T: Into<FieldValue>> From<T> for Argument {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::AllowedTokens(_) => f.write_str("a function"),
        }
    }
}

/// A description of an argument, for bindings and help pages.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ArgumentInfo {
    /// The name, as in transformers.
    pub name: &'static str,
    /// Its values.
    pub kind: FieldKind,
    default: Default,
}

impl ArgumentInfo {
    /// The default; `None` if the argument is required.
    pub fn default(&self) -> Option<FieldValue> {
        match &self.default {
            Default::Required => None,
            Default::Value(value) => Some(value.clone()),
            Default::Word(word) => Some(FieldValue::from(*word)),
        }
    }
}

/// What an argument is unless it is given. A text of its own cannot be a constant.
#[derive(Debug, Clone)]
enum Default {
    Required,
    Value(FieldValue),
    Word(&'static str),
}

/// A required argument.
pub(super) const fn required<T: ArgumentType>(name: &'static str) -> ArgumentInfo {
    ArgumentInfo { name, default: Default::Required, kind: T::KIND }
}

/// An optional argument.
pub(super) const fn optional<T: ArgumentType>(name: &'static str, default: FieldValue) -> ArgumentInfo {
    ArgumentInfo { name, default: Default::Value(default), kind: T::KIND }
}

/// An optional argument whose default is a word.
pub(super) const fn word<T: ArgumentType>(name: &'static str, default: &'static str) -> ArgumentInfo {
    ArgumentInfo { name, default: Default::Word(default), kind: T::KIND }
}

/// A type that arguments may have.
pub(super) trait ArgumentType: Sized {
    /// Its values.
    const KIND: FieldKind;

    /// The argument, or `None` when it is of another type.
    fn parse(argument: &Argument) -> Option<Self>;
}

impl<T: FieldType> ArgumentType for T {
    const KIND: FieldKind = <T as FieldType>::KIND;

    fn parse(argument: &Argument) -> Option<Self> {
        match argument {
            Argument::Value(value) => <T as FieldType>::parse(value),
            Argument::AllowedTokens(_) => None,
        }
    }
}

impl ArgumentType for Arc<dyn PrefixAllowedTokens> {
    const KIND: FieldKind = FieldKind::Other(
        "a function of a batch id and the ids so far that returns the allowed tokens",
        "PrefixAllowedTokens",
        &[],
    );

    fn parse(argument: &Argument) -> Option<Self> {
        match argument {
            Argument::AllowedTokens(function) => Some(Self::clone(function)),
            Argument::Value(_) => None,
        }
    }
}

/// The only device.
pub(super) struct Device;

impl ArgumentType for Device {
    const KIND: FieldKind =
        FieldKind::Described("\"cpu\", the only one there is", &FieldKind::Word(&["cpu"]));

    fn parse(argument: &Argument) -> Option<Self> {
        match argument {
            Argument::Value(FieldValue::Text(device)) if device == "cpu" => Some(Self),
            _ => None,
        }
    }
}

/// The arguments of one call in the constructor's order, with defaults filled in.
pub(super) struct Arguments {
    /// The older transformers to follow, if any.
    pub(super) compat: Option<Compat>,
    arguments: std::vec::IntoIter<(&'static str, Argument)>,
}

impl Arguments {
    /// Orders the arguments that were given by name, for a constructor that takes `expected`.
    pub(super) fn new(
        expected: &'static [ArgumentInfo],
        has_device: bool,
        given: impl IntoIterator<Item = (String, Argument)>,
        compat: Option<Compat>,
    ) -> Result<Self> {
        let mut given: Vec<(String, Argument)> = given.into_iter().collect();
        let mut take = |name: &str| {
            given.iter().position(|(given, _)| given == name).map(|index| given.swap_remove(index).1)
        };
        let device = if has_device { take("device") } else { None };
        let in_order = |info: &'static ArgumentInfo| {
            let argument = take(info.name).or_else(|| info.default().map(Argument::Value));
            argument.map(|argument| (info.name, argument)).ok_or_else(|| {
                Error::config(format!("must be given: it is {}", info.kind.describe())).about(info.name)
            })
        };
        let arguments: Vec<_> = expected.iter().map(in_order).collect::<Result<_>>()?;
        match (device, given.first()) {
            (Some(device), _) if device.to_string() != "\"cpu\"" => Err(Error::config(format!(
                "must be \"cpu\", the only one there is, but is {device}; leave it out"
            ))
            .about("device")),
            (_, Some((name, _))) => Err(Error::config("is no argument of this processor").about(name)),
            _ => Ok(Self { compat, arguments: arguments.into_iter() }),
        }
    }

    /// The next argument.
    pub(super) fn next<T: ArgumentType>(&mut self) -> Result<T> {
        let next = self.arguments.next();
        let (name, argument) =
            next.ok_or_else(|| Error::internal("a constructor takes more than its entry says"))?;
        T::parse(&argument).ok_or_else(|| {
            Error::config(format!("must be {}, but is {argument}", T::KIND.describe())).about(name)
        })
    }
}
