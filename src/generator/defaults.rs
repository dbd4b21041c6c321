//! The generation defaults of a model: its `generation_config.json`, or else what its `config.json` says.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Shared;
use rsgen_core::Origin;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_generation::{Compat, GenerationConfig};
use rsgen_model::weights::ModelFiles;

/// The new tokens of a call without any limit: transformers' default.
pub(super) const DEFAULT_NEW_TOKENS: usize = 20;

const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";

/// The model's generation defaults, and the file that they are from. Without a `generation_config.json`, or if it
/// is ignored, they are the fields of the `config.json`, as in transformers 5.24: checkpoints of before 4.26 have
/// them there.
///
/// # Errors
/// `Load` when a field has a value of another type, or the file is damaged.
pub(crate) fn generation_defaults(
    files: &ModelFiles,
    model_config: &Map<String, Value>,
    ignored: bool,
) -> Result<(GenerationConfig, &'static str)> {
    let file = if ignored { None } else { files.generation_config()? };
    let Some(bytes) = file else {
        let fields = GenerationConfig::from_model_config(model_config.clone());
        let fields = fields.map_err(|error| Error::load(error.to_string())).context(|| CONFIG)?;
        return Ok((fields, CONFIG));
    };
    let text = str::from_utf8(&bytes).map_err(|error| Error::load("it must be UTF-8").with_source(error));
    let fields = text.and_then(GenerationConfig::from_json_file).context(|| GENERATION_CONFIG)?;
    Ok((fields, GENERATION_CONFIG))
}

/// The defaults of a call: the model's file, or with `compat="4.49"` the part of it that transformers 4.49
/// uses.
pub(super) fn of_call(
    file: &Arc<GenerationConfig>,
    config: &GenerationConfig,
    has_generation_config: bool,
) -> Arc<GenerationConfig> {
    if config.merged_over(file).compat != Some(Compat::V4_49) {
        return Arc::clone(file);
    }
    let mut defaults = GenerationConfig::clone(file);
    if has_generation_config {
        defaults = GenerationConfig::new();
        defaults.compat = file.compat;
        defaults.bos_token_id = file.bos_token_id;
        defaults.eos_token_id.clone_from(&file.eos_token_id);
        defaults.pad_token_id = file.pad_token_id;
    }
    // It is the default there, so it counts as unset: 20 new tokens.
    defaults.max_length = defaults.max_length.filter(|&max_length| max_length != DEFAULT_NEW_TOKENS);
    Arc::new(defaults)
}

impl Shared {
    /// Names the model's file in an error about a value that comes from it.
    pub(super) fn inherited(
        &self,
        error: Error,
        call: &GenerationConfig,
        defaults: &GenerationConfig,
    ) -> Error {
        let is_inherited = |field: &str| call.get(field).is_none() && defaults.get(field).is_some();
        match error.field() {
            Some(field) if is_inherited(field) => {
                error.from_origin(Origin::ModelFile(self.generation_config_file))
            }
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use rsgen_generation::FieldValue;
    use serde_json::json;

    use super::*;

    /// Fields that no file of transformers has.
    const OWN: usize = 23;

    #[test]
    fn every_field_is_read_from_config_json_unless_there_is_the_other_file() {
        let samples = json!([
            true, 3, 1.5, "4.49", "never", "low", [5, 1.5], [5, 6], [[5], [6, 7]], [0, 1], "constant", {"5": 2.5},
            {"(5, 6)": 2.5}, {"bias": 2.5}, {"house": "Haus"}, "text"
        ]);
        let files = |defaults: Option<&str>| {
            let file = defaults.map(|text| ("generation_config.json".to_owned(), text.as_bytes().to_vec()));
            ModelFiles::in_memory("memory", file.into_iter().collect::<Vec<_>>(), None)
        };
        let read = |field: &str, value: &Value, defaults: Option<&str>, ignored| {
            let config = json!({"hidden_size": 8, field: value});
            generation_defaults(&files(defaults), config.as_object().unwrap(), ignored).unwrap().0
        };
        let mut unread = 0;
        for info in GenerationConfig::FIELDS {
            let name = info.name;
            let mut set = GenerationConfig::new();
            let sample = samples
                .as_array()
                .unwrap()
                .iter()
                .find(|sample| set.set(name, &FieldValue::from((*sample).clone())).is_ok());
            let sample = sample.unwrap();
            let found = read(name, sample, None, false);
            if found == GenerationConfig::new() {
                unread += 1;
                continue;
            }
            assert_eq!(found, set, "{name}");
            assert_eq!(read(name, &Value::Null, None, false), GenerationConfig::new(), "{name}");
            assert_eq!(read(name, sample, Some("{}"), false), GenerationConfig::new(), "{name}");
            assert_eq!(read(name, sample, Some(r#"{"top_k": 4}"#), true), set, "{name}");
        }
        assert_eq!(unread, OWN);
        let wrong = json!({"top_k": "many"});
        let error =
            generation_defaults(&files(None), wrong.as_object().unwrap(), false).unwrap_err().to_string();
        assert!(error.starts_with("config.json: ") && error.contains("top_k"), "{error}");
    }
}
