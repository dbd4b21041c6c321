//! Fields of a JSON object with their ranges: one error for a bad value, naming field, rule, value and
//! remedy.
//!
//! A null field counts as absent, as in transformers.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use rsgen_core::error::{Error, Result};
use rsgen_core::json::shown;

/// The least positive number: smaller ones, or their reciprocals, leave the range of float32.
const LEAST: f64 = 1e-15;

/// The fields of one object of config.json.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// The prefix of field names in errors, such as `rope_parameters.`.
    prefix: &'a str,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(object: &'a Map<String, Value>, prefix: &'a str) -> Self {
        Self { object, prefix }
    }

    /// The value of a field that is present and not null.
    pub(crate) fn get(self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// The name of a field that is an object.
    pub(crate) fn nested(self) -> Option<&'a str> {
        self.object.iter().find(|(_, value)| value.is_object()).map(|(name, _)| name.as_str())
    }

    /// A whole number within `range`.
    pub(crate) fn integer(self, name: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                Err(self.wrong(name, &format!("a whole number from {} to {}", range.start(), range.end())))
            }
        }
    }

    /// A number from [`LEAST`] to `most`.
    pub(crate) fn positive(self, name: &str, most: f64) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64().filter(|number| (LEAST..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, &format!("a number from {LEAST:e} to {most:e}"))),
        }
    }

    /// A number from `least` to `most`.
    pub(crate) fn number(self, name: &str, least: f64, most: f64) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64().filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, &format!("a number from {least:e} to {most:e}"))),
        }
    }

    /// Refuses a field that is neither absent nor null nor false.
    pub(crate) fn refuse(self, name: &str, what: &str) -> Result<()> {
        match self.get(name) {
            None | Some(Value::Bool(false)) => Ok(()),
            Some(_) => Err(self.wrong(name, &format!("false or absent: {what} is not supported"))),
        }
    }

    /// True or false; absent and null are false.
    pub(crate) fn is_set(self, name: &str) -> Result<bool> {
        Ok(self.flag(name)?.unwrap_or(false))
    }

    /// True or false.
    pub(crate) fn flag(self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(name, "true or false"))
    }

    /// A size that must be given, from 1 to 2^20.
    pub(crate) fn count(self, name: &str) -> Result<usize> {
        let rule = 1..=1 << 20;
        let missing = || self.wrong(name, &format!("a whole number from {} to {}", rule.start(), rule.end()));
        self.integer(name, rule.clone())?.ok_or_else(missing)
    }

    /// A list of indices; absent is empty.
    pub(crate) fn indices(self, name: &str) -> Result<Vec<usize>> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let index = |value: &Value| value.as_u64().and_then(|index| usize::try_from(index).ok());
        let list = value.as_array().and_then(|list| list.iter().map(index).collect());
        list.ok_or_else(|| self.wrong(name, "a list of whole numbers"))
    }

    /// The fields of a field that is an object.
    pub(crate) fn object(self, name: &str) -> Option<Self> {
        Some(Self { object: self.get(name)?.as_object()?, prefix: self.prefix })
    }

    /// A text.
    pub(crate) fn text(self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(name, "a string"))
    }

    /// The error for a field that breaks its rule.
    pub(crate) fn wrong(self, name: &str, rule: &str) -> Error {
        let found = self.get(name).map_or_else(|| "nothing".to_owned(), shown);
        let field = format!("{}{name}", self.prefix);
        Error::load(format!("{field} must be {rule}, found {found}; correct the file or download it again"))
    }
}
