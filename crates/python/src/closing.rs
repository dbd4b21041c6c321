//! Closing a generator: its memory is returned although Python objects still refer to it.
//!
//! Work that runs holds the model until it notices, at its next poll. What waits for its reader, streams and
//! batches, is known by weak references and ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyTuple, PyWeakrefMethods, PyWeakrefReference};

use super::drop_detached::DropDetached;
use super::errors::{exception, guarded, input_error, to_python};
use super::exit::detached;
use super::generator::Generator;
use super::opening::Opening;
use super::signals::polled;
use super::stream::TokenStream;
use rsgen::generator;
use rsgen_core::error::{Error, ErrorKind};
use rsgen_core::sync::Mutex;

/// The longest wait for work that ends.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What holds the model while nobody computes.
pub(super) trait Closable {
    /// Ends its work, at once unless another thread computes it.
    fn close(&self, py: Python<'_>) -> PyResult<()>;
}

/// A weak reference to such an object, and how to close it.
struct Work {
    object: Py<PyWeakrefReference>,
    close: fn(&Bound<'_, PyAny>) -> PyResult<()>,
}

/// A generator of the layer below until it is closed, and the works that hold it.
pub(super) struct Opened {
    state: Mutex<State>,
    name: String,
    works: Mutex<Works>,
}

enum State {
    /// It is opened at its first use.
    Later(Arc<Opening>),
    /// A thread opens it.
    Opening,
    Open(DropDetached),
    Closed,
}

/// Puts it back to be opened later, unless the opening has succeeded or it was closed meanwhile.
struct OpeningHere<'a> {
    state: &'a Mutex<State>,
    opening: Arc<Opening>,
}

impl Drop for OpeningHere<'_> {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Opening) {
            *state = State::Later(Arc::clone(&self.opening));
        }
    }
}

#[derive(Default)]
struct Works {
    all: Vec<Work>,
    /// From how many on those that are gone are removed.
    limit: usize,
}

impl Opened {
    pub(super) fn new(generator: generator::Generator) -> Self {
        let name = generator.name().to_owned();
        let state = Mutex::new(State::Open(DropDetached::new(generator)));
        Self { state, name, works: Mutex::default() }
    }

    /// One that is opened at its first use.
    pub(super) fn later(opening: Opening) -> Self {
        let name = opening.name().to_owned();
        Self { state: Mutex::new(State::Later(Arc::new(opening))), name, works: Mutex::default() }
    }

    /// The folder or id that the model was loaded from.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.state.lock(), State::Closed)
    }

    /// The generator, if it is open.
    pub(super) fn if_open(&self) -> Option<DropDetached> {
        match &*self.state.lock() {
            State::Open(generator) => Some(generator.clone()),
            _ => None,
        }
    }

    /// The generator, which is opened now if it is not yet.
    ///
    /// # Errors
    /// When it is closed, or cannot be opened; the next use then tries again.
    pub(super) fn get(&self, py: Python<'_>) -> PyResult<DropDetached> {
        loop {
            let opening = {
                let mut state = self.state.lock();
                match &*state {
                    State::Open(generator) => return Ok(generator.clone()),
                    State::Closed => return Err(closed(py)),
                    State::Opening => None,
                    State::Later(opening) => {
                        let opening = Arc::clone(opening);
                        *state = State::Opening;
                        Some(opening)
                    }
                }
            };
            if let Some(opening) = opening {
                return self.open(py, &OpeningHere { state: &self.state, opening });
            }
            polled(py, |interrupted| {
                while matches!(*self.state.lock(), State::Opening) {
                    if interrupted() {
                        return Err(Error::cancelled());
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            })?;
        }
    }

    fn open(&self, py: Python<'_>, here: &OpeningHere<'_>) -> PyResult<DropDetached> {
        let opened = DropDetached::new(here.opening.open(py)?);
        let mut state = self.state.lock();
        if matches!(*state, State::Opening) {
            *state = State::Open(opened.clone());
            return Ok(opened);
        }
        drop(state);
        Err(closed(py))
    }

    /// Makes an object of `work`, which is closed together with the generator.
    pub(super) fn keep<T>(&self, py: Python<'_>, work: T) -> PyResult<Py<T>>
    where
        T: Closable + Into<PyClassInitializer<T>> + PyClass<Frozen = True> + Sync,
    {
        let object = Bound::new(py, work)?;
        let reference = PyWeakrefReference::new(object.as_any())?.unbind();
        let mut works = self.works.lock();
        if works.all.len() >= works.limit {
            works.all.retain(|work| work.object.bind(py).upgrade().is_some());
            works.limit = (2 * works.all.len()).max(64);
        }
        works
            .all
            .push(Work { object: reference, close: |object| object.cast::<T>()?.get().close(object.py()) });
        drop(works);
        if self.is_closed() {
            object.get().close(py)?;
        }
        Ok(object.unbind())
    }

    /// Ends all work and drops the model. Returns once its memory is free, or after a while when a call cannot end,
    /// such as one whose callback closes the generator.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let before = std::mem::replace(&mut *self.state.lock(), State::Closed);
        let State::Open(generator) = before else { return Ok(()) };
        generator.close();
        let works = std::mem::take(&mut self.works.lock().all);
        let closed = works.iter().filter_map(|work| Some((work.close)(&work.object.bind(py).upgrade()?)));
        let closed = closed.fold(Ok(()), Result::and);
        let (lifetime, here) = (generator.engine().lifetime(), generator.engine().check_process().is_ok());
        drop(generator);
        let start = Instant::now();
        detached(py, || {
            while here && lifetime.strong_count() > 0 && start.elapsed() < TIMEOUT {
                thread::sleep(Duration::from_millis(1));
            }
            rsgen_kernels::return_freed_memory();
        });
        closed
    }
}

fn closed(py: Python<'_>) -> PyErr {
    input_error(py, "the Generator is closed; open another: rsgen.Generator(path)")
}

impl Closable for TokenStream {
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.has_ended() {
            self.orphaned.store(true, Ordering::Relaxed);
            self.end(py)?;
        }
        Ok(())
    }
}

impl TokenStream {
    pub(super) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check().map_err(|error| to_python(py, error))
    }

    /// Returns an error if the generator was closed before the stream had ended.
    pub(super) fn check_generator(&self, py: Python<'_>) -> PyResult<()> {
        let rule = "the Generator was closed before the stream had ended; its output holds the tokens so far";
        let is_orphaned = self.orphaned.load(Ordering::Relaxed);
        if is_orphaned { Err(exception(py, ErrorKind::Cancelled, rule)) } else { Ok(()) }
    }
}

#[guarded]
#[pymethods]
impl Generator {
    /// Returns the memory of the model and its KV cache at once, whatever still refers to this object.
    ///
    /// Calls and streams that run, in any thread or task, end with a `CancelledError`, and later ones raise
    /// `InputError`. Outputs, the tokenizer and a given assistant can still be used. Closing twice has no effect.
    /// A server that runs on it ends its requests, and keeps the memory until it ends itself; so does a generator
    /// that it drafts for.
    ///
    /// Example:
    ///     >>> with rsgen.Generator(num_threads=1) as own:
    ///     ...     out = own.generate("Once upon a time", max_new_tokens=60)
    ///     >>> out.text, own.closed
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = self.opened().close(py);
        let assistant = self.own_assistant(py).map_or(Ok(()), |assistant| assistant.get().opened().close(py));
        closed.and(assistant)
    }

    /// bool: Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.opened().is_closed()
    }

    /// Returns the generator, for `with`.
    ///
    /// Returns:
    ///     Self: The generator.
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().inner(slf.py())?;
        Ok(slf)
    }

    /// Closes the generator.
    ///
    /// Args:
    ///     exception (Any): The class, value and traceback of an exception that ends the block.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let _ = exception;
        self.close(exception.py())
    }
}
