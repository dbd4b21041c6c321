//! The class `Generator`: a model that is ready to generate, and the calls on it.
//!
//! Arguments are converted, the work runs detached from Python, results are wrapped. What a call means is decided below.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use super::arrays::array;
use super::callbacks;
use super::chat::Conversations;
use super::config::{GenerationConfig, from_keywords, warn};
use super::drivers::Drivers;
use super::errors::{guarded, to_python};
use super::exit::detached;
use super::opened::Opened;
use super::options::{self, Options};
use super::output::GenerationOutput;
use super::pickle::Recipe;
use super::progress::{ListProgress, Reporter};
use super::signals::interruptible;
use super::stats::CacheStats;
use super::stream::TokenStream;
use super::tokenizer::Tokenizer;
use super::{chat, constraints, json, logging, prompts, scores, stopping_criteria};
use crate::generation::Strategy;
use crate::generator::{self, Prepared};
use crate::text::ChatOptions;

/// The keyword arguments of a call that are no fields of a configuration.
const OWN_KEYWORDS: [&str; 5] =
    ["attention_mask", "logits_processor", "prefix_allowed_tokens_fn", "stopping_criteria", "constraints"];

/// A model that is ready to generate.
#[pyclass(module = "rsgen", name = "Generator", frozen)]
pub(super) struct Generator(Opened, Runtime);

/// What a generator has in Python alone.
struct Runtime {
    /// How it was opened.
    recipe: Recipe,
    /// What computes its streams on event loops.
    drivers: Arc<Drivers>,
}

/// A method that generates.
pub(super) struct Method {
    pub(super) name: &'static str,
    /// What it presets.
    pub(super) strategy: Option<Strategy>,
    /// Whether it goes on to the end of the context when nothing limits it.
    pub(super) to_the_end: bool,
}

/// What a method continues.
pub(super) enum Given<'a, 'py> {
    Prompt(&'a Bound<'py, PyAny>),
    Chat(&'a Bound<'py, PyAny>),
}

/// The arguments of such a method, as Python gives them.
pub(super) struct Arguments<'a, 'py> {
    pub(super) given: Given<'a, 'py>,
    pub(super) generation_config: Option<&'a Bound<'py, GenerationConfig>>,
    pub(super) keywords: Option<&'a Bound<'py, PyDict>>,
}

impl Generator {
    /// Checks a call, and tells the caller what it probably did not mean.
    fn prepare(&self, py: Python<'_>, method: &Method, given: &Arguments<'_, '_>) -> PyResult<Prepared<'_>> {
        let keyword = |name: &str| -> PyResult<_> {
            let value = given.keywords.map(|keywords| keywords.get_item(name)).transpose()?.flatten();
            Ok(value.filter(|value| !value.is_none()))
        };
        let [mask, processors, allowed_tokens, criteria, constraints] = OWN_KEYWORDS;
        let others = match given.given {
            Given::Prompt(_) => OWN_KEYWORDS.to_vec(),
            Given::Chat(_) => {
                [&chat::KEYWORDS[..], &[processors, allowed_tokens, criteria, constraints]].concat()
            }
        };
        let mut config = from_keywords(method.name, given.keywords, &others)?;
        let passed = given.generation_config.map(|passed| passed.get().0.clone()).unwrap_or_default();
        config = match &method.strategy {
            Some(strategy) => strategy.apply(&config, &passed).map_err(|error| to_python(py, error))?,
            None => config.over_passed(&passed),
        };
        let mut call = match given.given {
            Given::Prompt(prompt) => {
                self.0.call(prompts::prompts(prompt, keyword(mask)?.as_ref())?).config(&config)
            }
            Given::Chat(messages) => {
                let (conversations, options) =
                    (Conversations::extract(messages)?, chat::options(given.keywords)?);
                detached(py, || conversations.call(&self.0, &options, &config))
                    .map_err(|error| to_python(py, error))?
            }
        };
        call = call.has_generation_config(given.generation_config.is_some());
        for processor in callbacks::processors(keyword(processors)?.as_ref())? {
            call = call.processor(processor);
        }
        if let Some(function) = keyword(allowed_tokens)? {
            call = call.prefix_allowed_tokens_fn(callbacks::allowed_tokens(&function)?);
        }
        for criterion in stopping_criteria::criteria(keyword(criteria)?.as_ref())? {
            call = call.criterion(criterion);
        }
        for constraint in constraints::constraints(keyword(constraints)?.as_ref())? {
            call = call.constraint(constraint);
        }
        let prepared =
            detached(py, || call.prepare(method.to_the_end)).map_err(|error| to_python(py, error))?;
        warn(py, prepared.warnings())?;
        Ok(prepared)
    }

    pub(super) fn run(
        &self,
        py: Python<'_>,
        method: &Method,
        given: &Arguments<'_, '_>,
    ) -> PyResult<GenerationOutput> {
        guarded(|| {
            let progress = ListProgress::take(given.keywords)?;
            let prepared = self.prepare(py, method, given)?;
            let progress = ListProgress::new(progress.as_ref(), prepared.num_requests())?;
            let output =
                interruptible(py, |interrupted| prepared.run_each(interrupted, &mut |_, _| progress.step()));
            logging::flush(py);
            GenerationOutput::new(py, progress.outcome(output)?)
        })
    }

    fn open_stream(
        &self,
        py: Python<'_>,
        name: &'static str,
        given: &Arguments<'_, '_>,
    ) -> PyResult<TokenStream> {
        guarded(|| {
            let prepared = self.prepare(py, &Method { name, strategy: None, to_the_end: true }, given)?;
            let stream = prepared.stream().map_err(|error| to_python(py, error))?;
            Ok(TokenStream::new(stream, &self.1.drivers))
        })
    }
}

#[pymethods]
impl Generator {
    #[new]
    #[pyo3(
        signature = (
            model=None, *, dtype="auto", compute_dtype="float32", kv_dtype="auto", num_threads=None, kv_cache_bytes=None,
            local_files_only=true, revision=None, progress=None, **unknown
        ),
        text_signature = "(model=None, *, dtype='auto', compute_dtype='float32', kv_dtype='auto', num_threads=None, \
                          kv_cache_bytes=None, local_files_only=True, revision=None, progress=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the class")]
    fn new(
        py: Python<'_>,
        model: Option<&Bound<'_, PyAny>>,
        dtype: &str,
        compute_dtype: &str,
        kv_dtype: &str,
        #[pyo3(from_py_with = options::count)] num_threads: Option<i64>,
        #[pyo3(from_py_with = options::count)] kv_cache_bytes: Option<i64>,
        local_files_only: bool,
        revision: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        guarded(|| {
            logging::install();
            options::refuse_unknown(unknown)?;
            let options = Options {
                dtype,
                compute_dtype,
                kv_dtype,
                num_threads,
                kv_cache_bytes,
                local_files_only,
                revision,
            };
            let path = options::model_path(py, model)?;
            let recipe = Recipe::new(py, model.map(|_| path.as_str()), &options)?;
            let mut options = options.check(py)?;
            let reporter = progress.map(Reporter::new).transpose()?;
            options.progress = reporter.as_ref().map(Reporter::report);
            let opened = interruptible(py, |interrupted| {
                let mut stopped = || reporter.as_ref().is_some_and(Reporter::has_failed) || interrupted();
                generator::Generator::open_interruptible(path, &options, &mut stopped)
            });
            logging::flush(py);
            let opened = Reporter::outcome(reporter, opened)?;
            warn(py, opened.warnings().iter().map(String::as_str))?;
            Ok(Self(Opened::new(opened), Runtime { recipe, drivers: Arc::default() }))
        })
    }

    #[classmethod]
    #[pyo3(
        signature = (model=None, **options),
        text_signature = "($cls, model=None, *, dtype='auto', compute_dtype='float32', kv_dtype='auto', \
                          num_threads=None, kv_cache_bytes=None, local_files_only=True, revision=None, progress=None)"
    )]
    fn from_pretrained<'py>(
        class: &Bound<'py, PyType>,
        model: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| class.call((model,), options))
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, stopping_criteria=None, constraints=None, **fields)"
    )]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        let method = Method { name: "generate", strategy: None, to_the_end: false };
        self.run(py, &method, &Arguments { given: Given::Prompt(prompt), generation_config, keywords })
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, stopping_criteria=None, **fields)"
    )]
    fn stream<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<TokenStream> {
        self.open_stream(
            py,
            "stream",
            &Arguments { given: Given::Prompt(prompt), generation_config, keywords },
        )
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, stopping_criteria=None, **fields)"
    )]
    fn astream<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<TokenStream> {
        self.open_stream(
            py,
            "astream",
            &Arguments { given: Given::Prompt(prompt), generation_config, keywords },
        )
    }

    #[pyo3(
        signature = (messages, generation_config=None, **keywords),
        text_signature = "($self, messages, generation_config=None, *, tools=None, documents=None, chat_template=None, \
                          chat_template_kwargs=None, continue_final_message=False, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, stopping_criteria=None, constraints=None, **fields)"
    )]
    fn chat<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        let method = Method { name: "chat", strategy: None, to_the_end: true };
        self.run(py, &method, &Arguments { given: Given::Chat(messages), generation_config, keywords })
    }

    #[pyo3(
        signature = (messages, generation_config=None, **keywords),
        text_signature = "($self, messages, generation_config=None, *, tools=None, documents=None, chat_template=None, \
                          chat_template_kwargs=None, continue_final_message=False, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, stopping_criteria=None, **fields)"
    )]
    fn stream_chat<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<TokenStream> {
        self.open_stream(
            py,
            "stream_chat",
            &Arguments { given: Given::Chat(messages), generation_config, keywords },
        )
    }

    #[pyo3(
        signature = (
            conversation, tools=None, documents=None, chat_template=None, add_generation_prompt=false,
            continue_final_message=None, tokenize=true, **kwargs
        ),
        text_signature = "($self, conversation, tools=None, documents=None, chat_template=None, \
                          add_generation_prompt=False, continue_final_message=False, tokenize=True, **kwargs)"
    )]
    #[expect(clippy::too_many_arguments, reason = "they are transformers'")]
    fn apply_chat_template<'py>(
        &self,
        py: Python<'py>,
        conversation: &Bound<'py, PyAny>,
        tools: Option<&Bound<'py, PyAny>>,
        documents: Option<&Bound<'py, PyAny>>,
        chat_template: Option<String>,
        add_generation_prompt: bool,
        continue_final_message: Option<&Bound<'py, PyAny>>,
        tokenize: bool,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let conversations = Conversations::extract(conversation)?;
            let options = ChatOptions {
                tools: tools.map(chat::schemas).transpose()?,
                documents: documents.map(|given| chat::plain_list(given, "documents")).transpose()?,
                chat_template,
                add_generation_prompt,
                continue_final_message: continue_final_message
                    .map_or(Ok(None), chat::continue_final_message)?,
                chat_template_kwargs: chat::variables(kwargs)?,
            };
            conversations.apply(py, &self.0, &options, tokenize)
        })
    }

    #[pyo3(signature = (ids))]
    fn forward<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let sequences = prompts::sequences(ids)?;
            let logits =
                interruptible(py, |interrupted| self.0.forward_interruptible(&sequences, interrupted))?;
            let (rows, len) = (sequences.len(), sequences.first().map_or(0, Vec::len));
            array(py, (rows, len, logits.len() / (rows * len).max(1)), logits)
        })
    }

    /// The log-probability of each token of a text given those before it, in nats, float32 ``[tokens]``; for a list of
    /// texts, which are computed together, a list of arrays.
    ///
    /// The first entry is 0, because nothing predicts the first token. With ``top_logprobs``, 0 included, the result is a
    /// ``TokenScores`` in place of an array: also the ranks, and so many of the most probable tokens in each place.
    /// ``progress`` is ``True`` for a bar, or a function of the number of texts done and of all. Raises ``InputError``
    /// when a text is longer than the model's context.
    #[pyo3(signature = (text, *, top_logprobs=None, progress=None))]
    fn score<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyAny>,
        top_logprobs: Option<usize>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| scores::score(py, &self.0, text, top_logprobs, progress))
    }

    fn stats(&self, py: Python<'_>) -> PyResult<CacheStats> {
        guarded(|| CacheStats::of(self.0.engine()).map_err(|error| to_python(py, error)))
    }

    #[getter]
    fn tokenizer(&self, py: Python<'_>) -> PyResult<Tokenizer> {
        guarded(|| self.0.tokenizer().cloned().map(Tokenizer).map_err(|error| to_python(py, error)))
    }

    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guarded(|| json::dict(py, &self.0.config().raw))
    }

    #[getter]
    fn generation_config(&self) -> PyResult<GenerationConfig> {
        guarded(|| Ok(GenerationConfig(self.0.generation_config().clone())))
    }

    #[getter]
    fn name_or_path(&self) -> PyResult<&str> {
        guarded(|| Ok(self.0.name()))
    }

    #[getter]
    fn num_threads(&self) -> PyResult<usize> {
        guarded(|| Ok(self.0.engine().workers().num_threads()))
    }

    #[getter]
    fn isa(&self) -> PyResult<&'static str> {
        guarded(|| Ok(self.0.engine().workers().isa().name()))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        guarded(|| slf.get().1.recipe.reduce(&slf.get_type()))
    }

    fn __copy__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        guarded(|| Ok(slf))
    }

    #[pyo3(signature = (memo, /))]
    fn __deepcopy__<'py>(slf: PyRef<'py, Self>, memo: &Bound<'py, PyAny>) -> PyResult<PyRef<'py, Self>> {
        let _ = memo;
        guarded(|| Ok(slf))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        guarded(|| {
            let (config, num_threads) = (self.0.config(), self.num_threads()?);
            Ok(format!(
                "<rsgen.Generator {}: {}, {} layers, hidden size {}, vocabulary {}, context {}; {num_threads} thread{}, {}>",
                PyString::new(py, self.0.name()).repr()?,
                config.architecture,
                config.num_hidden_layers,
                config.hidden_size,
                config.vocab_size,
                config.context_len(),
                if num_threads == 1 { "" } else { "s" },
                self.isa()?
            ))
        })
    }
}
