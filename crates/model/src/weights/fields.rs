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
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// The prefix of field names in errors, such as `rope_parameters.`.
    prefix: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(object: &'a Map<String, Value>, prefix: &'a str) -> Self {
        Self { object, prefix }
    }

    /// The value of a field that is present and not null.
    pub(super) fn get(self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Whether the field is present, null or not.
    pub(super) fn has(self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// A whole number within `range`.
    pub(super) fn integer(self, name: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
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
    pub(super) fn positive(self, name: &str, most: f64) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64().filter(|number| (LEAST..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, &format!("a number from {LEAST:e} to {most:e}"))),
        }
    }

    /// True or false.
    pub(super) fn flag(self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(name, "true or false"))
    }

    /// A text.
    pub(super) fn text(self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(name, "a string"))
    }

    /// The error for a field that breaks its rule.
    pub(super) fn wrong(self, name: &str, rule: &str) -> Error {
        let found = self.get(name).map_or_else(|| "nothing".to_owned(), shown);
        let field = format!("{}{name}", self.prefix);
        Error::load(format!("{field} must be {rule}, found {found}; correct the file or download it again"))
    }
}
