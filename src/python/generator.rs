//! The class `Generator`: a model that is ready to generate, and the calls on it.
//!
//! Arguments are converted, the work runs detached from Python, results are wrapped. What a call means is decided below.

use std::ffi::CString;

use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use super::arrays::array;
use super::callbacks;
use super::config::{GenerationConfig, from_keywords};
use super::errors::{guarded, to_python};
use super::options::{self, Options};
use super::output::GenerationOutput;
use super::signals::interruptible;
use super::stats::CacheStats;
use super::stream::TokenStream;
use super::tokenizer::Tokenizer;
use super::{json, logging, prompts};
use crate::generation::Strategy;
use crate::generator::{self, Prepared};

/// The keyword arguments of a call that are no fields of a configuration.
const OWN_KEYWORDS: [&str; 3] = ["attention_mask", "logits_processor", "stopping_criteria"];

/// A model that is ready to generate.
#[pyclass(module = "rsgen", name = "Generator", frozen)]
pub(super) struct Generator(generator::Generator);

/// A method that generates.
struct Method {
    name: &'static str,
    /// What it presets.
    strategy: Option<Strategy>,
    /// Whether it goes on to the end of the context when nothing limits it.
    to_the_end: bool,
}

impl Method {
    fn of(strategy: Strategy) -> Self {
        Self { name: strategy.name, strategy: Some(strategy), to_the_end: false }
    }
}

/// The arguments of such a method, as Python gives them.
struct Arguments<'a, 'py> {
    prompt: &'a Bound<'py, PyAny>,
    generation_config: Option<&'a Bound<'py, GenerationConfig>>,
    keywords: Option<&'a Bound<'py, PyDict>>,
}

impl Generator {
    /// Checks a call, and tells the caller what it probably did not mean.
    fn prepare(&self, py: Python<'_>, method: &Method, given: &Arguments<'_, '_>) -> PyResult<Prepared<'_>> {
        let keyword = |name: &str| -> PyResult<_> {
            let value = given.keywords.map(|keywords| keywords.get_item(name)).transpose()?.flatten();
            Ok(value.filter(|value| !value.is_none()))
        };
        let mut config = from_keywords(method.name, given.keywords, &OWN_KEYWORDS)?;
        if let Some(passed) = given.generation_config {
            config = config.merged_over(&passed.get().0);
        }
        if let Some(strategy) = &method.strategy {
            config = strategy.apply(config).map_err(|error| to_python(py, error))?;
        }
        let [mask, processors, criteria] = OWN_KEYWORDS;
        let prompts = prompts::prompts(given.prompt, keyword(mask)?.as_ref())?;
        let mut call = self.0.call(prompts).config(&config);
        for processor in callbacks::processors(keyword(processors)?.as_ref())? {
            call = call.processor(processor);
        }
        for criterion in callbacks::criteria(keyword(criteria)?.as_ref())? {
            call = call.criterion(criterion);
        }
        let prepared = py.detach(|| call.prepare(method.to_the_end)).map_err(|error| to_python(py, error))?;
        let category = py.get_type::<PyUserWarning>();
        for warning in prepared.warnings() {
            let warning = CString::new(warning.replace('\0', ""))?;
            PyErr::warn(py, &category, &warning, 1)?;
        }
        Ok(prepared)
    }

    fn run(&self, py: Python<'_>, method: &Method, given: &Arguments<'_, '_>) -> PyResult<GenerationOutput> {
        guarded(|| {
            let prepared = self.prepare(py, method, given)?;
            let output = interruptible(py, |interrupted| prepared.run(interrupted));
            logging::flush(py);
            GenerationOutput::new(py, output?)
        })
    }
}

#[pymethods]
impl Generator {
    #[new]
    #[pyo3(signature = (
        model=None, *, dtype="auto", compute_dtype="float32", kv_dtype="auto", num_threads=None, kv_cache_bytes=None,
        local_files_only=true, revision=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the class")]
    fn new(
        py: Python<'_>,
        model: Option<&Bound<'_, PyAny>>,
        dtype: &str,
        compute_dtype: &str,
        kv_dtype: &str,
        num_threads: Option<i64>,
        kv_cache_bytes: Option<i64>,
        local_files_only: bool,
        revision: Option<String>,
    ) -> PyResult<Self> {
        guarded(|| {
            logging::install();
            let options = Options {
                dtype,
                compute_dtype,
                kv_dtype,
                num_threads,
                kv_cache_bytes,
                local_files_only,
                revision,
            };
            let options = options.check(py)?;
            let model = options::model_path(py, model)?;
            let opened = py.detach(|| generator::Generator::open_with(model, &options));
            logging::flush(py);
            opened.map(Self).map_err(|error| to_python(py, error))
        })
    }

    #[classmethod]
    #[pyo3(
        signature = (model=None, **options),
        text_signature = "($cls, model=None, *, dtype='auto', compute_dtype='float32', kv_dtype='auto', \
                          num_threads=None, kv_cache_bytes=None, local_files_only=True, revision=None)"
    )]
    fn from_pretrained<'py>(
        class: &Bound<'py, PyType>,
        model: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.call((model,), options)
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          stopping_criteria=None, **fields)"
    )]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        let method = Method { name: "generate", strategy: None, to_the_end: false };
        self.run(py, &method, &Arguments { prompt, generation_config, keywords })
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          stopping_criteria=None, **fields)"
    )]
    fn greedy_search<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        self.run(py, &Method::of(Strategy::GREEDY_SEARCH), &Arguments { prompt, generation_config, keywords })
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          stopping_criteria=None, **fields)"
    )]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        self.run(py, &Method::of(Strategy::SAMPLE), &Arguments { prompt, generation_config, keywords })
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          stopping_criteria=None, **fields)"
    )]
    fn beam_search<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        self.run(py, &Method::of(Strategy::BEAM_SEARCH), &Arguments { prompt, generation_config, keywords })
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          stopping_criteria=None, **fields)"
    )]
    fn beam_sample<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        self.run(py, &Method::of(Strategy::BEAM_SAMPLE), &Arguments { prompt, generation_config, keywords })
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          stopping_criteria=None, **fields)"
    )]
    fn dola<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        self.run(py, &Method::of(Strategy::DOLA), &Arguments { prompt, generation_config, keywords })
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          stopping_criteria=None, **fields)"
    )]
    fn contrastive_search<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        self.run(
            py,
            &Method::of(Strategy::CONTRASTIVE_SEARCH),
            &Arguments { prompt, generation_config, keywords },
        )
    }

    #[pyo3(
        signature = (prompt, generation_config=None, **keywords),
        text_signature = "($self, prompt, generation_config=None, *, attention_mask=None, logits_processor=None, \
                          stopping_criteria=None, **fields)"
    )]
    fn stream<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, GenerationConfig>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<TokenStream> {
        guarded(|| {
            let method = Method { name: "stream", strategy: None, to_the_end: true };
            let prepared = self.prepare(py, &method, &Arguments { prompt, generation_config, keywords })?;
            prepared.stream().map(TokenStream::new).map_err(|error| to_python(py, error))
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

    #[pyo3(signature = (text))]
    fn score<'py>(&self, py: Python<'py>, text: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let prompt = prompts::single(text)?;
            let logprobs = interruptible(py, |interrupted| self.0.score_interruptible(prompt, interrupted))?;
            array(py, logprobs.len(), logprobs)
        })
    }

    fn stats(&self) -> PyResult<CacheStats> {
        guarded(|| Ok(CacheStats::of(self.0.engine())))
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
    fn generation_config(&self) -> GenerationConfig {
        GenerationConfig(self.0.generation_config().clone())
    }

    #[getter]
    fn name_or_path(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn num_threads(&self) -> usize {
        self.0.engine().workers().num_threads()
    }

    #[getter]
    fn isa(&self) -> &'static str {
        self.0.engine().workers().isa().name()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let config = self.0.config();
        Ok(format!(
            "<rsgen.Generator {}: {}, {} layers, hidden size {}, vocabulary {}, context {}; {} thread{}, {}>",
            PyString::new(py, self.0.name()).repr()?,
            config.architecture,
            config.num_hidden_layers,
            config.hidden_size,
            config.vocab_size,
            config.context_len(),
            self.num_threads(),
            if self.num_threads() == 1 { "" } else { "s" },
            self.isa()
        ))
    }
}
