//! Packed files: a `model.safetensors` whose matrices are in the layout that rsgen computes with. docs/packed_models.md
//! describes it.

use std::collections::HashMap;
use std::str::FromStr as _;

use crate::error::{Error, Result};
use crate::json::shown;
use crate::tensor::WeightType;

/// The fields of the metadata.
const FORMAT: &str = "format";
const VERSION: &str = "rsgen_packed_version";
const WEIGHTS: &str = "rsgen_packed_dtype";
/// Their values.
const PACKED: &str = "rsgen_packed";
const CURRENT: &str = "1";

/// The name of a matrix that was packed from several tensors.
pub fn packed_name(parts: &[String]) -> String {
    parts.join("+")
}

/// The metadata of a packed file.
pub fn packed_metadata(weights: WeightType) -> HashMap<String, String> {
    [(FORMAT, PACKED), (VERSION, CURRENT), (WEIGHTS, weights.name())]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// What the matrices of a file with this metadata are packed as; `None` if it is no packed file.
///
/// # Errors
/// `Load` when it was packed by a version of rsgen that this one does not know.
pub(super) fn packed_weights(metadata: Option<&HashMap<String, String>>) -> Result<Option<WeightType>> {
    let field = |name: &str| metadata.and_then(|fields| fields.get(name)).map(String::as_str);
    if field(FORMAT) != Some(PACKED) {
        return Ok(None);
    }
    let refused = |name: &str, rule: &str| {
        let value = field(name).map_or("nothing".to_owned(), |value| shown(&value.into()));
        Error::load(format!(
            "{name} must be {rule}, found {value}; pack the model again with this version of rsgen"
        ))
    };
    if field(VERSION) != Some(CURRENT) {
        return Err(refused(VERSION, &format!("\"{CURRENT}\"")));
    }
    let weights = field(WEIGHTS).and_then(|name| WeightType::from_str(name).ok());
    match weights {
        Some(weights @ (WeightType::Int8 | WeightType::Int4)) => Ok(Some(weights)),
        _ => Err(refused(WEIGHTS, "\"int8\" or \"int4\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_file_is_known_by_its_metadata() {
        assert_eq!(packed_weights(None).unwrap(), None);
        let other = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        assert_eq!(packed_weights(Some(&other)).unwrap(), None);
        for weights in [WeightType::Int8, WeightType::Int4] {
            assert_eq!(packed_weights(Some(&packed_metadata(weights))).unwrap(), Some(weights));
        }
        for (field, value) in [(VERSION, "2"), (WEIGHTS, "int3"), (WEIGHTS, "float32")] {
            let mut fields = packed_metadata(WeightType::Int4);
            fields.insert(field.to_owned(), value.to_owned());
            let error = packed_weights(Some(&fields)).unwrap_err().to_string();
            assert!(error.contains(field) && error.contains(value) && error.contains("pack"), "{error}");
        }
    }
}
