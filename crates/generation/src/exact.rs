//! Exact numbers in JSON: NaN and the infinities are texts, because JSON has no numbers for them.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Number {
    Finite(f32),
    Other(String),
}

/// Numbers, lists of numbers, and what of them may be missing.
pub(super) trait Exact: Sized {
    type Json: Serialize + for<'de> Deserialize<'de>;

    fn to_json(&self) -> Self::Json;

    /// The value; `None` if a text is no number.
    fn of_json(json: Self::Json) -> Option<Self>;
}

impl Exact for f32 {
    type Json = Number;

    fn to_json(&self) -> Number {
        if self.is_finite() { Number::Finite(*self) } else { Number::Other(self.to_string()) }
    }

    fn of_json(json: Number) -> Option<Self> {
        match json {
            Number::Finite(value) => Some(value),
            Number::Other(text) => text.parse().ok(),
        }
    }
}

impl<T: Exact> Exact for Vec<T> {
    type Json = Vec<T::Json>;

    fn to_json(&self) -> Self::Json {
        self.iter().map(T::to_json).collect()
    }

    fn of_json(json: Self::Json) -> Option<Self> {
        json.into_iter().map(T::of_json).collect()
    }
}

impl<T: Exact> Exact for Option<T> {
    type Json = Option<T::Json>;

    fn to_json(&self) -> Self::Json {
        self.as_ref().map(T::to_json)
    }

    fn of_json(json: Self::Json) -> Option<Self> {
        json.map_or(Some(None), |json| T::of_json(json).map(Some))
    }
}

pub(super) fn serialize<T: Exact, S: Serializer>(given: &T, serializer: S) -> Result<S::Ok, S::Error> {
    given.to_json().serialize(serializer)
}

pub(super) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let value = T::of_json(T::Json::deserialize(deserializer)?);
    value.ok_or_else(|| D::Error::custom("a number, \"NaN\" or \"inf\" is expected"))
}
