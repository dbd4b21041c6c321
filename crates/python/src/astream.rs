//! Streams on an event loop of asyncio.
//!
//! A reader awaits a future of the loop. An executor thread steps the stream and wakes the loop when the next
//! token is ready. Tokens are computed on demand, so a slow reader needs no buffer. Cancelling a future ends
//! its stream, as it would end an asynchronous generator.
//!
//! The tokens of a pass come from many threads at about the same time. The first one wakes the loop, and the
//! loop finds the others when it comes: so the others neither attach to Python nor wake anybody.

use std::sync::{Arc, Weak};
use std::time::Instant;

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use super::errors::{guarded, to_python};
use super::exit::{attached, detached, is_ending};
use super::signals::INTERVAL;
use super::stream::TokenStream;
use super::{logging, results};
use crate::executor::{Executor, Task};
use rsgen::engine;
use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;

/// The threads that step the streams of a generator, and the results that an event loop has been asked to
/// collect.
#[derive(Default)]
pub(super) struct LoopThreads {
    executor: Executor,
    results: Mutex<Weak<Results>>,
}

impl LoopThreads {
    /// Runs a task, which reports its own failures, on one of the threads.
    ///
    /// # Errors
    /// `Capacity` when the operating system refuses a thread.
    pub(super) fn add(&self, task: Task) -> Result<()> {
        self.executor.add(task, false)
    }
}

/// A future of the next token.
pub(super) fn next<'py>(stream: &Bound<'py, TokenStream>) -> PyResult<Bound<'py, PyAny>> {
    let py = stream.py();
    stream.get().check_process(py)?;
    let (waiter, future) = Waiter::new(stream)?;
    if stream.get().has_ended() {
        let ended = stream.get().check_generator(py).err().unwrap_or_else(|| stop(stream));
        future.call_method1("set_exception", (ended,))?;
        return Ok(future);
    }
    future.call_method1("add_done_callback", (end_if_cancelled(stream)?,))?;
    if stream.get().set_awaited(true) {
        return Err(TokenStream::busy());
    }
    stream.get().threads().executor.add(Box::new(move || compute(waiter)), false).map_err(|error| {
        stream.get().set_awaited(false);
        to_python(py, error)
    })?;
    Ok(future)
}

/// Closes a stream; the future is done when its work has stopped.
pub(super) fn close<'py>(stream: &Bound<'py, TokenStream>) -> PyResult<Bound<'py, PyAny>> {
    let py = stream.py();
    if stream.get().end(py)? {
        return ready(py.None().bind(py));
    }
    let (waiter, future) = Waiter::new(stream)?;
    let added = stream.get().threads().executor.add(Box::new(move || wait_and_close(waiter)), true);
    added.map_err(|error| to_python(py, error))?;
    Ok(future)
}

/// A completed future.
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

/// The result of a future.
enum Outcome {
    Token(engine::StreamedToken),
    Other(PyResult<Py<PyAny>>),
}

/// Results for one event loop, which collects them all at once. Threads drop it attached to Python.
struct Results {
    /// The address of the loop.
    event_loop: usize,
    /// `None` once the loop has collected them.
    waiting: Mutex<Option<Vec<(Waiter, Outcome)>>>,
}

/// The callback by which an event loop collects results.
#[pyclass(frozen)]
struct Collect(Arc<Results>);

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
    match waiter.stream.get().compute(&mut interrupted) {
        Ok(Some(token)) => waiter.hand_over(Outcome::Token(token)),
        // The end of a stream makes its output: not on the loop.
        ended => waiter.end(|py, stream| {
            let token = stream.get().take(py, ended)?;
            token.ok_or_else(|| stop(stream))
        }),
    }
}

/// Waits for the token that a closed stream computes.
fn wait_and_close(waiter: Waiter) {
    waiter.stream.get().wait();
    waiter.end(|py, stream| {
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

    /// Whether the event loop is closed. It is woken besides: the kernel of a notebook cancels a cell in a signal
    /// handler, by `call_soon`, which a loop that sleeps does not see.
    fn loop_is_closed(&self, py: Python<'_>) -> bool {
        let event_loop = self.event_loop.bind(py);
        let woken = event_loop
            .getattr("is_closed")
            .and_then(|nothing| event_loop.call_method1("call_soon_threadsafe", (nothing,)));
        woken.is_err()
    }

    /// Computes a result attached to Python, and delivers it.
    fn end(
        self,
        value: impl for<'py> FnOnce(Python<'py>, &Bound<'py, TokenStream>) -> PyResult<Bound<'py, PyAny>>,
    ) {
        // References to Python objects must not be dropped detached, nor while the interpreter finalizes.
        let mut this = Some(self);
        attached(|py| {
            let Some(this) = this.take() else { return };
            let value = guarded(|| value(py, this.stream.bind(py))).map(Bound::unbind);
            this.hand_over(Outcome::Other(value));
        });
        std::mem::forget(this);
    }

    /// Queues a result for the event loop, and schedules a collection unless one is scheduled already.
    fn hand_over(self, outcome: Outcome) {
        let threads = Arc::clone(self.stream.get().threads());
        let event_loop = self.event_loop.as_ptr().addr();
        let mut last = threads.results.lock();
        let known = last.upgrade();
        let result = match &known {
            Some(known) if known.event_loop == event_loop => known.add((self, outcome)).err(),
            _ => Some((self, outcome)),
        };
        let new = result.map(|result| {
            let waiting = Mutex::new(Some(vec![result]));
            let new = Arc::new(Results { event_loop, waiting });
            *last = Arc::downgrade(&new);
            new
        });
        drop(last);
        // The loop may have closed and dropped its queue meanwhile.
        let (mut new, mut dropped) = (new, known.and_then(Arc::into_inner));
        if new.is_some() || dropped.is_some() {
            attached(|py| {
                drop(dropped.take());
                // A loop that was closed meanwhile refuses it.
                new.take().map(|new| Collect(new).ask(py));
            });
        }
        std::mem::forget((new, dropped));
    }

    /// Sets the value of the future, unless it was cancelled meanwhile.
    fn settle(self, py: Python<'_>, outcome: Outcome) -> PyResult<()> {
        let Self { stream, event_loop: _, future } = self;
        // Before the reader is woken, which may await the next token at once.
        stream.get().set_awaited(false);
        // The reader of the value may hold the last reference to the stream.
        drop(stream);
        let future = future.bind(py);
        if future.call_method0("done")?.is_truthy()? {
            return Ok(());
        }
        let value = match outcome {
            Outcome::Token(token) => results::streamed_token(py, token),
            Outcome::Other(value) => value.map(|value| value.into_bound(py)),
        };
        match value {
            Ok(value) => future.call_method1("set_result", (value,))?,
            Err(error) => future.call_method1("set_exception", (error.into_value(py),))?,
        };
        Ok(())
    }
}

impl Results {
    /// Queues a result; returns it if the queue was collected already.
    fn add(&self, result: (Waiter, Outcome)) -> Result<(), (Waiter, Outcome)> {
        match &mut *self.waiting.lock() {
            Some(waiting) => {
                waiting.push(result);
                Ok(())
            }
            None => Err(result),
        }
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        // Of a loop that has been closed: another one may read the streams.
        for (waiter, _) in self.waiting.lock().iter().flatten() {
            waiter.stream.get().set_awaited(false);
        }
    }
}

impl Collect {
    /// Asks the event loop to collect the results.
    fn ask(self, py: Python<'_>) -> PyResult<()> {
        let waiting = self.0.waiting.lock();
        let first = waiting.iter().flatten().next().map(|(waiter, _)| waiter.event_loop.clone_ref(py));
        drop(waiting);
        first.map_or(Ok(()), |first| first.call_method1(py, "call_soon_threadsafe", (self,)).map(drop))
    }
}

#[guarded]
#[pymethods]
impl Collect {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let waiting = self.0.waiting.lock().take();
        logging::flush(py);
        let settled = waiting.into_iter().flatten().map(|(waiter, outcome)| waiter.settle(py, outcome));
        settled.fold(Ok(()), Result::and)
    }
}

/// The done callback of a future: ends the stream if the future was cancelled.
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

/// The `StopAsyncIteration` of a stream.
fn stop(stream: &Bound<'_, TokenStream>) -> PyErr {
    PyStopAsyncIteration::new_err((stream.get().finished(stream.py()),))
}

fn event_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()
}
