//! A callable of the caller's that is told how far loading is.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::exit::attached;
use super::prompts::shown;
use crate::generator::{Progress, Stage};
use crate::sync::Mutex;

/// The callable, and what it raised.
pub(super) struct Reporter {
    callable: Py<PyAny>,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Reporter {
    pub(super) fn new(callable: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !callable.is_callable() {
            return Err(PyTypeError::new_err(format!(
                "`progress` must be a callable that takes stage, done and total, got {}",
                shown(callable)
            )));
        }
        Ok(Self { callable: callable.clone().unbind(), raised: Arc::default() })
    }

    /// The function that the loading calls.
    pub(super) fn report(&self) -> Box<dyn Fn(Progress) + Send + Sync> {
        let (callable, raised) = (Python::attach(|py| self.callable.clone_ref(py)), Arc::clone(&self.raised));
        Box::new(move |progress| {
            let Progress { stage, done, total } = progress;
            let arguments = (name(stage), done, total);
            // Not again after it has failed.
            if raised.lock().is_none()
                && let Some(Err(error)) = attached(|py| callable.call1(py, arguments))
            {
                *raised.lock() = Some(error);
            }
        })
    }

    /// Whether it has raised, so that nobody wants the model any more.
    pub(super) fn has_failed(&self) -> bool {
        self.raised.lock().is_some()
    }

    /// What the loading came to: what the callable raised goes first.
    pub(super) fn outcome<T>(reporter: Option<Self>, loaded: PyResult<T>) -> PyResult<T> {
        match reporter.and_then(|reporter| reporter.raised.lock().take()) {
            Some(raised) => Err(raised),
            None => loaded,
        }
    }
}

fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Pack => "pack",
    }
}
