//! The vocabulary of a `Tokenizer`: tokens, their ids, and special tokens.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use super::errors::guarded;
use super::prompts::{rows_to_decode, single_id};
use super::signals::look;
use super::tokenizer::Tokenizer;
use super::walk::{Text, Walk};
use rsgen_core::types::TokenId;

impl Tokenizer {
    /// A special token by its name, such as `unk_token`.
    fn special_token(&self, name: &str) -> Option<&str> {
        self.inner.special_tokens_map().find(|(known, _)| *known == name).map(|(_, token)| token)
    }

    /// The tokens of ids as a Python list.
    fn tokens<'py>(
        &self,
        py: Python<'py>,
        ids: impl IntoIterator<Item = TokenId>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for id in ids {
            look(py)?;
            list.append(self.inner.token(id))?;
        }
        Ok(list)
    }

    fn unk_id(&self) -> Option<TokenId> {
        self.special_token("unk_token").and_then(|token| self.inner.id(token))
    }
}

#[guarded]
#[pymethods]
impl Tokenizer {
    /// Returns the tokens of a text as the vocabulary writes them, such as `Ġthe`.
    ///
    /// Args:
    ///     text (str): The text.
    ///     add_special_tokens (bool): Adds the special tokens that the model expects around a text.
    ///
    /// Returns:
    ///     list[str]: The tokens.
    #[pyo3(signature = (text, *, add_special_tokens=false))]
    fn tokenize<'py>(
        &self,
        py: Python<'py>,
        text: Text<'_>,
        add_special_tokens: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        self.tokens(py, self.ids(py, text.0, add_special_tokens)?)
    }

    /// Returns the tokens of ids as the vocabulary writes them.
    ///
    /// Args:
    ///     ids (int | Ids): An id or several.
    ///     skip_special_tokens (bool): Leaves special tokens out.
    ///
    /// Returns:
    ///     Any: The token; a list of tokens for several ids. None stands for an id without a token.
    #[pyo3(signature = (ids, skip_special_tokens=false))]
    fn convert_ids_to_tokens<'py>(
        &self,
        ids: &Bound<'py, PyAny>,
        skip_special_tokens: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = ids.py();
        if let Some(id) = single_id(ids)? {
            return self.inner.token(id).into_bound_py_any(py);
        }
        let (rows, _) = rows_to_decode(ids)?;
        let kept = rows.into_iter().flatten();
        let kept = kept.filter(|&id| !(skip_special_tokens && self.inner.is_special(id)));
        self.tokens(py, kept).map(Bound::into_any)
    }

    /// Returns the ids of tokens as the vocabulary writes them.
    ///
    /// Args:
    ///     tokens (str | Sequence[str]): A token or several.
    ///
    /// Returns:
    ///     Any: The id; a list of ids for several tokens. An unknown token has the `unk_token_id`.
    #[pyo3(signature = (tokens))]
    fn convert_tokens_to_ids<'py>(&self, tokens: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = tokens.py();
        let id = |Text(token): Text<'_>| self.inner.id(token).or_else(|| self.unk_id()).map(|id| id.0);
        if tokens.is_instance_of::<PyString>() {
            return id(tokens.extract()?).into_bound_py_any(py);
        }
        let list = PyList::empty(py);
        for token in Walk::default().items(tokens)? {
            list.append(id(token?.extract()?))?;
        }
        Ok(list.into_any())
    }

    /// Returns all tokens with their ids.
    ///
    /// Returns:
    ///     dict[str, int]: The ids by their tokens.
    fn get_vocab<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let vocab = PyDict::new(py);
        for id in 0..self.inner.len() as u32 {
            if let Some(token) = self.inner.token(TokenId(id)) {
                vocab.set_item(token, id)?;
            }
        }
        Ok(vocab)
    }

    /// int | None: The id of the token that stands for what the vocabulary lacks.
    #[getter]
    fn unk_token_id(&self) -> Option<u32> {
        self.unk_id().map(|id| id.0)
    }

    /// str | None: The token that begins a text.
    #[getter]
    fn bos_token(&self) -> Option<&str> {
        self.special_token("bos_token")
    }

    /// str | None: The token that ends a text.
    #[getter]
    fn eos_token(&self) -> Option<&str> {
        self.special_token("eos_token")
    }

    /// str | None: The token that stands for what the vocabulary lacks.
    #[getter]
    fn unk_token(&self) -> Option<&str> {
        self.special_token("unk_token")
    }

    /// dict[str, str]: The special tokens that have names, such as `bos_token`, with their texts.
    #[getter]
    fn special_tokens_map<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let map = PyDict::new(py);
        for (name, token) in self.inner.special_tokens_map() {
            map.set_item(name, token)?;
        }
        Ok(map)
    }

    /// list[int]: The ids of the special tokens, in ascending order.
    #[getter]
    fn all_special_ids(&self) -> PyResult<Vec<u32>> {
        let is_special = |id: &u32| self.inner.is_special(TokenId(*id));
        Ok((0..self.inner.len() as u32).filter(is_special).collect())
    }

    /// list[str]: The special tokens, in the order of their ids.
    #[getter]
    fn all_special_tokens(&self) -> Vec<Option<&str>> {
        self.all_special_ids()?.into_iter().map(|id| self.inner.token(TokenId(id))).collect()
    }
}
