//! The languages of a `Tokenizer`, and the ids of targets of encoder-decoder models.

use pyo3::prelude::*;

use super::errors::{guarded, to_python};
use super::signals::polled;
use super::tokenizer::Tokenizer;
use super::walk::Text;
use rsgen_core::types::TokenId;

impl Tokenizer {
    /// The tokenizer for the languages that are set.
    pub(super) fn spoken(&self) -> rsgen_text::Tokenizer {
        self.spoken.lock().clone()
    }

    pub(super) fn set_languages(
        &self,
        py: Python<'_>,
        source: Option<&str>,
        target: Option<&str>,
    ) -> PyResult<()> {
        let spoken = self.spoken().with_languages(source, target).map_err(|error| to_python(py, error))?;
        *self.spoken.lock() = spoken;
        Ok(())
    }

    fn language(&self, of_target: bool) -> Option<String> {
        let spoken = self.spoken();
        if of_target { spoken.target_language() } else { spoken.source_language() }.map(str::to_owned)
    }
}

#[guarded]
#[pymethods]
impl Tokenizer {
    /// Returns the token ids of a target, as `tokenizer(text_target=...)`.
    ///
    /// Those of Marian have pieces of their own, and those of multilingual models begin or end with
    /// `tgt_lang`; others are the ids of `encode()`.
    ///
    /// Args:
    ///     text (str): The text.
    ///     add_special_tokens (bool): Adds the special tokens that the model expects around a text.
    ///
    /// Returns:
    ///     list[int]: The ids.
    #[pyo3(signature = (text, *, add_special_tokens=true))]
    fn encode_target(&self, py: Python<'_>, text: Text<'_>, add_special_tokens: bool) -> PyResult<Vec<u32>> {
        let spoken = self.spoken();
        let ids: Vec<TokenId> = polled(py, |interrupted| {
            spoken.encode_target_interruptible(text.0, add_special_tokens, interrupted)
        })?;
        Ok(ids.into_iter().map(|id| id.0).collect())
    }

    /// list[str]: The languages that a multilingual tokenizer knows, by the names that it takes.
    #[getter]
    fn languages(&self) -> Vec<String> {
        self.inner.languages().map(str::to_owned).collect()
    }

    /// str | None: The language of sources. It can be set, to one of `languages`.
    #[getter]
    fn src_lang(&self) -> Option<String> {
        self.language(false)
    }

    #[setter]
    fn set_src_lang(&self, py: Python<'_>, language: Text<'_>) -> PyResult<()> {
        self.set_languages(py, Some(language.0), None)
    }

    /// str | None: The language of targets. It can be set, to one of `languages`.
    ///
    /// Marian's is written before a source, such as `>>fra<<`.
    #[getter]
    fn tgt_lang(&self) -> Option<String> {
        self.language(true)
    }

    #[setter]
    fn set_tgt_lang(&self, py: Python<'_>, language: Text<'_>) -> PyResult<()> {
        self.set_languages(py, None, Some(language.0))
    }
}
