//! The argument `progress`: callables that report the progress of loading, or of a list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use super::exit::attached;
use super::prompts::shown;
use super::signals::keep;
use rsgen::generator::Progress;
use rsgen_core::error::{Error, Result};
use rsgen_core::sync::Mutex;

/// A callable, and what it raised: that goes before what the work came to.
struct Callable {
    object: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl Callable {
    fn new(object: &Bound<'_, PyAny>) -> Self {
        Self { object: object.clone().unbind(), raised: Mutex::default() }
    }

    /// Calls it, unless it has raised before. Returns whether it has not.
    fn call(&self, arguments: impl for<'py> PyCallArgs<'py>) -> bool {
        if self.has_raised() {
            return false;
        }
        if let Some(Err(error)) = attached(|py| self.object.call1(py, arguments)) {
            *self.raised.lock() = Some(error);
        }
        !self.has_raised()
    }

    fn has_raised(&self) -> bool {
        self.raised.lock().is_some()
    }

    fn outcome<T>(&self, result: PyResult<T>) -> PyResult<T> {
        self.raised.lock().take().map_or(result, Err)
    }
}

/// A callable that is told how far loading is.
pub(super) struct Reporter(Arc<Callable>);

impl Reporter {
    pub(super) fn new(callable: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !callable.is_callable() {
            return Err(type_error!(
                "`progress` must be a callable that takes stage, done and total, got {}",
                shown(callable)
            ));
        }
        Ok(Self(Arc::new(Callable::new(callable))))
    }

    /// The function that the loading calls.
    pub(super) fn report(&self) -> Box<dyn Fn(Progress) + Send + Sync> {
        let callable = Arc::clone(&self.0);
        Box::new(move |Progress { stage, done, total }| {
            callable.call((stage.as_str(), done, total));
        })
    }

    /// Whether it has raised, which ends the loading.
    pub(super) fn has_failed(&self) -> bool {
        self.0.has_raised()
    }

    /// The result of the loading, or the exception of the callable.
    pub(super) fn outcome<T>(reporter: Option<Self>, loaded: PyResult<T>) -> PyResult<T> {
        match reporter {
            Some(reporter) => reporter.0.outcome(loaded),
            None => loaded,
        }
    }
}

/// The progress of a list: `True` shows a bar, a callable gets the number of finished items and of all.
pub(super) struct ListProgress {
    callable: Option<Callable>,
    is_bar: bool,
    done: AtomicUsize,
    total: usize,
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
        let given = given.filter(|given| !given.is_none());
        let is_bar = given.is_some_and(|given| given.cast::<PyBool>().is_ok_and(PyBoolMethods::is_true));
        let callable = match given {
            None => None,
            Some(given) => match given.cast::<PyBool>() {
                Ok(flag) if !flag.is_true() => None,
                Ok(_) => Some(Callable::new(&given.py().import("rsgen._progress")?.getattr("show")?)),
                Err(_) if given.is_callable() => Some(Callable::new(given)),
                Err(_) => {
                    return Err(type_error!(
                        "`progress` must be True, False or a callable that takes done and total, got {}",
                        shown(given)
                    ));
                }
            },
        };
        Ok(Self { callable, is_bar, done: AtomicUsize::new(0), total })
    }

    /// Counts a finished item.
    ///
    /// # Errors
    /// When the callable has raised, so that the work ends.
    pub(super) fn step(&self) -> Result<()> {
        let done = 1 + self.done.fetch_add(1, Ordering::Relaxed);
        let goes_on = self.callable.as_ref().is_none_or(|callable| callable.call((done, self.total)));
        if goes_on { Ok(()) } else { Err(Error::cancelled()) }
    }

    /// The result of the work, or the exception of the callable. What follows a bar that was not finished, such as a
    /// traceback, gets a line of its own.
    pub(super) fn outcome<T>(&self, py: Python<'_>, result: PyResult<T>) -> PyResult<T> {
        let done = self.done.load(Ordering::Relaxed);
        if self.is_bar && 0 < done && done < self.total {
            keep(py, py.import("rsgen._progress").and_then(|bars| bars.call_method0("end")));
        }
        match &self.callable {
            Some(callable) => callable.outcome(result),
            None => result,
        }
    }
}
