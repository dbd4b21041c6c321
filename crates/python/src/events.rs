//! Events in Python: dicts that `type` tells apart, the iterator over those of a stream, and the pictures of
//! an output.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::PyList;

use super::errors::{exception, guarded, input_error, to_python};
use super::json;
use super::output::GenerationOutput;
use super::stream::TokenStream;
use rsgen::engine;
use rsgen::engine::trace::{TimedEvent, Trace};
use rsgen::pictures::{Pictures, View};
use rsgen_core::error::ErrorKind;

/// What is missing without events.
/// What a page begins with.
const PAGE: &str = "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>rsgen</title>\n";

const REMEDY: &str = "the call recorded no events; call with output_events=True";

/// The events of a stream, from the first one on. The model works while an event is waited for.
///
/// Several can be open beside each other and beside the tokens: each gives all events. Closing
/// the stream ends them.
///
/// Example:
///     >>> stream = gen.stream("One day", max_new_tokens=5, output_events=True)
///     >>> [event["type"] for event in stream.events()]
///     ['start', 'prompt', 'token', 'token', 'token', 'token', 'token', 'finish']
#[pyclass(module = "rsgen", name = "EventStream", frozen)]
pub(super) struct EventStream {
    stream: Py<TokenStream>,
    /// The number of the next event.
    next: AtomicUsize,
}

#[guarded]
#[pymethods]
impl EventStream {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.stream)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let event = self.stream.get().event(py, self.next.load(Ordering::Relaxed))?;
        event
            .map(|event| {
                self.next.fetch_add(1, Ordering::Relaxed);
                dict(py, &event)
            })
            .transpose()
    }
}

#[guarded]
#[pymethods]
impl TokenStream {
    /// Returns an iterator over the stream's events, from the first one on: everything that happens, as it
    /// happens.
    ///
    /// Returns:
    ///     EventStream: The events, as dicts.
    ///
    /// Raises:
    ///     InputError: The call was without `output_events=True`.
    fn events(slf: Bound<'_, Self>) -> PyResult<EventStream> {
        if !slf.get().records_events() {
            return Err(input_error(slf.py(), REMEDY));
        }
        Ok(EventStream { stream: slf.unbind(), next: AtomicUsize::new(0) })
    }
}

#[guarded]
#[pymethods]
impl GenerationOutput {
    /// list[GenerationEvent] | None: How each token was found, with `output_events=True`.
    ///
    /// The alternatives of each token and what removed them, the nodes of beams, and drafts, as
    /// dicts in the order of what happened. A list of prompts has the events of each in turn.
    #[getter]
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(events) = &self.output.events else { return Ok(None) };
        let list = PyList::empty(py);
        for event in events {
            list.append(dict(py, event)?)?;
        }
        Ok(Some(list))
    }

    /// Writes all events to a file, which `rsgen show` draws.
    ///
    /// Args:
    ///     path (str | os.PathLike[str]): The file, in JSON. It is replaced if it exists.
    ///
    /// Raises:
    ///     InputError: The call was without `output_events=True`.
    ///     LoadError: The file cannot be written.
    #[pyo3(signature = (path))]
    fn save_trace(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let Some(events) = &self.output.events else { return Err(input_error(py, REMEDY)) };
        py.detach(|| Trace::new(events.clone()).save(path)).map_err(|error| to_python(py, error))
    }

    /// Draws how the text was found, for notebooks: the probability of each token, and with
    /// `output_events=True` alternatives, beams and drafts.
    ///
    /// Returns:
    ///     str: HTML without scripts.
    fn _repr_html_(&self, py: Python<'_>) -> String {
        py.detach(|| picture(&self.output))
    }

    /// Writes what notebooks show of the output as a page for browsers: see `_repr_html_()`.
    ///
    /// Args:
    ///     path (str | os.PathLike[str]): The file, which is replaced if it exists.
    ///
    /// Raises:
    ///     OSError: The file cannot be written.
    #[pyo3(signature = (path))]
    fn to_html(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let written = py.detach(|| std::fs::write(path, format!("{PAGE}{}\n", picture(&self.output))));
        Ok(written?)
    }
}

/// The picture of an output.
fn picture(output: &engine::GenerationOutput) -> String {
    let pictures = Pictures::of_output(output);
    let mut views = pictures.views();
    views.retain(|view| *view != View::Probs);
    views.insert(0, View::Probs);
    pictures.html(&views)
}

/// An event as a dict.
fn dict<'py>(py: Python<'py>, event: &TimedEvent) -> PyResult<Bound<'py, PyAny>> {
    let event = serde_json::to_value(event);
    json::to_python(py, event.map_err(|error| exception(py, ErrorKind::Internal, error.to_string()))?)
}
