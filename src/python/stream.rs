//! The classes `TokenStream` and `StreamedToken`: a request that works while it is iterated.
//!
//! A stream behaves as a Python generator does: its last `StopIteration` carries the finished output, `close` ends it, and
//! dropping it gives its cache blocks back at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::{PyStopIteration, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::errors::{guarded, to_python};
use super::logging;
use super::output::GenerationOutput;
use super::signals::interruptible;
use crate::engine;

/// The tokens of a request, as they are generated.
#[pyclass(module = "rsgen", name = "TokenStream", frozen)]
pub(super) struct TokenStream {
    /// Held while a token is computed. Nobody waits for it: whoever finds it locked has made a mistake, or cancels.
    state: Mutex<State>,
    cancel: Arc<AtomicBool>,
}

enum State {
    Running(Box<engine::TokenStream>),
    /// With the output, unless an error ended the stream.
    Ended(Option<Py<GenerationOutput>>),
}

/// A generated token.
#[pyclass(module = "rsgen", name = "StreamedToken", frozen, eq, get_all)]
#[derive(PartialEq)]
pub(super) struct StreamedToken {
    id: u32,
    text: String,
    index: usize,
    logprob: f32,
    score: f32,
    finish_reason: Option<&'static str>,
}

impl TokenStream {
    pub(super) fn new(stream: engine::TokenStream) -> Self {
        Self { cancel: stream.cancel_flag(), state: Mutex::new(State::Running(Box::new(stream))) }
    }

    /// The next token, or the `StopIteration` with the output.
    fn next_token(&self, py: Python<'_>) -> PyResult<StreamedToken> {
        // Loops in C, such as `list(stream)`, run no handlers between the tokens.
        py.check_signals()?;
        let mut state = self.state.try_lock().ok_or_else(|| {
            PyValueError::new_err(
                "the stream is being read already, by another thread or around this callback",
            )
        })?;
        let State::Running(stream) = &mut *state else { return Err(state.stop_iteration(py)) };
        let next = interruptible(py, |interrupted| stream.next_token(interrupted));
        logging::flush(py);
        match next {
            Ok(Some(token)) => Ok(token.into()),
            Ok(None) => {
                state.end(py)?;
                Err(state.stop_iteration(py))
            }
            Err(error) => {
                *state = State::Ended(None);
                Err(error)
            }
        }
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(mut state) = self.state.try_lock() {
            return state.end(py);
        }
        self.cancel.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl State {
    /// Ends the work and keeps the output.
    fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        if let State::Ended(_) = self {
            return Ok(());
        }
        let State::Running(mut stream) = std::mem::replace(self, State::Ended(None)) else { return Ok(()) };
        let output = py.detach(|| {
            stream.close();
            stream.into_output()
        });
        let output = output.map_err(|error| to_python(py, error))?;
        *self = State::Ended(Some(Py::new(py, GenerationOutput::new(py, output)?)?));
        Ok(())
    }

    fn output(&self, py: Python<'_>) -> Option<Py<GenerationOutput>> {
        match self {
            State::Ended(Some(output)) => Some(output.clone_ref(py)),
            _ => None,
        }
    }

    fn stop_iteration(&self, py: Python<'_>) -> PyErr {
        PyStopIteration::new_err((self.output(py),))
    }
}

#[pymethods]
impl TokenStream {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<StreamedToken> {
        guarded(|| self.next_token(py))
    }

    #[pyo3(signature = (value, /))]
    fn send(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<StreamedToken> {
        if !value.is_none() {
            return Err(PyTypeError::new_err(
                "a TokenStream takes no values; send(None) gives the next token",
            ));
        }
        guarded(|| self.next_token(py))
    }

    #[pyo3(signature = (typ, val=None, tb=None, /))]
    fn throw(
        &self,
        py: Python<'_>,
        typ: &Bound<'_, PyAny>,
        val: Option<&Bound<'_, PyAny>>,
        tb: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<StreamedToken> {
        guarded(|| {
            self.end(py)?;
            let exception = match (typ.cast::<PyType>(), val) {
                (Ok(class), None) => class.call0()?,
                (Ok(class), Some(value)) if value.is_instance(class)? => value.clone(),
                (Ok(class), Some(value)) => class.call1((value,))?,
                (Err(_), _) => typ.clone(),
            };
            if let Some(traceback) = tb {
                exception.call_method1("with_traceback", (traceback,))?;
            }
            Err(PyErr::from_value(exception))
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| self.end(py))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (exc_type=None, exc_value=None, traceback=None, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (exc_type, exc_value, traceback);
        guarded(|| self.end(py))
    }

    #[getter]
    fn output(&self, py: Python<'_>) -> Option<Py<GenerationOutput>> {
        self.state.try_lock().and_then(|state| state.output(py))
    }

    fn __repr__(&self) -> &'static str {
        match self.state.try_lock().as_deref() {
            Some(State::Ended(Some(_))) => "<TokenStream, ended>",
            Some(State::Ended(None)) => "<TokenStream, failed>",
            Some(State::Running(_)) | None => "<TokenStream, running>",
        }
    }
}

impl From<engine::StreamedToken> for StreamedToken {
    fn from(token: engine::StreamedToken) -> Self {
        Self {
            id: token.id.0,
            text: token.text,
            index: token.index,
            logprob: token.logprob,
            score: token.score,
            finish_reason: token.finish_reason.map(crate::types::FinishReason::as_str),
        }
    }
}

#[pymethods]
impl StreamedToken {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Self { id, text, index, logprob, score, finish_reason } = self;
        let (text, finish_reason) = (PyString::new(py, text), finish_reason.into_pyobject(py)?);
        Ok(format!(
            "StreamedToken(id={id}, text={}, index={index}, logprob={logprob:.4}, score={score:.4}, finish_reason={})",
            text.repr()?,
            finish_reason.repr()?
        ))
    }
}
