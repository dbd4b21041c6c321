//! What a `Tokenizer` gives besides ids: its files, and the characters of tokens.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::errors::guarded;
use super::signals::polled;
use super::tokenizer::Tokenizer;
use super::walk::Text;
use rsgen::generator::{MemoryModel, Tensor};

#[guarded]
#[pymethods]
impl Tokenizer {
    /// Writes the files of the tokenizer into a folder, from which rsgen and transformers open it.
    ///
    /// They are those that it was opened from, chat templates included. A `pad_token` and a `padding_side` that
    /// were set are written as well.
    ///
    /// Args:
    ///     save_directory (str | os.PathLike[str]): The folder. It is made if it is missing, and files of the same
    ///         names are replaced.
    ///
    /// Returns:
    ///     tuple[str, ...]: The paths of the files.
    ///
    /// Raises:
    ///     InputError: The tokenizer is in a GGUF file, and has none of its own.
    #[pyo3(signature = (save_directory))]
    fn save_pretrained<'py>(
        slf: &Bound<'py, Self>,
        save_directory: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let model = slf.get().add_files_to(py, MemoryModel::new("{}", Vec::<Tensor>::new()))?;
        let files = model.tokenizer_files();
        if files
            .iter()
            .all(|(name, _)| Path::new(name).extension().is_some_and(|extension| extension == "jinja"))
        {
            let rule = "the tokenizer has no files of its own: it is in a GGUF file";
            return Err(input_error!(py, "{rule}; copy that file, which rsgen.Tokenizer(path) opens"));
        }
        let files: Vec<_> = files.iter().map(|(name, text)| (name, PyBytes::new(py, text))).collect();
        let settings = slf.get().set_padding(py)?;
        py.import("rsgen._tokenizer")?.call_method1("save_pretrained", (save_directory, files, settings))
    }

    /// The characters of each token of a text, from and to.
    #[pyo3(signature = (text, add_special_tokens))]
    fn _offsets(
        &self,
        py: Python<'_>,
        text: Text<'_>,
        add_special_tokens: bool,
    ) -> PyResult<Vec<(usize, usize)>> {
        let spoken = self.spoken();
        if !spoken.has_offsets() {
            return Err(input_error!(
                py,
                "`return_offsets_mapping` needs a tokenizer.json, but the tokenizer is a {}; leave it out",
                spoken.file()
            ));
        }
        let encoded = polled(py, |interrupted| {
            spoken.encode_with_offsets_interruptible(text.0, add_special_tokens, interrupted)
        })?;
        Ok(encoded
            .into_iter()
            .map(|(_, place)| place.map_or((0, 0), |place| (place.start, place.end)))
            .collect())
    }
}

impl Tokenizer {
    /// How rows are filled up, as far as that was set.
    pub(super) fn set_padding<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let settings = PyDict::new(py);
        if let Some(side) = self.chosen_padding_side() {
            settings.set_item("padding_side", side)?;
        }
        if self.pad_token_id()? != self.inner.pad().map(|id| id.0) {
            settings.set_item("pad_token", self.pad_token()?)?;
        }
        Ok(settings)
    }
}
