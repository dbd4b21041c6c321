//! The class `Tokenizer`: text to ids and back, under transformers' names.
//!
//! Batches, padding and truncation are Python's own, in `rsgen._tokenizer`.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::arrays::array;
use super::errors::guarded;
use super::field_values;
use super::options;
use super::pickle::Recipe;
use super::prompts::{rows_to_decode, shown};
use super::signals::polled;
use super::walk::Text;
use rsgen::generator::{MemoryModel, find_tokenizer_interruptible};
use rsgen_core::sync::Mutex;
use rsgen_core::types::TokenId;
use rsgen_text::ChatTemplates;

/// The keyword arguments of the constructor.
const NAMES: [&str; 8] = [
    "model",
    "revision",
    "cache_dir",
    "local_files_only",
    "padding_side",
    "pad_token",
    "src_lang",
    "tgt_lang",
];

/// The keyword arguments of transformers' calls for what rsgen has at hand: the tokenizers of the model and the
/// assistant.
pub(super) const KEYWORDS: [&str; 2] = ["tokenizer", "assistant_tokenizer"];

/// The tokenizer of a model: text to token ids and back.
///
/// It opens without the model; a generator's own is `gen.tokenizer`. Names are those of
/// transformers' tokenizers, and `len()` is the size of the vocabulary.
///
/// Args:
///     model (str | os.PathLike[str] | None): A folder, or the id of a model in the local Hub
///         cache. None is the story model that comes with the package.
///     revision (str | None): A branch, tag or commit in the Hub cache. None is "main".
///     cache_dir (str | os.PathLike[str] | None): The Hub cache. None is the one that the
///         environment names.
///     local_files_only (bool): Must be True: rsgen never downloads.
///     padding_side (Literal["left", "right"] | None): The side on which shorter rows are filled
///         up. None is "right" for the sources of encoder-decoder models, else "left".
///     pad_token (str | None): The token that fills them up. None is that of the files.
///     src_lang (str | None): The language of sources. None is that of the files.
///     tgt_lang (str | None): The language of targets. None is that of the files.
///
/// Raises:
///     LoadError: The files are missing, damaged or not supported.
///
/// Example:
///     >>> tokenizer = rsgen.Tokenizer()
///     >>> tokenizer.decode(tokenizer.encode("Once upon a time"))
///     >>> tokenizer(["Once upon a time", "One day"], padding=True, return_tensors="np")
#[pyclass(module = "rsgen", name = "Tokenizer", frozen)]
pub(super) struct Tokenizer {
    pub(super) inner: rsgen_text::Tokenizer,
    /// The same with the languages that are set.
    pub(super) spoken: Mutex<rsgen_text::Tokenizer>,
    recipe: Recipe,
    padding: Mutex<Padding>,
    /// From the first use on.
    templates: PyOnceLock<ChatTemplates>,
}

/// How rows are filled up to equal length.
struct Padding {
    token: Option<TokenId>,
    side: &'static str,
    /// Whether a caller has chosen the side.
    is_chosen: bool,
}

impl Tokenizer {
    /// The tokenizer of a generator that was opened by this recipe.
    pub(super) fn new(tokenizer: rsgen_text::Tokenizer, recipe: Recipe) -> Self {
        let padding =
            Mutex::new(Padding { token: tokenizer.pad(), side: side_of(&tokenizer), is_chosen: false });
        let spoken = Mutex::new(tokenizer.clone());
        Self { inner: tokenizer, spoken, recipe, padding, templates: PyOnceLock::new() }
    }

    /// With these chat templates.
    pub(super) fn with_templates(self, py: Python<'_>, templates: &ChatTemplates) -> Self {
        let _ = self.templates.set(py, templates.clone());
        self
    }

    /// The model's chat templates.
    pub(super) fn templates(&self, py: Python<'_>) -> PyResult<&ChatTemplates> {
        self.templates.get_or_try_init(py, || self.recipe.chat_templates(py, &self.inner))
    }

    /// Adds its files to a model in memory.
    pub(super) fn add_files_to(&self, py: Python<'_>, model: MemoryModel) -> PyResult<MemoryModel> {
        self.recipe.add_tokenizer_to(py, model)
    }

    /// The side on which rows are filled up, if a caller has chosen it.
    pub(super) fn chosen_padding_side(&self) -> Option<&'static str> {
        let padding = self.padding.lock();
        padding.is_chosen.then_some(padding.side)
    }

    fn token_text(&self, id: Option<TokenId>) -> Option<&str> {
        id.and_then(|id| self.inner.token(id))
    }

    /// The ids of a text.
    pub(super) fn ids(&self, py: Python<'_>, text: &str, add_special_tokens: bool) -> PyResult<Vec<TokenId>> {
        let spoken = self.spoken();
        polled(py, |interrupted| spoken.encode_interruptible(text, add_special_tokens, interrupted))
    }

    fn text(&self, py: Python<'_>, ids: &[TokenId], skip_special_tokens: bool) -> PyResult<String> {
        polled(py, |interrupted| self.inner.decode_interruptible(ids, skip_special_tokens, interrupted))
    }

    fn set_side(&self, py: Python<'_>, side: &str) -> PyResult<()> {
        let known = ["left", "right"].into_iter().find(|known| *known == side);
        let rule = || config_error!(py, "`padding_side` must be \"left\" or \"right\", got {side:?}");
        let side = known.ok_or_else(rule)?;
        let mut padding = self.padding.lock();
        (padding.side, padding.is_chosen) = (side, true);
        Ok(())
    }

    fn set_pad(&self, py: Python<'_>, token: Option<&str>) -> PyResult<()> {
        let id = |token| {
            self.inner.id(token).ok_or_else(|| {
                config_error!(
                    py,
                    "`pad_token` must be a token of the vocabulary, got {token:?}; for example eos_token"
                )
            })
        };
        self.padding.lock().token = token.map(id).transpose()?;
        Ok(())
    }
}

#[guarded]
#[pymethods]
impl Tokenizer {
    #[new]
    #[pyo3(
        signature = (
            model=None, *, padding_side=None, pad_token=None, src_lang=None, tgt_lang=None, **options
        ),
        text_signature = "(model=None, *, revision=None, cache_dir=None, local_files_only=True, padding_side=None, \
                          pad_token=None, src_lang=None, tgt_lang=None)"
    )]
    fn open(
        py: Python<'_>,
        model: Option<&Bound<'_, PyAny>>,
        padding_side: Option<Text<'_>>,
        pad_token: Option<Text<'_>>,
        src_lang: Option<Text<'_>>,
        tgt_lang: Option<Text<'_>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (options, arguments) = options::read(py, "Tokenizer", &NAMES, options)?;
        let path = options::model_path(py, "model", model)?;
        let recipe = Recipe::new(model.map(|_| path.as_str()), arguments);
        let (revision, cache_dir) = (options.revision.as_deref(), options.cache_dir.as_deref());
        let opened =
            polled(py, |interrupted| find_tokenizer_interruptible(&path, revision, cache_dir, interrupted));
        let own = Self::new(opened?, recipe);
        if let Some(side) = padding_side {
            own.set_side(py, side.0)?;
        }
        own.set_languages(py, src_lang.map(|lang| lang.0), tgt_lang.map(|lang| lang.0))?;
        if let Some(token) = pad_token {
            own.set_pad(py, Some(token.0))?;
        }
        Ok(own)
    }

    /// Opens a tokenizer, with the arguments of `Tokenizer()`.
    ///
    /// Returns:
    ///     Self: The tokenizer.
    #[classmethod]
    #[pyo3(
        signature = (model=None, **options),
        text_signature = "($cls, model=None, *, revision=None, cache_dir=None, local_files_only=True, \
                          padding_side=None, pad_token=None, src_lang=None, tgt_lang=None)"
    )]
    fn from_pretrained<'py>(
        class: &Bound<'py, PyType>,
        model: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.call((model,), options)
    }

    /// Encodes a text or a list of texts, for `gen.generate(**tokenizer(text))`.
    #[pyo3(signature = (*arguments, **keywords))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = slf.py().import("rsgen._tokenizer")?.getattr("tokenizer")?;
        function.call_method1("__get__", (slf,))?.call(arguments, keywords)
    }

    /// Returns the token ids of a text.
    ///
    /// Args:
    ///     text (str): The text.
    ///     add_special_tokens (bool): Adds the special tokens that the model expects around a text.
    ///     return_tensors (Literal["np"] | None): "np" gives an array, `[1, len]`.
    ///
    /// Returns:
    ///     Any: The ids, a list unless an array was asked for.
    ///
    /// Example:
    ///     >>> gen.tokenizer.encode("Once upon a time")
    ///     >>> gen.tokenizer.encode(" moon", add_special_tokens=False)  # as it follows other text
    #[pyo3(signature = (text, *, add_special_tokens=true, return_tensors=None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        text: Text<'_>,
        add_special_tokens: bool,
        return_tensors: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ids: Vec<i64> =
            self.ids(py, text.0, add_special_tokens)?.into_iter().map(|id| id.0.into()).collect();
        match return_tensors {
            None => ids.into_bound_py_any(py),
            Some("np") => array(py, (1, ids.len()), ids),
            Some(other) => Err(config_error!(
                py,
                "`return_tensors` must be \"np\" or None, got {other:?}; a call takes numpy's arrays"
            )),
        }
    }

    /// Returns the text of token ids. Bytes that form no whole character become U+FFFD.
    ///
    /// Args:
    ///     token_ids (int | Ids | Sequence[Ids]): An id, ids, or several rows of ids. Ids that are
    ///         no token are left out.
    ///     skip_special_tokens (bool): Leaves special tokens out.
    ///     clean_up_tokenization_spaces (None): The files of the tokenizer decide it.
    ///
    /// Returns:
    ///     Any: The text; a list of texts for several rows.
    ///
    /// Example:
    ///     >>> ids = gen.tokenizer.encode("Once upon a time")
    ///     >>> gen.tokenizer.decode(ids, skip_special_tokens=True)
    #[pyo3(signature = (token_ids, skip_special_tokens=false, clean_up_tokenization_spaces=None))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        token_ids: &Bound<'py, PyAny>,
        skip_special_tokens: bool,
        clean_up_tokenization_spaces: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        check_clean_up(py, clean_up_tokenization_spaces)?;
        let (rows, is_single) = rows_to_decode(token_ids)?;
        let mut texts = rows.iter().map(|ids| self.text(py, ids, skip_special_tokens));
        if is_single {
            return texts.next().transpose()?.unwrap_or_default().into_bound_py_any(py);
        }
        texts.collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
    }

    /// Returns the texts of several rows of token ids, such as an output of `generate()`.
    ///
    /// Args:
    ///     sequences (Sequence[Ids] | ArrayLike): The rows.
    ///     skip_special_tokens (bool): Leaves special tokens out.
    ///     clean_up_tokenization_spaces (None): The files of the tokenizer decide it.
    ///
    /// Returns:
    ///     list[str]: The texts.
    #[pyo3(signature = (sequences, skip_special_tokens=false, clean_up_tokenization_spaces=None))]
    fn batch_decode(
        &self,
        py: Python<'_>,
        sequences: &Bound<'_, PyAny>,
        skip_special_tokens: bool,
        clean_up_tokenization_spaces: Option<bool>,
    ) -> PyResult<Vec<String>> {
        check_clean_up(py, clean_up_tokenization_spaces)?;
        let (rows, is_row) = rows_to_decode(sequences)?;
        if is_row && rows.iter().all(Vec::is_empty) {
            return Ok(Vec::new());
        }
        rows.iter().map(|ids| self.text(py, ids, skip_special_tokens)).collect()
    }

    /// int: The number of different tokens, added ones included. The model may have more.
    #[getter]
    fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }

    /// int | None: The most tokens of a text with `truncation=True`, if its files name a limit.
    #[getter]
    fn model_max_length(&self) -> Option<usize> {
        self.inner.model_max_length()
    }

    /// int | None: The id of the token that begins a text.
    #[getter]
    fn bos_token_id(&self) -> Option<u32> {
        self.inner.bos().map(|id| id.0)
    }

    /// int | None: The id of the token that ends a text.
    ///
    /// `Generator.generation_config` holds all tokens that end generation.
    #[getter]
    fn eos_token_id(&self) -> Option<u32> {
        self.inner.eos().map(|id| id.0)
    }

    /// int | None: The id of the token that fills up shorter rows. It can be set.
    #[getter]
    pub(super) fn pad_token_id(&self) -> Option<u32> {
        self.padding.lock().token.map(|id| id.0)
    }

    #[setter]
    fn set_pad_token_id(&self, py: Python<'_>, id: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let token = |given: &Bound<'_, PyAny>| {
            let id = field_values::count(given, "pad_token_id")?.try_into().ok().map(TokenId);
            id.filter(|&id| self.inner.token(id).is_some()).ok_or_else(|| {
                let rule = "`pad_token_id` must be the id of a token";
                config_error!(py, "{rule}, got {}; for example eos_token_id", shown(given))
            })
        };
        self.padding.lock().token = id.map(token).transpose()?;
        Ok(())
    }

    /// str | None: The token that fills up shorter rows. It can be set, for example to `eos_token`.
    #[getter]
    pub(super) fn pad_token(&self) -> Option<&str> {
        self.token_text(self.padding.lock().token)
    }

    #[setter]
    fn set_pad_token(&self, py: Python<'_>, token: Option<Text<'_>>) -> PyResult<()> {
        self.set_pad(py, token.map(|token| token.0))
    }

    /// Literal["left", "right"]: The side on which shorter rows are filled up. It can be set.
    ///
    /// A prompt that is to be continued needs "left", and the source of an encoder-decoder model
    /// "right": the defaults.
    #[getter]
    pub(super) fn padding_side(&self) -> &'static str {
        self.padding.lock().side
    }

    #[setter]
    fn set_padding_side(&self, py: Python<'_>, side: Text<'_>) -> PyResult<()> {
        self.set_side(py, side.0)
    }

    fn __len__(&self) -> usize {
        self.inner.vocab_size()
    }

    /// Returns the place that the tokenizer was opened from and its settings, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[type[Self], tuple[str | None], dict[str, Any]]]: The recipe.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, this) = (slf.py(), slf.get());
        let settings = this.set_padding(py)?;
        let spoken = this.spoken();
        for (name, language, of_files) in [
            ("src_lang", spoken.source_language(), this.inner.source_language()),
            ("tgt_lang", spoken.target_language(), this.inner.target_language()),
        ] {
            if language != of_files {
                settings.set_item(name, language)?;
            }
        }
        this.recipe.reduce_with(&slf.get_type(), &settings)
    }

    /// Returns the same object.
    ///
    /// Returns:
    ///     Self: This object.
    fn __copy__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
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
        Ok(slf)
    }

    fn __repr__(&self) -> PyResult<String> {
        let shown = |id: Option<TokenId>| id.map_or("None".to_owned(), |id| id.to_string());
        Ok(format!(
            "Tokenizer(vocab_size={}, bos_token_id={}, eos_token_id={}, pad_token_id={})",
            self.inner.vocab_size(),
            shown(self.inner.bos()),
            shown(self.inner.eos()),
            shown(self.padding.lock().token)
        ))
    }
}

/// The side on which rows are filled up unless a caller says otherwise.
fn side_of(tokenizer: &rsgen_text::Tokenizer) -> &'static str {
    if tokenizer.is_for_sources() { "right" } else { "left" }
}

/// Refuses a tokenizer beside `stop_strings` and the like that is not the model's, which is used.
pub(super) fn check(
    generator: &rsgen::generator::Generator,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    for (name, is_own) in KEYWORDS.into_iter().zip([true, false]) {
        let given = keywords.map(|keywords| keywords.get_item(name)).transpose()?.flatten();
        let Some(given) = given.filter(|given| !given.is_none()) else { continue };
        if !given.is_instance_of::<Tokenizer>() && !given.hasattr("batch_decode")? {
            return Err(type_error!("`{name}` must be a tokenizer or None, got {}", shown(&given)));
        }
        let own = generator.tokenizer().ok().filter(|_| is_own).map(rsgen_text::Tokenizer::vocab_size);
        if own.is_some_and(|own| given.len().is_ok_and(|len| len != own)) {
            let rule = "must be the model's own, which is used in any case";
            let shown = shown(&given);
            return Err(config_error!(given.py(), "`{name}` {rule}, got another one: {shown}; leave it out"));
        }
    }
    Ok(())
}

/// Refuses what the files of the tokenizer decide.
fn check_clean_up(py: Python<'_>, given: Option<bool>) -> PyResult<()> {
    given.map_or(Ok(()), |given| {
        let given = shown(given.into_bound_py_any(py)?.as_any());
        let rule = "must be None, because tokenizer_config.json decides it";
        Err(config_error!(py, "`clean_up_tokenization_spaces` {rule}, got {given}; leave it out"))
    })
}
