//! Opening a generator: at once, or at its first use for one that comes out of a pickle.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::config::warn;
use super::generator::Generator;
use super::in_memory::ModelInMemory;
use super::logging;
use super::options::{self, GivenAssistant};
use super::pickle::{LoadedAdapter, Recipe};
use super::progress::Reporter;
use super::signals::interruptible;
use rsgen::generator::{self, MemoryModel};

/// What a generator is opened with.
pub(super) struct Opening {
    /// The folder or Hub id.
    path: String,
    in_memory: Option<MemoryModel>,
    /// The keyword arguments, which have been read once.
    arguments: Option<Py<PyDict>>,
    assistant: Option<GivenAssistant>,
    progress: Option<Py<PyAny>>,
    /// What is loaded beside the model.
    adapters: Vec<LoadedAdapter>,
}

impl Opening {
    /// Reads the arguments of the class. Returns the recipe that opens it again, too.
    ///
    /// # Errors
    /// When one of them is wrong.
    pub(super) fn new(
        py: Python<'_>,
        model: Option<&Bound<'_, PyAny>>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(Self, Recipe)> {
        let given = |name: &str| {
            let given = keywords.map(|keywords| keywords.get_item(name)).transpose();
            given.map(|given| given.flatten().filter(|given| !given.is_none()))
        };
        let (assistant, progress) = (given("assistant")?, given("progress")?);
        let (_, arguments) = options::read(py, "Generator", &options::NAMES, keywords)?;
        let in_memory = model.and_then(|given| given.cast::<ModelInMemory>().ok());
        let in_memory = in_memory.map(|given| given.get().0.clone());
        let path = if in_memory.is_some() { None } else { Some(options::model_path(py, "model", model)?) };
        let assistant = assistant.map(|given| options::assistant(py, &given)).transpose()?;
        let recipe = match &in_memory {
            Some(memory) => Recipe::in_memory(memory.tokenizer_files(), arguments),
            None => Recipe::new(path.as_deref().filter(|_| model.is_some()), arguments),
        };
        match &assistant {
            Some(GivenAssistant::Open(generator)) => recipe.set(py, "assistant", generator.clone_ref(py))?,
            Some(GivenAssistant::Path { name, .. }) => recipe.set(py, "assistant", name)?,
            None => {}
        }
        let opening = Self {
            path: path.unwrap_or_default(),
            in_memory,
            arguments: keywords.map(PyDictMethods::copy).transpose()?.map(Bound::unbind),
            assistant,
            progress: progress.map(Bound::unbind),
            adapters: Vec::new(),
        };
        Ok((opening, recipe))
    }

    /// With adapters that are loaded once it is open.
    pub(super) fn with_adapters(self, adapters: Vec<LoadedAdapter>) -> Self {
        Self { adapters, ..self }
    }

    /// The folder or id.
    pub(super) fn name(&self) -> &str {
        &self.path
    }

    /// The generator that it is given to draft.
    pub(super) fn assistant(&self) -> Option<&Py<Generator>> {
        match &self.assistant {
            Some(GivenAssistant::Open(generator)) => Some(generator),
            _ => None,
        }
    }

    /// Opens it, and issues its warnings.
    ///
    /// # Errors
    /// As for the class.
    pub(super) fn open(&self, py: Python<'_>) -> PyResult<generator::Generator> {
        let arguments = self.arguments.as_ref().map(|arguments| arguments.bind(py));
        let (mut options, _) = options::read(py, "Generator", &options::NAMES, arguments)?;
        match &self.assistant {
            Some(GivenAssistant::Open(generator)) => {
                options.assistant = Some((*generator.get().inner(py)?).clone().into());
            }
            Some(GivenAssistant::Path { path, .. }) => options.assistant = Some(path.clone().into()),
            None => {}
        }
        let reporter = self.progress.as_ref().map(|given| Reporter::new(given.bind(py))).transpose()?;
        options.progress = reporter.as_ref().map(Reporter::report);
        let opened = interruptible(py, |interrupted| {
            let mut stopped = || reporter.as_ref().is_some_and(Reporter::has_failed) || interrupted();
            let opened = match &self.in_memory {
                Some(model) => model.open_interruptible(&options, &mut stopped)?,
                None => generator::Generator::open_interruptible(&self.path, &options, &mut stopped)?,
            };
            for LoadedAdapter { name, path, cache_dir } in &self.adapters {
                opened.load_adapter(path, name, cache_dir.as_deref().map(Path::new), &mut stopped)?;
            }
            Ok(opened)
        });
        logging::flush(py);
        let opened = Reporter::outcome(reporter, opened)?;
        warn(py, opened.warnings().iter().cloned())?;
        Ok(opened)
    }
}
