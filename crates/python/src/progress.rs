//! Callables of the caller's that are told how far loading, or a list of prompts, is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use super::exit::attached;
use super::prompts::shown;
use rsgen::generator::Progress;
use rsgen_core::error::{Error, Result};
use rsgen_core::sync::Mutex;

/// The callable, and what it raised.
pub(super) struct Reporter {
    callable: Py<PyAny>,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Reporter {
    pub(super) fn new(callable: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !callable.is_callable() {
            return Err(type_error!(
                "`progress` must be a callable that takes stage, done and total, got {}",
                shown(callable)
            ));
        }
        Ok(Self { callable: callable.clone().unbind(), raised: Arc::default() })
    }

    /// The function that the loading calls.
    pub(super) fn report(&self) -> Box<dyn Fn(Progress) + Send + Sync> {
        let (callable, raised) = (Python::attach(|py| self.callable.clone_ref(py)), Arc::clone(&self.raised));
        Box::new(move |progress| {
            let Progress { stage, done, total } = progress;
            let arguments = (stage.as_str(), done, total);
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

/// How far a list is: `True` shows a bar, and a callable is given the number of those done and that of all.
pub(super) struct ListProgress {
    callable: Option<Py<PyAny>>,
    done: AtomicUsize,
    total: usize,
    raised: Mutex<Option<PyErr>>,
}

impl ListProgress {
    /// Takes the argument out of the keywords of a call, which are that call's own.
    pub(super) fn take<'py>(keywords: Option<&Bound<'py, PyDict>>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(keywords) = keywords else { return Ok(None) };
        let given = keywords.get_item("progress")?;
        if given.is_some() {
            keywords.del_item("progress")?;
        }
        Ok(given)
    }

    pub(super) fn new(given: Option<&Bound<'_, PyAny>>, total: usize) -> PyResult<Self> {
        let callable = match given {
            None => None,
            Some(given) if given.is_none() => None,
            Some(given) => match given.cast::<PyBool>() {
                Ok(flag) if !flag.is_true() => None,
                Ok(_) => Some(given.py().import("rsgen._progress")?.getattr("show")?),
                Err(_) if given.is_callable() => Some(given.clone()),
                Err(_) => {
                    return Err(type_error!(
                        "`progress` must be True, False or a callable that takes done and total, got {}",
                        shown(given)
                    ));
                }
            },
        };
        let callable = callable.map(Bound::unbind);
        Ok(Self { callable, done: AtomicUsize::new(0), total, raised: Mutex::default() })
    }

    /// Counts one more.
    ///
    /// # Errors
    /// When the callable raises, so that the work ends.
    pub(super) fn step(&self) -> Result<()> {
        let done = 1 + self.done.fetch_add(1, Ordering::Relaxed);
        let Some(callable) = &self.callable else { return Ok(()) };
        match attached(|py| callable.call1(py, (done, self.total))) {
            Some(Err(error)) => {
                *self.raised.lock() = Some(error);
                Err(Error::cancelled())
            }
            _ => Ok(()),
        }
    }

    /// What the work came to: what the callable raised goes first.
    pub(super) fn outcome<T>(&self, result: PyResult<T>) -> PyResult<T> {
        match self.raised.lock().take() {
            Some(raised) => Err(raised),
            None => result,
        }
    }
}
