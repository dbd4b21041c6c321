//! Exact numbers in JSON: NaN and the infinities are texts, because JSON has no numbers for them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f32),
    Other(String),
}

impl From<f32> for Number {
    fn from(value: f32) -> Self {
        if value.is_finite() { Self::Finite(value) } else { Self::Other(value.to_string()) }
    }
}

impl Number {
    fn value<E: serde::de::Error>(self) -> Result<f32, E> {
        match self {
            Self::Finite(value) => Ok(value),
            Self::Other(text) => {
                text.parse().map_err(|_| E::custom("a number, \"NaN\" or \"inf\" is expected"))
            }
        }
    }
}

fn row(values: &[f32]) -> Vec<Number> {
    values.iter().copied().map(Number::from).collect()
}

fn values<E: serde::de::Error>(numbers: Vec<Number>) -> Result<Vec<f32>, E> {
    numbers.into_iter().map(Number::value).collect()
}

pub(super) fn serialize<S: Serializer>(given: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
    row(given).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    values(Vec::deserialize(deserializer)?)
}

/// A number that may be missing.
pub(super) mod option {
    use super::{Deserialize, Deserializer, Number, Serialize, Serializer};

    #[expect(
        clippy::ref_option,
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde asks for"
    )]
    pub(crate) fn serialize<S: Serializer>(given: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
        given.map(Number::from).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f32>, D::Error> {
        Option::<Number>::deserialize(deserializer)?.map(Number::value).transpose()
    }
}

/// Rows that may be missing.
pub(super) mod rows {
    use super::{Deserialize, Deserializer, Number, Serialize, Serializer, row, values};

    #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(crate) fn serialize<S: Serializer>(
        given: &Option<Vec<Vec<f32>>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        given
            .as_ref()
            .map(|rows| rows.iter().map(|values| row(values)).collect::<Vec<_>>())
            .serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<Vec<f32>>>, D::Error> {
        let rows = Option::<Vec<Vec<Number>>>::deserialize(deserializer)?;
        rows.map(|rows| rows.into_iter().map(values).collect()).transpose()
    }
}
