//! The batch of `Generator.map`: calls that run together, and that others join while they run.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyDict, PyList};

use super::calls::{Arguments, Given, Method};
use super::chat::Conversations;
use super::closing::Closable;
use super::errors::{concerning_prompt, guarded, to_python};
use super::exit::detached;
use super::generator::Generator;
use super::held::Held;
use super::logging;
use super::output::GenerationOutput;
use super::prompts;
use super::signals::interruptible;
use super::tool_calls::Reading;
use rsgen::engine;
use rsgen_core::sync::Mutex;

/// Calls that run together, each with a number.
#[pyclass(module = "rsgen._rsgen", name = "_Batch", frozen, weakref)]
pub(super) struct Batch {
    generator: Py<Generator>,
    state: Mutex<State>,
}

struct State {
    /// `None` while it computes, and after an error or an interruption.
    batch: Option<engine::Batch>,
    /// What the calls refer to.
    calls: HashMap<usize, (Held, Reading)>,
    has_warned: bool,
}

#[guarded]
#[pymethods]
impl Generator {
    /// Makes a batch without calls.
    fn _batch(slf: &Bound<'_, Self>) -> PyResult<Py<Batch>> {
        let py = slf.py();
        let batch = Some(slf.get().inner(py)?.batch());
        let state = State { batch, calls: HashMap::new(), has_warned: false };
        slf.get().opened().keep(py, Batch { generator: slf.clone().unbind(), state: Mutex::new(state) })
    }
}

impl Closable for Batch {
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // A batch that computes ends by itself.
        let Some(mut state) = self.state.try_lock() else { return Ok(()) };
        let batch = state.batch.take();
        detached(py, || drop(batch));
        Ok(())
    }
}

impl Batch {
    /// Why it cannot compute: a generator that another thread closes at this moment says so.
    fn busy(&self, py: Python<'_>) -> PyErr {
        let message = "the batch has ended, or another thread computes with it";
        match self.generator.get().inner(py) {
            Ok(_) => pyo3::exceptions::PyValueError::new_err(message),
            Err(closed) => closed,
        }
    }
}

#[guarded]
#[pymethods]
impl Batch {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.generator)?;
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        for (held, reading) in state.calls.values() {
            held.traverse_by(&visit)?;
            reading.output_type.as_ref().map_or(Ok(()), |output_type| output_type.traverse(&visit))?;
        }
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.state.try_lock().map_or(0, |state| state.calls.len())
    }

    /// Adds the call of `generate`, or of `chat` for messages, under a number.
    #[pyo3(signature = (number, prompt, is_chat, keywords))]
    fn add(
        &self,
        py: Python<'_>,
        number: usize,
        prompt: &Bound<'_, PyAny>,
        is_chat: bool,
        keywords: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let inner = self.generator.get().inner(py)?;
        let (name, given) =
            if is_chat { ("chat", Given::Chat(prompt)) } else { ("map", Given::Prompt(Some(prompt))) };
        let generation_config = keywords.get_item("generation_config")?;
        if generation_config.is_some() {
            keywords.del_item("generation_config")?;
        }
        let generation_config = generation_config.filter(|given| !given.is_none());
        let method = Method { name, strategy: None, to_the_end: is_chat };
        let arguments =
            Arguments { given, generation_config: generation_config.as_ref(), keywords: Some(keywords) };
        let Some(mut state) = self.state.try_lock() else { return Err(self.busy(py)) };
        // What is wrong with a prompt says so as data, and what is wrong with the others does not.
        let checked = if is_chat {
            Conversations::extract(prompt).map(drop)
        } else {
            prompts::prompts(prompt, None).map(drop)
        };
        checked.map_err(|error| concerning_prompt(py, error, Some(number)))?;
        let (mut call, held, mut reading) = Generator::convert(py, &inner, &method, &arguments)?;
        Generator::read_tools(py, &inner, &mut call, &mut reading)?;
        let prepared = Generator::prepare(py, &inner, call, !state.has_warned)?;
        state.has_warned = true;
        let batch = state.batch.as_mut().ok_or_else(|| self.busy(py))?;
        prepared.join(batch, number).map_err(|error| to_python(py, error))?;
        state.calls.insert(number, (held, reading));
        Ok(())
    }

    /// Computes a pass. Returns the number of each call that has ended, with its output or error.
    fn step<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        py.check_signals()?;
        self.generator.get().inner(py)?;
        let Some(mut state) = self.state.try_lock() else { return Err(self.busy(py)) };
        let mut batch = state.batch.take().ok_or_else(|| self.busy(py))?;
        let ended = interruptible(py, |interrupted| batch.step(interrupted));
        if batch.is_empty() {
            batch.report();
        }
        logging::flush(py);
        let list = PyList::empty(py);
        for (number, result) in ended? {
            let reading = state.calls.remove(&number).map(|(_, reading)| reading).unwrap_or_default();
            let result = match result {
                Ok(output) => Bound::new(py, GenerationOutput::new(py, output, reading)?)?.into_any(),
                Err(error) => to_python(py, error).into_value(py).into_bound(py).into_any(),
            };
            list.append((number, result))?;
        }
        state.batch = Some(batch);
        Ok(list)
    }
}
