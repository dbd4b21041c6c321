//! The class `Tokenizer`: text to ids and back.

use pyo3::prelude::*;

use super::errors::{guarded, to_python};
use super::prompts::ids;
use crate::text;
use crate::types::TokenId;

/// The tokenizer of a model.
#[pyclass(module = "rsgen", name = "Tokenizer", frozen)]
pub(super) struct Tokenizer(pub(super) text::Tokenizer);

#[pymethods]
impl Tokenizer {
    #[pyo3(signature = (text, *, add_special_tokens=true))]
    fn encode(&self, py: Python<'_>, text: &str, add_special_tokens: bool) -> PyResult<Vec<u32>> {
        guarded(|| {
            let encoded = py.detach(|| self.0.encode(text, add_special_tokens));
            let token_ids = encoded.map_err(|error| to_python(py, error))?;
            Ok(token_ids.into_iter().map(|id| id.0).collect())
        })
    }

    #[pyo3(signature = (token_ids, *, skip_special_tokens=false))]
    fn decode(
        &self,
        py: Python<'_>,
        token_ids: &Bound<'_, PyAny>,
        skip_special_tokens: bool,
    ) -> PyResult<String> {
        guarded(|| {
            let token_ids = ids(token_ids)?;
            Ok(py.detach(|| self.0.decode(&token_ids, skip_special_tokens)))
        })
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    #[getter]
    fn bos_token_id(&self) -> Option<u32> {
        self.0.bos().map(|id| id.0)
    }

    #[getter]
    fn eos_token_id(&self) -> Option<u32> {
        self.0.eos().map(|id| id.0)
    }

    #[getter]
    fn pad_token_id(&self) -> Option<u32> {
        self.0.pad().map(|id| id.0)
    }

    fn __len__(&self) -> usize {
        self.0.vocab_size()
    }

    fn __repr__(&self) -> String {
        let shown = |id: Option<TokenId>| id.map_or("None".to_owned(), |id| id.to_string());
        format!(
            "Tokenizer(vocab_size={}, bos_token_id={}, eos_token_id={}, pad_token_id={})",
            self.0.vocab_size(),
            shown(self.0.bos()),
            shown(self.0.eos()),
            shown(self.0.pad())
        )
    }
}
