//! The class `Tokenizer`: text to ids and back.

use pyo3::prelude::*;

use super::errors::{guarded, to_python};
use super::exit::detached;
use super::pickle;
use super::prompts::ids;
use crate::text;
use crate::types::TokenId;

/// The tokenizer of a model: text to token ids and back.
///
/// `len()` is the size of its vocabulary.
///
/// Example:
///     >>> gen.tokenizer.encode("Once upon a time")
///     >>> gen.tokenizer.decode([5, 6])
#[pyclass(module = "rsgen", name = "Tokenizer", frozen)]
pub(super) struct Tokenizer(pub(super) text::Tokenizer);

#[pymethods]
impl Tokenizer {
    /// Returns the token ids of a text.
    ///
    /// Args:
    ///     text (str): The text.
    ///     add_special_tokens (bool): Adds the special tokens that the model expects around a text.
    ///
    /// Returns:
    ///     list[int]: The ids.
    #[pyo3(signature = (text, *, add_special_tokens=true))]
    fn encode(&self, py: Python<'_>, text: &str, add_special_tokens: bool) -> PyResult<Vec<u32>> {
        guarded(|| {
            let encoded = detached(py, || self.0.encode(text, add_special_tokens));
            let token_ids = encoded.map_err(|error| to_python(py, error))?;
            Ok(token_ids.into_iter().map(|id| id.0).collect())
        })
    }

    /// Returns the text of token ids. Bytes that form no whole character become U+FFFD.
    ///
    /// Args:
    ///     token_ids (Ids): The ids.
    ///     skip_special_tokens (bool): Leaves special tokens out.
    ///
    /// Returns:
    ///     str: The text.
    #[pyo3(signature = (token_ids, *, skip_special_tokens=false))]
    fn decode(
        &self,
        py: Python<'_>,
        token_ids: &Bound<'_, PyAny>,
        skip_special_tokens: bool,
    ) -> PyResult<String> {
        guarded(|| {
            let token_ids = ids(token_ids)?;
            Ok(detached(py, || self.0.decode(&token_ids, skip_special_tokens)))
        })
    }

    /// int: The number of ids, one more than the largest. The model may have more.
    #[getter]
    fn vocab_size(&self) -> PyResult<usize> {
        guarded(|| Ok(self.0.vocab_size()))
    }

    /// int | None: The token that begins a text.
    #[getter]
    fn bos_token_id(&self) -> PyResult<Option<u32>> {
        guarded(|| Ok(self.0.bos().map(|id| id.0)))
    }

    /// int | None: The token that ends a text.
    ///
    /// `Generator.generation_config` holds all tokens that end generation.
    #[getter]
    fn eos_token_id(&self) -> PyResult<Option<u32>> {
        guarded(|| Ok(self.0.eos().map(|id| id.0)))
    }

    /// int | None: The token for padding.
    #[getter]
    fn pad_token_id(&self) -> PyResult<Option<u32>> {
        guarded(|| Ok(self.0.pad().map(|id| id.0)))
    }

    fn __len__(&self) -> PyResult<usize> {
        guarded(|| Ok(self.0.vocab_size()))
    }

    /// Raises `TypeError`: a tokenizer belongs to its generator.
    ///
    /// Returns:
    ///     NoReturn: Never.
    #[expect(clippy::unused_self, reason = "it is a method of Python's")]
    fn __reduce__(&self) -> PyResult<()> {
        guarded(|| {
            let remedy = "pickle the Generator and take its `tokenizer`, or copy the model's tokenizer.json";
            Err(pickle::refused("Tokenizer", "belongs to its Generator", remedy))
        })
    }

    /// Returns the same object.
    ///
    /// Returns:
    ///     Self: This object.
    fn __copy__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        guarded(|| Ok(slf))
    }

    /// Returns the same object.
    ///
    /// Args:
    ///     memo (Any): Of the module copy, unused.
    ///
    /// Returns:
    ///     Self: This object.
    #[pyo3(signature = (memo, /))]
    fn __deepcopy__<'py>(slf: PyRef<'py, Self>, memo: &Bound<'py, PyAny>) -> PyResult<PyRef<'py, Self>> {
        let _ = memo;
        guarded(|| Ok(slf))
    }

    fn __repr__(&self) -> PyResult<String> {
        guarded(|| {
            let shown = |id: Option<TokenId>| id.map_or("None".to_owned(), |id| id.to_string());
            Ok(format!(
                "Tokenizer(vocab_size={}, bos_token_id={}, eos_token_id={}, pad_token_id={})",
                self.0.vocab_size(),
                shown(self.0.bos()),
                shown(self.0.eos()),
                shown(self.0.pad())
            ))
        })
    }
}
