//! The arguments of processors' constructors, by name, as a call from Python or a golden gives them.
//!
//! They have the types of configuration fields, and functions besides. Ranges are checked by the constructors.

use std::fmt;

use crate::error::{Error, Result};

use super::super::config::{FieldType, FieldValue};

/// An argument as it was given.
#[derive(Clone)]
#[non_exhaustive]
pub enum Argument {
    /// A value as configuration fields take it.
    Value(FieldValue),
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
        }
    }
}

/// What there is to know of an argument, for bindings and help pages.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ArgumentInfo {
    /// The name, as in transformers.
    pub name: &'static str,
    /// The type as Python's annotations write it.
    pub python: String,
    /// The value it has when it is left out; `None` if it cannot be.
    pub default: Option<FieldValue>,
}

/// A type that arguments may have.
pub(super) trait ArgumentType: Sized {
    /// What a value has to be, to complete "must be …".
    const KIND: &'static str;

    /// The type as Python's annotations write it.
    fn python() -> String;

    /// The argument, or `None` when it is of another type.
    fn parse(argument: &Argument) -> Option<Self>;

    /// The value that stands for it.
    fn to_value(&self) -> FieldValue;
}

impl<T: FieldType> ArgumentType for T {
    const KIND: &'static str = <T as FieldType>::KIND;

    fn python() -> String {
        <T as FieldType>::python()
    }

    fn parse(argument: &Argument) -> Option<Self> {
        match argument {
            Argument::Value(value) => <T as FieldType>::parse(value),
        }
    }

    fn to_value(&self) -> FieldValue {
        FieldType::to_value(self)
    }
}

impl ArgumentInfo {
    pub(super) fn of<T: ArgumentType>(name: &'static str, default: Option<T>) -> Self {
        Self { name, python: T::python(), default: default.map(|value| value.to_value()) }
    }
}

/// The arguments of one call.
#[derive(Default)]
pub(super) struct Arguments {
    given: Vec<(String, Argument)>,
}

impl Arguments {
    pub(super) fn new(given: impl IntoIterator<Item = (String, Argument)>) -> Self {
        Self { given: given.into_iter().collect() }
    }

    /// Takes out the argument of that name.
    pub(super) fn take<T: ArgumentType>(&mut self, name: &str, default: Option<T>) -> Result<T> {
        let Some(place) = self.given.iter().position(|(given, _)| given == name) else {
            return default
                .ok_or_else(|| Error::config(format!("`{name}` must be given: it is {}", T::KIND)));
        };
        let (_, argument) = self.given.swap_remove(place);
        T::parse(&argument)
            .ok_or_else(|| Error::config(format!("`{name}` must be {}, but is {argument}", T::KIND)))
    }

    /// Checks that nothing is left over; a device has to be the only one there is.
    pub(super) fn finish(mut self, has_device: bool) -> Result<()> {
        if has_device {
            let device: String = self.take("device", Some("cpu".to_owned()))?;
            if device != "cpu" {
                return Err(Error::config(format!(
                    "`device` must be \"cpu\", the only one there is, but is {device:?}; leave it out"
                )));
            }
        }
        match self.given.first() {
            None => Ok(()),
            Some((name, _)) => Err(Error::config(format!("`{name}` is no argument of this processor"))),
        }
    }
}
