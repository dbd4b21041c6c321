//! The class `TokenTrie`: a catalogue that the output of calls is of.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyIterator, PyList, PyRange, PyString, PyTuple, PyType};

use super::abc::is_sequence;
use super::errors::{exception, guarded, numbered, to_python};
use super::generator::Generator;
use super::json::{self, Form};
use super::pickle::Restored;
use super::prompts::{ids, shown};
use super::signals::polled;
use super::tokenizer::Tokenizer;
use super::walk::Walk;
use rsgen::generator::Continuations;
use rsgen_core::error::ErrorKind;
use rsgen_core::types::TokenId;
use rsgen_generation::TokenTrieBuilder;
use rsgen_model::weights::available_memory;

/// The memory that a token takes while a catalogue is built: in its entry, sorted, and as a node.
const BUILDING_BYTES: usize = 32;
/// So many entries are not compared with the available memory, because reading it is slow.
const UNWEIGHED_ENTRIES: usize = 1 << 16;

/// A catalogue of texts or token sequences, one of which the output of a call is to be.
///
/// `allowed_sequences=trie` lets every search and sampling end in its entries only, and
/// `GenerationOutput.entries` names them. It cannot be changed, so that calls and threads share it.
///
/// A text is encoded as what follows a prompt, without special tokens: begin it with a space
/// where a word is to follow. Tokenizers that put a space before the first word put it once. In
/// models with an encoder it is a target. Entries with the same tokens, and empty ones, are refused.
///
/// Args:
///     entries (Iterable[str] | Iterable[Ids]): The texts, or their token ids. It is iterated once.
///     payload (Iterable[Any] | None): What each entry stands for, such as an id: values of JSON,
///         which `GenerationOutput.entries` holds in place of the entry's index.
///     tokenizer (Tokenizer | Generator | None): What encodes texts. Ids need none.
///
/// Raises:
///     InputError: There is no entry, one has no token or those of another one, or `payload` holds
///         more or fewer values than there are entries.
///     ConfigError: A payload is no value of JSON.
///     CapacityError: The memory does not suffice.
///
/// Example:
///     >>> trie = rsgen.TokenTrie([" fox", " little bird"], tokenizer=gen)
///     >>> out = gen.beam_search("There was a", num_beams=2, allowed_sequences=trie, max_new_tokens=8)
///     >>> out.text, out.entries
#[pyclass(module = "rsgen", name = "TokenTrie", frozen)]
pub(super) struct TokenTrie {
    trie: Arc<rsgen_generation::TokenTrie>,
    /// What encodes the texts that are looked for.
    tokenizer: Option<rsgen_text::Tokenizer>,
}

impl TokenTrie {
    pub(super) fn inner(&self) -> &Arc<rsgen_generation::TokenTrie> {
        &self.trie
    }

    /// The index of an entry, also one that is counted from the end.
    fn checked(&self, given: &Bound<'_, PyAny>) -> PyResult<usize> {
        let len = self.trie.len();
        let index = match given.extract::<isize>() {
            Ok(index) if index < 0 => index.checked_add_unsigned(len).and_then(|index| index.try_into().ok()),
            Ok(index) => usize::try_from(index).ok(),
            Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => None,
            Err(error) => return Err(error),
        };
        index.filter(|&index| index < len).ok_or_else(|| {
            PyIndexError::new_err(format!("the catalogue has {len} entries, got the index {}", shown(given)))
        })
    }
}

/// The tokens of entries as Python gives them.
struct Entries<'t> {
    continuations: Option<Continuations<'t>>,
}

impl<'t> Entries<'t> {
    fn new(py: Python<'_>, tokenizer: Option<&'t rsgen_text::Tokenizer>) -> PyResult<Self> {
        let continuations = tokenizer.map(Continuations::new).transpose();
        Ok(Self { continuations: continuations.map_err(|error| to_python(py, error))? })
    }

    fn tokens(&self, entry: &Bound<'_, PyAny>) -> PyResult<Vec<TokenId>> {
        let (py, walk) = (entry.py(), Walk::default());
        if let Ok(text) = entry.cast::<PyString>() {
            let Some(continuations) = &self.continuations else {
                return Err(PyTypeError::new_err(
                    "texts need a tokenizer: give tokenizer=gen, or the ids of the texts",
                ));
            };
            let text = walk.text(text)?;
            return polled(py, |interrupted| continuations.encode(&text, interrupted));
        }
        if let Some(tokens) = plain(entry) {
            return Ok(tokens);
        }
        if !is_sequence(entry)? && !entry.hasattr("__array__")? {
            return Err(type_error!("an entry must be a text or token ids, got {}", shown(entry)));
        }
        ids(&walk, entry)
    }
}

/// The tokens of a list or tuple of plain integers, as most entries are: quicker than what checks others.
fn plain(entry: &Bound<'_, PyAny>) -> Option<Vec<TokenId>> {
    const MOST: usize = 1 << 12;
    let token = |id: Bound<'_, PyAny>| {
        if id.is_exact_instance_of::<PyInt>() { id.extract().map(TokenId).ok() } else { None }
    };
    if let Ok(list) = entry.cast_exact::<PyList>() {
        return if list.len() <= MOST { list.iter().map(token).collect() } else { None };
    }
    let tuple = entry.cast_exact::<PyTuple>().ok().filter(|tuple| tuple.len() <= MOST)?;
    tuple.iter().map(token).collect()
}

/// The tokenizer of an argument.
fn tokenizer_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<rsgen_text::Tokenizer>> {
    let Some(given) = given else { return Ok(None) };
    if let Ok(tokenizer) = given.cast::<Tokenizer>() {
        return Ok(Some(tokenizer.get().spoken()));
    }
    if let Ok(generator) = given.cast::<Generator>() {
        let inner = generator.get().inner(given.py())?;
        let tokenizer = inner.tokenizer();
        return tokenizer.cloned().map(Some).map_err(|error| to_python(given.py(), error));
    }
    Err(type_error!("`tokenizer` must be a Tokenizer, a Generator or None, got {}", shown(given)))
}

/// The items of an argument.
fn items<'py>(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    if given.is_instance_of::<PyString>() || !given.hasattr("__iter__")? {
        return Err(type_error!("`{name}` must be a list or an iterator, got {}", shown(given)));
    }
    given.try_iter()
}

/// Refuses more entries than the memory suffices for, twice as many included.
fn weigh(py: Python<'_>, builder: &TokenTrieBuilder, weighed: &mut usize) -> PyResult<()> {
    if builder.len() < *weighed {
        return Ok(());
    }
    *weighed = 2 * builder.len();
    let bytes = builder.num_tokens().saturating_mul(2 * BUILDING_BYTES);
    if available_memory().is_some_and(|available| bytes as u64 > available) {
        let rule = format!("a catalogue of {} entries and more may take {bytes} bytes", builder.len());
        let message = format!("{rule} of memory while it is built, which are not available; divide it");
        return Err(exception(py, ErrorKind::Capacity, message));
    }
    Ok(())
}

#[guarded]
#[pymethods]
impl TokenTrie {
    #[new]
    #[pyo3(signature = (entries, *, payload=None, tokenizer=None))]
    fn new(
        py: Python<'_>,
        entries: &Bound<'_, PyAny>,
        payload: Option<&Bound<'_, PyAny>>,
        tokenizer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let tokenizer = tokenizer_of(tokenizer)?;
        let encoder = Entries::new(py, tokenizer.as_ref())?;
        let mut payloads = payload.map(|payload| items("payload", payload)).transpose()?;
        let (mut builder, mut weighed) = (TokenTrieBuilder::default(), UNWEIGHED_ENTRIES);
        for entry in items("entries", entries)? {
            // Iterators written in C run no signal handlers.
            py.check_signals()?;
            let (entry, index) = (entry?, builder.len());
            let tokens = encoder.tokens(&entry).map_err(|error| numbered(py, "entry", index, error))?;
            let payload = match &mut payloads {
                None => None,
                Some(payloads) => {
                    let payload = payloads.next().unwrap_or_else(|| {
                        let rule = "`payload` must hold a value for each entry";
                        Err(input_error!(py, "{rule}, but ends after {index}"))
                    })?;
                    let payload = Form::Strict.value(&Form::walk(), &payload, 0);
                    Some(payload.map_err(|error| numbered(py, "payload", index, error))?)
                }
            };
            builder.add(&tokens, payload.as_ref()).map_err(|error| to_python(py, error))?;
            weigh(py, &builder, &mut weighed)?;
        }
        if payloads.as_mut().and_then(Iterator::next).transpose()?.is_some() {
            let rule = "`payload` must hold a value for each entry";
            return Err(input_error!(py, "{rule}, but holds more than the {} entries", builder.len()));
        }
        let trie = polled(py, |interrupted| builder.build(interrupted))?;
        Ok(Self { trie: Arc::new(trie), tokenizer })
    }

    /// Opens a catalogue that `save()` has written.
    ///
    /// The file is read into memory, not mapped.
    ///
    /// Args:
    ///     path (str | os.PathLike[str]): The file.
    ///     tokenizer (Tokenizer | Generator | None): What encodes the texts that are looked for with `in`.
    ///
    /// Returns:
    ///     Self: The catalogue.
    ///
    /// Raises:
    ///     LoadError: The file is missing, damaged, or of another kind.
    #[classmethod]
    #[pyo3(signature = (path, *, tokenizer=None))]
    fn open(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        tokenizer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let tokenizer = tokenizer_of(tokenizer)?;
        let trie = polled(py, |interrupted| rsgen_generation::TokenTrie::open(&path, interrupted))?;
        Ok(Self { trie: Arc::new(trie), tokenizer })
    }

    /// Writes the catalogue to a file, which any machine can open.
    ///
    /// Args:
    ///     path (str | os.PathLike[str]): The file. It is replaced if it exists.
    ///
    /// Raises:
    ///     LoadError: The file cannot be written.
    #[pyo3(signature = (path))]
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        polled(py, |interrupted| self.trie.save(&path, interrupted))
    }

    /// int: The number of tokens of the longest entry, without the token that ends it.
    #[getter]
    fn longest(&self) -> usize {
        self.trie.longest()
    }

    /// int: The bytes of memory that the catalogue takes.
    #[getter]
    fn memory_bytes(&self) -> usize {
        self.trie.memory_bytes()
    }

    /// Returns the payload of an entry.
    ///
    /// Args:
    ///     index (int): The place of the entry, in the order in which they were given.
    ///
    /// Returns:
    ///     Any: The value, None in a catalogue without payloads.
    #[pyo3(signature = (index))]
    fn payload<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let index = self.checked(index)?;
        self.trie.payload(index).map(|payload| json::to_python(py, payload)).transpose()
    }

    fn __len__(&self) -> usize {
        self.trie.len()
    }

    /// Returns the token ids of an entry.
    ///
    /// Args:
    ///     index (int): The place of the entry, in the order in which they were given.
    ///
    /// Returns:
    ///     list[int]: The ids.
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let index = self.checked(index)?;
        Ok(self.trie.token_ids(index).unwrap_or_default().into_iter().map(|id| id.0).collect())
    }

    /// Returns an iterator of the token ids of all entries, in order.
    ///
    /// Returns:
    ///     Iterator[list[int]]: The iterator.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let indices = PyRange::new(py, 0, slf.get().trie.len() as isize)?;
        py.import("builtins")?.call_method1("map", (slf.getattr("__getitem__")?, indices))
    }

    /// Returns whether a text, or these token ids, are an entry.
    ///
    /// Args:
    ///     entry (str | Ids): The text or its ids.
    ///
    /// Returns:
    ///     bool: Whether it is there.
    fn __contains__(&self, py: Python<'_>, entry: &Bound<'_, PyAny>) -> PyResult<bool> {
        let tokens = Entries::new(py, self.tokenizer.as_ref())?.tokens(entry)?;
        Ok(self.trie.find(&tokens).is_some())
    }

    fn __repr__(&self) -> String {
        format!("TokenTrie(entries={}, longest={})", self.trie.len(), self.trie.longest())
    }

    /// Returns the same object: it cannot be changed.
    ///
    /// Returns:
    ///     Self: This object.
    fn __copy__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Returns the same object: it cannot be changed.
    ///
    /// Args:
    ///     memo (Any): What `copy.deepcopy` has copied before.
    ///
    /// Returns:
    ///     Self: This object.
    #[pyo3(signature = (memo, /))]
    fn __deepcopy__<'py>(slf: PyRef<'py, Self>, memo: &Bound<'py, PyAny>) -> PyResult<PyRef<'py, Self>> {
        let _ = memo;
        Ok(slf)
    }

    /// Pickles the entries and payloads, without the tokenizer.
    ///
    /// Returns:
    ///     tuple[Any, tuple[Any, ...]]: What makes the catalogue again.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Restored<'py, Bound<'py, PyBytes>>> {
        let (py, this) = (slf.py(), slf.get());
        let bytes = polled(py, |interrupted| {
            let mut bytes = Vec::new();
            this.trie.write(&mut bytes, interrupted).map(|()| bytes)
        })?;
        Ok((slf.get_type().getattr("_restore")?, (PyBytes::new(py, &bytes),)))
    }

    /// Makes a catalogue out of its pickle.
    ///
    /// Args:
    ///     data (bytes): The bytes of its file.
    ///
    /// Returns:
    ///     Self: The catalogue.
    #[classmethod]
    #[pyo3(signature = (data))]
    fn _restore(_class: &Bound<'_, PyType>, py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        let read = polled(py, |interrupted| {
            rsgen_generation::TokenTrie::read(&mut &*data, data.len() as u64, interrupted)
        });
        Ok(Self { trie: Arc::new(read?), tokenizer: None })
    }
}
