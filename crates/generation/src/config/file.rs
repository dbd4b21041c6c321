//! `generation_config.json`: loading and saving, under transformers' names.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use rsgen_core::files::{open_regular, replace};
use rsgen_core::{Error, Result, ResultExt};

use super::{GenerationConfig, MAX_FILE_BYTES};

/// The name of the file in a folder.
const NAME: &str = "generation_config.json";

impl GenerationConfig {
    /// Reads the `generation_config.json` of a folder, or the file itself. Keys that are no fields are kept
    /// in `extra`.
    ///
    /// # Errors
    /// `Load` when the file is missing or damaged, or a field has a value of another type.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = if path.is_dir() { path.join(NAME) } else { path.to_owned() };
        let read = || {
            let mut text = String::new();
            // One byte beyond the limit, so that a longer file is detected.
            open_regular(&file)?.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
            Ok::<_, std::io::Error>(text)
        };
        let text = read().map_err(|error| {
            Error::load(format!(
                "{} cannot be read: {error}; name a folder with a {NAME}, or the file",
                file.display()
            ))
        })?;
        Self::from_json_file(&text).context(|| file.display().to_string())
    }

    /// Writes `generation_config.json` into a folder, which it creates if needed. Returns the path of the
    /// file.
    ///
    /// # Errors
    /// As for [`GenerationConfig::validate`], and `Load` when the file cannot be written.
    pub fn save_pretrained(&self, folder: impl AsRef<Path>) -> Result<PathBuf> {
        let file = folder.as_ref().join(NAME);
        self.validate().context(|| format!("{} is not written", file.display()))?;
        let failed =
            |error: std::io::Error| Error::load(format!("{} cannot be written: {error}", file.display()));
        let text = serde_json::to_string_pretty(&Value::Object(self.to_json()));
        let text = text.map_err(|error| Error::internal(error.to_string()))?;
        fs::create_dir_all(folder.as_ref()).map_err(failed)?;
        replace(&file, |file| file.write_all((text + "\n").as_bytes())).map_err(failed)?;
        Ok(file)
    }
}

/// As `generation_config.json` holds it; a field that is switched off is null.
impl Serialize for GenerationConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

/// As a call takes it: null switches a field off. Keys that are no fields are kept in `extra`.
impl<'de> Deserialize<'de> for GenerationConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let (fields, extra): (Map<_, _>, _) =
            Map::deserialize(deserializer)?.into_iter().partition(|(name, _)| Self::is_field(name));
        let config = Self::from_call(fields).map_err(D::Error::custom)?;
        Ok(Self { extra, ..config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_goes_into_a_file_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut config =
            GenerationConfig::new().do_sample(true).top_p(0.9).eos_token_id(vec![1.into(), 2.into()]);
        config.extra.insert("custom".to_owned(), 5.into());
        let file = config.save_pretrained(folder.path().join("new").join("folder")).unwrap();
        assert_eq!(GenerationConfig::from_pretrained(&file).unwrap(), config);
        assert_eq!(GenerationConfig::from_pretrained(file.parent().unwrap()).unwrap(), config);
    }

    #[test]
    fn a_configuration_goes_through_serde_and_back() {
        let mut config = GenerationConfig::new()
            .top_p(0.9)
            .eos_token_id(vec![1.into(), 2.into()])
            .temperature(f64::INFINITY);
        config = config.switch_off("top_k").unwrap();
        config.extra.insert("custom".to_owned(), 5.into());
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<GenerationConfig>(&text).unwrap(), config);
        assert!(text.contains(r#""top_k":null"#), "{text}");
        assert_eq!(GenerationConfig::from_json_file(&text).unwrap().top_k, None);
        let error = serde_json::from_str::<GenerationConfig>(r#"{"top_k": "many"}"#).unwrap_err().to_string();
        assert!(error.contains("`top_k` must be an integer"), "{error}");
    }

    #[test]
    fn what_is_not_possible_is_not_saved_and_what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            GenerationConfig::new().top_p(2.0).save_pretrained(folder.path()).unwrap_err().to_string();
        assert!(error.contains("generation_config.json is not written: `top_p` must be"), "{error}");
        assert!(!folder.path().join(NAME).exists());
        let error = GenerationConfig::from_pretrained(folder.path()).unwrap_err().to_string();
        assert!(error.contains("generation_config.json cannot be read"), "{error}");
        let long = folder.path().join("long.json");
        fs::write(&long, " ".repeat(MAX_FILE_BYTES + 9)).unwrap();
        let error = GenerationConfig::from_pretrained(&long).unwrap_err().to_string();
        assert!(error.contains("a file of at most"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_neither_read_nor_written() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join(NAME);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for error in [
            GenerationConfig::from_pretrained(folder.path()).unwrap_err(),
            GenerationConfig::from_pretrained(&pipe).unwrap_err(),
            GenerationConfig::new().save_pretrained(folder.path()).unwrap_err(),
        ] {
            assert!(error.to_string().contains("must be a regular file"), "{error}");
        }
    }
}
