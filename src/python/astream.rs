//! Streams on an event loop of asyncio.
//!
//! A reader awaits a future of the loop. An executor thread steps the stream and wakes the loop when the next token is
//! there. Nothing is computed before it is asked for, so a slow reader makes nothing pile up. Cancelling a future ends its
//! stream, as it would end an asynchronous generator.

use std::time::Instant;

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use super::errors::{guarded, to_python};
use super::exit::{attached, detached, is_ending};
use super::logging;
use super::signals::INTERVAL;
use super::stream::TokenStream;

/// A future of the next token.
pub(super) fn next<'py>(stream: &Bound<'py, TokenStream>) -> PyResult<Bound<'py, PyAny>> {
    let py = stream.py();
    stream.get().check_process(py)?;
    let (waiter, future) = Waiter::new(stream)?;
    if stream.get().has_ended() {
        future.call_method1("set_exception", (stop(stream),))?;
        return Ok(future);
    }
    future.call_method1("add_done_callback", (end_if_cancelled(stream)?,))?;
    if stream.get().set_awaited(true) {
        return Err(TokenStream::busy());
    }
    stream.get().executor().add(Box::new(move || compute(waiter)), false).map_err(|error| {
        stream.get().set_awaited(false);
        to_python(py, error)
    })?;
    Ok(future)
}

/// Ends a stream; a future of the moment when its work has stopped.
pub(super) fn close<'py>(stream: &Bound<'py, TokenStream>) -> PyResult<Bound<'py, PyAny>> {
    let py = stream.py();
    if stream.get().end(py)? {
        return ready(py.None().bind(py));
    }
    let (waiter, future) = Waiter::new(stream)?;
    let added = stream.get().executor().add(Box::new(move || wait_and_close(waiter)), true);
    added.map_err(|error| to_python(py, error))?;
    Ok(future)
}

/// A future that has its value.
pub(super) fn ready<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let future = event_loop(value.py())?.call_method0("create_future")?;
    future.call_method1("set_result", (value,))?;
    Ok(future)
}

/// A future of a stream, and the event loop that awaits it.
struct Waiter {
    stream: Py<TokenStream>,
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
}

/// Computes the next token.
fn compute(waiter: Waiter) {
    let mut last = Instant::now();
    let mut interrupted = || {
        if is_ending() || last.elapsed() < INTERVAL {
            return is_ending();
        }
        last = Instant::now();
        attached(|py| waiter.loop_is_closed(py)).unwrap_or(true)
    };
    let computed = waiter.stream.get().compute(&mut interrupted);
    waiter.settle(|py, stream| {
        let token = stream.get().take(py, computed);
        logging::flush(py);
        // Before the loop hears of it, which may ask for the next token at once.
        stream.get().set_awaited(false);
        Ok(token?.ok_or_else(|| stop(stream))?.into_pyobject(py)?.into_any())
    });
}

/// Waits for the token that a closed stream computes.
fn wait_and_close(waiter: Waiter) {
    waiter.stream.get().wait();
    waiter.settle(|py, stream| {
        let stream = stream.get();
        // Another thread may be making the output of the stream.
        while !stream.end(py)? {
            detached(py, || stream.wait());
        }
        Ok(py.None().into_bound(py))
    });
}

impl Waiter {
    fn new<'py>(stream: &Bound<'py, TokenStream>) -> PyResult<(Self, Bound<'py, PyAny>)> {
        let event_loop = event_loop(stream.py())?;
        let future = event_loop.call_method0("create_future")?;
        let stream = stream.clone().unbind();
        Ok((Self { stream, event_loop: event_loop.unbind(), future: future.clone().unbind() }, future))
    }

    /// Whether nobody can wait any more.
    fn loop_is_closed(&self, py: Python<'_>) -> bool {
        let closed = self.event_loop.bind(py).call_method0("is_closed");
        closed.and_then(|closed| closed.is_truthy()).unwrap_or(true)
    }

    /// Sets the value of the future on the event loop.
    fn settle(
        self,
        value: impl for<'py> FnOnce(Python<'py>, &Bound<'py, TokenStream>) -> PyResult<Bound<'py, PyAny>>,
    ) {
        // What refers to Python must not be dropped detached, nor when the interpreter is ending.
        let mut this = Some(self);
        attached(|py| {
            let Some(Self { stream, event_loop, future }) = this.take() else { return };
            let (value, is_error) = match guarded(|| value(py, stream.bind(py))) {
                Ok(value) => (value, false),
                Err(error) => (error.into_value(py).into_bound(py).into_any(), true),
            };
            // Whoever gets the value finds the stream referred to by nobody but themselves.
            drop(stream);
            let settled = wrap_pyfunction!(settle, py).and_then(|settle| {
                event_loop.bind(py).call_method1("call_soon_threadsafe", (settle, future, value, is_error))
            });
            // A loop that has been closed meanwhile wants nothing any more.
            drop(settled);
        });
        std::mem::forget(this);
    }
}

/// Runs on the loop. A future that was cancelled meanwhile stays as it is.
#[pyfunction]
fn settle(future: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, is_error: bool) -> PyResult<()> {
    guarded(|| {
        if !future.call_method0("done")?.is_truthy()? {
            future.call_method1(if is_error { "set_exception" } else { "set_result" }, (value,))?;
        }
        Ok(())
    })
}

/// What the loop calls when a future is done.
fn end_if_cancelled<'py>(stream: &Bound<'py, TokenStream>) -> PyResult<Bound<'py, PyCFunction>> {
    let (py, stream) = (stream.py(), stream.clone().unbind());
    PyCFunction::new_closure(
        py,
        None,
        None,
        move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
            guarded(|| {
                if arguments.get_item(0)?.call_method0("cancelled")?.is_truthy()? {
                    stream.get().end(arguments.py())?;
                }
                Ok(())
            })
        },
    )
}

/// The end, as an asynchronous iterator tells it.
fn stop(stream: &Bound<'_, TokenStream>) -> PyErr {
    PyStopAsyncIteration::new_err((stream.get().finished(stream.py()),))
}

fn event_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("asyncio")?.call_method0("get_running_loop")
}
