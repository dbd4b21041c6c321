//! The class `Generator`: a model that is ready to generate.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use super::astream::LoopThreads;
use super::calls::{Arguments, Given, Method};
use super::closing::Opened;
use super::config::GenerationConfig;
use super::drop_detached::DropDetached;
use super::errors::{guarded, missing_error};
use super::opening::Opening;
use super::output::GenerationOutput;
use super::pickle::{LoadedAdapter, Recipe};
use super::results;
use super::stream::TokenStream;
use super::tokenizer::Tokenizer;
use super::{json, logging};
use rsgen_core::sync::Mutex;

/// A model that is ready to generate.
///
/// Any number of threads may use it at once: one pass computes the next tokens of all of them,
/// and other Python threads run meanwhile. Ctrl-C ends a call within a quarter of a second. A
/// Generator pickles as its path and options; what comes out opens the model at its first use. A copy
/// is the same object. In a forked process every computation raises `ForkError`. `close()`, or the end of
/// a `with` block, returns the memory.
///
/// Args:
///     model (str | os.PathLike[str] | None): A folder in the Hugging Face layout, a GGUF file, or the id
///         of a model in the local Hub cache. None is the bundled story model.
///     dtype (DType): Rounds the weights to "float32", "bfloat16" or "float16" while loading, or
///         to integers, "int8" or "int4", in groups with a scale each: a half or a quarter of the
///         memory of "bfloat16", and about as much faster. "auto" keeps them as they are stored.
///     compute_dtype (DType): "float32" gives what transformers gives. "bfloat16" rounds weights and
///         activations, and is faster where the processor multiplies bfloat16 (AVX-512 BF16). With weights
///         of integers it is the arithmetic of attention.
///         "int8" rounds activations to 8 bits where a file's own weights are integers (GGUF, GPTQ,
///         AWQ, …), as llama.cpp does, and is faster; all else is "float32".
///     kv_dtype (DType): The type of the KV cache: "float32", "bfloat16", or "int8" with a scale for
///         each token and head. "auto" takes that of the computation.
///     num_threads (int | None): The number of threads. None takes RSGEN_NUM_THREADS, then
///         OMP_NUM_THREADS, then as many as this process may use.
///     assistant (str | os.PathLike[str] | Generator | None): A smaller model with the same tokens
///         that drafts for this one; "draft" is the bundled one, for the story model. It is opened
///         with the same options and shares the KV cache.
///     adapter (str | os.PathLike[str] | None): A LoRA adapter of PEFT, which is merged into the
///         weights while they are read: its folder, or its id in the local Hub cache.
///     tokenizer (str | os.PathLike[str] | None): A model whose tokenizer and chat templates are taken, for
///         one that comes without, such as some GGUF files: a folder, or an id in the local Hub cache.
///     kv_cache_bytes (int | None): The memory limit of the KV cache in bytes. None is half of the
///         memory that is available.
///     prefix_caching (bool): Whether prompts with the same beginning share what was computed for
///         it. The results are the same.
///     local_files_only (bool): Must be True: rsgen never downloads.
///     revision (str | None): A branch, tag or commit in the Hub cache. None is "main".
///     cache_dir (str | os.PathLike[str] | None): The Hub cache. None is that of the environment.
///     torch_dtype (DType | None): Another name of `dtype`, as in older transformers.
///     generation_config (str): "ignore" leaves the model's `generation_config.json` aside; "auto"
///         takes its fields as defaults.
///     progress (Callable[[str, int, int], object] | None): Called in this thread with the stage
///         ("pack"), the bytes of weights done, and all bytes. What it raises ends the loading.
///
/// Raises:
///     LoadError: The model is missing, damaged or not supported.
///     CapacityError: The model does not fit into memory.
///     ConfigError: An argument has a value that is not possible.
///
/// Example:
///     >>> gen = rsgen.Generator()  # the bundled story model
///     >>> out = gen.generate("Once upon a time", max_new_tokens=60)
///     >>> print(out.text)
///     >>> out = gen.sample(["One day", "Tom had"], top_p=0.9, seed=7, max_new_tokens=60)
///     >>> for token in gen.stream("Once upon a time"):
///     ...     print(token, end="", flush=True)
#[pyclass(module = "rsgen", name = "Generator", frozen)]
pub(super) struct Generator(Opened, Runtime);

/// The state of a generator that only the Python class has.
struct Runtime {
    /// The arguments that open it again.
    recipe: Recipe,
    /// The tokenizer, from its first access on: its padding can be set.
    tokenizer: PyOnceLock<Py<Tokenizer>>,
    /// The assistant: the given one, or from the first access on.
    assistant: PyOnceLock<Py<Generator>>,
    /// Whether the assistant was opened with it.
    owns_assistant: bool,
    /// The threads that compute its streams for event loops.
    threads: Arc<LoopThreads>,
    /// What is loaded beside the model, for pickles.
    adapters: Mutex<Vec<LoadedAdapter>>,
}

impl Runtime {
    fn new(py: Python<'_>, recipe: Recipe, opening: &Opening) -> Self {
        let assistant = PyOnceLock::new();
        let owns_assistant = opening.assistant().is_none();
        if let Some(generator) = opening.assistant() {
            let _ = assistant.set(py, generator.clone_ref(py));
        }
        let (tokenizer, threads, adapters) = (PyOnceLock::new(), Arc::default(), Mutex::default());
        Self { recipe, tokenizer, assistant, owns_assistant, threads, adapters }
    }
}

impl Generator {
    /// The generator of the layer below.
    ///
    /// # Errors
    /// When it is closed.
    pub(super) fn inner(&self, py: Python<'_>) -> PyResult<DropDetached> {
        self.0.get(py)
    }

    /// What closing it ends.
    pub(super) fn opened(&self) -> &Opened {
        &self.0
    }

    /// What is loaded beside the model, for pickles.
    pub(super) fn loaded_adapters(&self) -> &Mutex<Vec<LoadedAdapter>> {
        &self.1.adapters
    }

    /// Its own assistant, which nobody else has opened.
    pub(super) fn own_assistant(&self, py: Python<'_>) -> Option<Py<Self>> {
        self.1.assistant.get(py).filter(|_| self.1.owns_assistant).map(|assistant| assistant.clone_ref(py))
    }

    /// The threads that compute its streams for event loops.
    pub(super) fn threads(&self) -> &Arc<LoopThreads> {
        &self.1.threads
    }
}

#[guarded]
#[pymethods]
impl Generator {
    #[new]
    #[pyo3(
        signature = (model=None, **options),
        text_signature = "(model=None, *, dtype='auto', compute_dtype='float32', kv_dtype='auto', num_threads=None, \
                          assistant=None, adapter=None, tokenizer=None, kv_cache_bytes=None, prefix_caching=True, local_files_only=True, revision=None, cache_dir=None, torch_dtype=None, \
                          generation_config='auto', progress=None)"
    )]
    fn new(
        py: Python<'_>,
        model: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        logging::install();
        let (opening, recipe) = Opening::new(py, model, options)?;
        let opened = Opened::new(opening.open(py)?);
        Ok(Self(opened, Runtime::new(py, recipe, &opening)))
    }

    /// One out of a pickle, which is opened at its first use; `adapters` are loaded then.
    ///
    /// Returns:
    ///     Self: The generator.
    #[classmethod]
    #[pyo3(signature = (model, options, adapters))]
    fn _later(
        class: &Bound<'_, PyType>,
        model: Option<&Bound<'_, PyAny>>,
        options: &Bound<'_, PyDict>,
        adapters: Vec<LoadedAdapter>,
    ) -> PyResult<Self> {
        logging::install();
        let (opening, recipe) = Opening::new(class.py(), model, Some(options))?;
        let runtime = Runtime::new(class.py(), recipe, &opening);
        runtime.adapters.lock().clone_from(&adapters);
        Ok(Self(Opened::later(opening.with_adapters(adapters)), runtime))
    }

    /// Opens a model: the same as `Generator(model, ...)`.
    ///
    /// Returns:
    ///     Self: The generator.
    #[classmethod]
    #[pyo3(
        signature = (model=None, **options),
        text_signature = "($cls, model=None, *, dtype='auto', compute_dtype='float32', kv_dtype='auto', \
                          num_threads=None, assistant=None, adapter=None, tokenizer=None, kv_cache_bytes=None, prefix_caching=True, local_files_only=True, revision=None, cache_dir=None, \
                          torch_dtype=None, generation_config='auto', progress=None)"
    )]
    fn from_pretrained<'py>(
        class: &Bound<'py, PyType>,
        model: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.call((model,), options)
    }

    /// Continues one prompt, or each of a list, as the fields of the call say.
    ///
    /// Greedy search is the default; `do_sample=True` samples, `num_beams=4` searches with beams, and the
    /// methods of strategies, such as `beam_search()`, set such fields. Without any limit of length it
    /// stops after 20 new tokens, with a warning.
    ///
    /// Args:
    ///     prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
    ///         two-dimensional array of ids is one request, as transformers takes it: its rows
    ///         share one random generator. A list of texts and ids holds independent prompts,
    ///         which are computed together; each gives what it gives alone. What a tokenizer
    ///         returns is taken, too. None begins the text with the `bos_token_id`.
    ///     input_ids (Prompt | None): Another name of the prompt, as in transformers.
    ///     inputs (Prompt | None): Another name of the prompt, as in transformers.
    ///     generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
    ///         precedence over it, and it takes precedence over the model's own.
    ///     attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
    ///         two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
    ///         does.
    ///     inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
    ///         an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
    ///         for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
    ///         tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
    ///     decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
    ///         begins with, in one row for all prompts or one for each. The prompts are the sources of
    ///         such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
    ///         the output begins with these ids.
    ///     decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
    ///         models whose tokens have positions do not take.
    ///     logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
    ///         Functions that change the scores of each step. Those of `rsgen.processors` run
    ///         without Python, others cost time at each token.
    ///     prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
    ///         that may follow.
    ///     allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
    ///         `GenerationOutput.entries`.
    ///     stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
    ///         say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
    ///     constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
    ///         beam search has to hold: see `rsgen.constraints`.
    ///     adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
    ///         loaded, or a list of names with weights, whose products add up; for several prompts, or a list
    ///         with one of those or None for each. None is the model alone.
    ///     streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
    ///         transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
    ///         each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
    ///     assistant_model (Generator | None): A smaller model with the same tokens that drafts
    ///         tokens, which greedy search and sampling check several at a time. The tokens of greedy
    ///         search stay the same. It is that of the Generator unless given; None is none. Another
    ///         name is `assistant`.
    ///     cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
    ///         prompt is only what follows. A text gets no special tokens then, and None goes on with
    ///         the kept text itself. A list holds one for each prompt.
    ///     past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
    ///         prompt, which begins with the kept tokens, as in transformers.
    ///     return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
    ///         of a later call: see `GenerationOutput.cache`.
    ///     output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
    ///         dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
    ///         TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
    ///     describe_output (bool): Writes the schema of the `output_type` before the prompt.
    ///     progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
    ///         prompts. A function is called with the number of prompts done, and of all.
    ///     **fields: The fields of `GenerationConfig`, each documented there. None switches a field
    ///         off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
    ///         `seed=[...]` each has its own.
    ///
    /// Returns:
    ///     GenerationOutput[_T]: Texts, token ids, scores and statistics.
    ///
    /// Raises:
    ///     TypeError: A keyword is unknown; the message suggests the one that was meant.
    ///     ConfigError: A field or argument has a value that is not possible.
    ///     InputError: The prompt cannot be used.
    ///     CapacityError: The KV cache cannot hold the request.
    ///     NumericalError: The model computed NaN or infinity.
    ///
    /// Example:
    ///     >>> gen.generate("Once upon a time", num_beams=4, max_new_tokens=40).text
    ///     >>> gen.generate(["One day", "Tom had"], do_sample=True, seed=7, max_new_tokens=40).texts
    #[pyo3(
        signature = (prompt=None, generation_config=None, **keywords),
        text_signature = "($self, prompt=None, generation_config=None, *, input_ids=None, inputs=None, attention_mask=None, inputs_embeds=None, decoder_input_ids=None, decoder_attention_mask=None, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, allowed_sequences=None, stopping_criteria=None, constraints=None, adapter=None, streamer=None, assistant_model=None, cache=None, past_key_values=None, return_cache=False, output_type=None, describe_output=False, progress=None, **fields)"
    )]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompt: Option<&Bound<'py, PyAny>>,
        generation_config: Option<&Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        let method = Method { name: "generate", strategy: None, to_the_end: false };
        self.run(py, &method, &Arguments { given: Given::Prompt(prompt), generation_config, keywords })
    }

    /// Generates token by token, while the stream is iterated.
    ///
    /// Takes the arguments of `generate()`, with one prompt: a text, its ids, or a two-dimensional
    /// array. Without any limit of length it goes on to an end-of-sequence token or the end of
    /// the model's context.
    ///
    /// Returns:
    ///     TokenStream[_T]: An iterator of `StreamedToken`.
    ///
    /// Example:
    ///     >>> for token in gen.stream("Once upon a time"):
    ///     ...     print(token, end="", flush=True)
    #[pyo3(
        signature = (prompt=None, generation_config=None, **keywords),
        text_signature = "($self, prompt=None, generation_config=None, *, input_ids=None, inputs=None, attention_mask=None, inputs_embeds=None, decoder_input_ids=None, decoder_attention_mask=None, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, allowed_sequences=None, stopping_criteria=None, constraints=None, adapter=None, assistant_model=None, cache=None, past_key_values=None, return_cache=False, output_type=None, describe_output=False, **fields)"
    )]
    fn stream<'py>(
        &self,
        py: Python<'py>,
        prompt: Option<&Bound<'py, PyAny>>,
        generation_config: Option<&Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<TokenStream>> {
        self.open_stream(
            py,
            "stream",
            &Arguments { given: Given::Prompt(prompt), generation_config, keywords },
        )
    }

    /// Generates token by token, for `async for`.
    ///
    /// Takes the arguments of `stream()`. The event loop goes on while the model computes.
    /// Cancelling the task that waits for a token ends the stream.
    ///
    /// Returns:
    ///     TokenStream[_T]: An asynchronous iterator of `StreamedToken`.
    ///
    /// Example:
    ///     >>> async with gen.astream("Once upon a time") as stream:
    ///     ...     async for token in stream:
    ///     ...         print(token, end="", flush=True)
    #[pyo3(
        signature = (prompt=None, generation_config=None, **keywords),
        text_signature = "($self, prompt=None, generation_config=None, *, input_ids=None, inputs=None, attention_mask=None, inputs_embeds=None, decoder_input_ids=None, decoder_attention_mask=None, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, allowed_sequences=None, stopping_criteria=None, constraints=None, adapter=None, assistant_model=None, cache=None, past_key_values=None, return_cache=False, output_type=None, describe_output=False, **fields)"
    )]
    fn astream<'py>(
        &self,
        py: Python<'py>,
        prompt: Option<&Bound<'py, PyAny>>,
        generation_config: Option<&Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<TokenStream>> {
        self.open_on_loop(py, &Arguments { given: Given::Prompt(prompt), generation_config, keywords })
    }

    /// Returns the current usage of the KV cache.
    ///
    /// Returns:
    ///     CacheStats: Blocks and bytes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        results::cache_stats(py, self.inner(py)?.engine())
    }

    /// Tokenizer: The model's tokenizer. Raises `InputError` when the model came without one.
    #[getter]
    pub(super) fn tokenizer(&self, py: Python<'_>) -> PyResult<Py<Tokenizer>> {
        let make = || {
            let missing = |error: rsgen_core::error::Error| missing_error(py, error.to_string());
            let inner = self.inner(py)?;
            let tokenizer = inner.tokenizer().cloned().map_err(missing)?;
            let tokenizer = Tokenizer::new(tokenizer, self.1.recipe.of_tokenizer(py)?);
            Py::new(py, tokenizer.with_templates(py, inner.chat_templates()))
        };
        self.1.tokenizer.get_or_try_init(py, make).map(|tokenizer| tokenizer.clone_ref(py))
    }

    /// Generator | None: The model that drafts for this one, unless a call names another.
    #[getter]
    fn assistant(&self, py: Python<'_>) -> PyResult<Option<Py<Self>>> {
        let inner = self.inner(py)?;
        let Some(assistant) = inner.assistant() else { return Ok(None) };
        let make = || {
            let (recipe, tokenizer) = (self.1.recipe.of_assistant(py, assistant.name())?, PyOnceLock::new());
            let (threads, none, adapters) = (Arc::default(), PyOnceLock::new(), Mutex::default());
            let runtime =
                Runtime { recipe, tokenizer, assistant: none, owns_assistant: true, threads, adapters };
            Py::new(py, Self(Opened::new(assistant.clone()), runtime))
        };
        self.1.assistant.get_or_try_init(py, make).map(|assistant| Some(assistant.clone_ref(py)))
    }

    /// dict[str, Any]: A copy of the model's `config.json`.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, self.inner(py)?.config().raw.clone())
    }

    /// GenerationConfig: The model's `generation_config.json`: the defaults of every call.
    #[getter]
    fn generation_config(&self, py: Python<'_>) -> PyResult<GenerationConfig> {
        Ok(GenerationConfig(self.inner(py)?.generation_config().clone()))
    }

    /// str: The folder or id that the model was loaded from.
    #[getter]
    fn name_or_path(&self) -> &str {
        self.0.name()
    }

    /// int: The number of threads that compute, the calling one included.
    #[getter]
    fn num_threads(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.inner(py)?.engine().workers().num_threads())
    }

    /// str: The instruction set in use, such as "avx512_bf16", "avx2", "neon_dotprod" or "scalar".
    ///
    /// The variable RSGEN_ISA forces one. Results are equal.
    #[getter]
    fn isa(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.inner(py)?.engine().workers().isa().name())
    }

    /// Returns the arguments that open the model again, at the first use.
    ///
    /// Returns:
    ///     tuple[Any, tuple[Any, ...]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, this) = (slf.py(), &slf.get().1);
        let (_, arguments) = this.recipe.reduce(&slf.get_type())?;
        let adapters = this.adapters.lock().clone();
        let arguments =
            if adapters.is_empty() { arguments } else { arguments.add((adapters,))?.cast_into()? };
        Ok((py.import("rsgen._later")?.getattr("opened_later")?, arguments))
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

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = PyString::new(py, self.0.name()).repr()?;
        let Some(inner) = self.0.if_open() else {
            let state = if self.0.is_closed() { "closed" } else { "not opened yet" };
            return Ok(format!("<rsgen.Generator {name}: {state}>"));
        };
        let (config, workers) = (inner.config(), inner.engine().workers());
        let num_threads = workers.num_threads();
        Ok(format!(
            "<rsgen.Generator {}: {}, {} layers, hidden size {}, vocabulary {}, context {}; {num_threads} thread{}, {}>",
            name,
            config.architecture,
            config.num_hidden_layers,
            config.hidden_size,
            config.vocab_size,
            config.context_len(),
            if num_threads == 1 { "" } else { "s" },
            workers.isa().name()
        ))
    }
}
