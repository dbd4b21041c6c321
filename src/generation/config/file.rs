//! `generation_config.json`: loading and saving, under transformers' names.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Error, Result, ResultExt};

use super::{GenerationConfig, MAX_FILE_BYTES};

/// The name of the file in a folder.
const NAME: &str = "generation_config.json";

impl GenerationConfig {
    /// Reads the `generation_config.json` of a folder, or the file itself. Keys that are no fields are kept in `extra`.
    ///
    /// # Errors
    /// `Load` when the file is missing or damaged, or a field has a value of another type.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = if path.is_dir() { path.join(NAME) } else { path.to_owned() };
        let read = || {
            let mut text = String::new();
            // One byte more than is taken, so that a longer file is seen to be longer.
            File::open(&file)?.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
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

    /// Writes `generation_config.json` into a folder, which is made if need be. Returns its path.
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
        fs::write(&file, text + "\n").map_err(failed)?;
        Ok(file)
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
}
