//! The class `TokenStream`: a request that works while it is iterated.
//!
//! A stream behaves as a Python generator does: its last `StopIteration` carries the finished output, `close`
//! ends it, and dropping it gives its cache blocks back at once. On an event loop it is an asynchronous
//! iterator besides; see [`astream`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyStopIteration, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::PyType;

use super::astream::LoopThreads;
use super::errors::{caught, guarded, to_python};
use super::exit::detached;
use super::held::Held;
use super::output::GenerationOutput;
use super::output_type::TypedText;
use super::signals::interruptible;
use super::tool_calls::Reading;
use super::{astream, logging, pickle, results};
use rsgen::engine::trace::TimedEvent;
use rsgen::engine::{self, Interrupt};
use rsgen_core::error::{Error, Result};
use rsgen_core::process::OwnerPid;
use rsgen_core::sync::Mutex;

/// The longest wait for the output of a closed stream.
const CLOSING_TIMEOUT: Duration = Duration::from_millis(250);

/// The tokens of a request, as they are generated.
///
/// With beams they are those of the best sequence: a token comes once nothing can change it any
/// more, and the last ones at the end.
///
/// It is an iterator, a context manager and a generator in Python's sense, and with asyncio an
/// asynchronous iterator and context manager. The model works while a token is waited for.
/// Leaving the stream ends the work and frees its cache blocks at once: by `break` when nothing
/// else refers to it, by the end of a `with` block, or by `close()`.
///
/// In a generator function, `output = yield from stream` gives the finished output. An exception
/// of a callback, or Ctrl-C, ends the stream, and so does cancelling the task that waits for a
/// token. One reader at a time: a second one gets a `ValueError`.
///
/// Example:
///     >>> with gen.stream("Once upon a time", max_new_tokens=60) as stream:
///     ...     for token in stream:
///     ...         print(token, end="", flush=True)
///     >>> stream.output.usage
///     Usage(prompt_tokens=5, cached_prompt_tokens=0, generated_tokens=60)
#[pyclass(module = "rsgen", name = "TokenStream", frozen, weakref)]
pub(super) struct TokenStream {
    /// Locked while a token is computed. Threads attached to Python never wait for it: to them a locked state
    /// is a second reader, or a cancellation.
    state: Mutex<State>,
    /// The cancel flag of the current work: of opening, then of the engine's stream.
    pub(super) cancel: Mutex<Arc<AtomicBool>>,
    /// Whether an event loop waits for the next token.
    awaited: AtomicBool,
    /// Whether the stream was closed; readers compute nothing from then on.
    closed: AtomicBool,
    /// Whether the generator was closed before the stream had ended.
    pub(super) orphaned: AtomicBool,
    /// The callbacks of the request.
    pub(super) held: Held,
    /// The output of a stream that has ended without an error. Its lock is taken as those of slots are.
    output: Mutex<Option<Py<GenerationOutput>>>,
    pub(super) typed: TypedText,
    threads: Arc<LoopThreads>,
    pub(super) owner: OwnerPid,
    records_events: bool,
}

enum State {
    /// Opened by the first reader; `None` when that has failed.
    Unopened(Option<Open>),
    Running(Box<engine::TokenStream>),
    Ended,
}

/// Opens the engine's stream of this one, on any thread.
pub(super) type Open =
    Box<dyn FnOnce(&TokenStream, &mut Interrupt<'_>) -> Result<engine::TokenStream> + Send>;

/// The next token, or the end.
pub(super) type Computed = Result<Option<engine::StreamedToken>>;

impl TokenStream {
    /// `held` are the request's callbacks, and `threads` those of the generator.
    pub(super) fn new(
        stream: engine::TokenStream,
        held: Held,
        reading: Reading,
        threads: &Arc<LoopThreads>,
    ) -> Self {
        let (cancel, records_events) = (stream.cancel_flag(), stream.records_events());
        Self::with(State::Running(Box::new(stream)), cancel, records_events, held, Some(reading), threads)
    }

    /// A stream that its first reader opens; without `reading`, what opens it sets that.
    pub(super) fn unopened(
        open: Open,
        records_events: bool,
        held: Held,
        reading: Option<Reading>,
        threads: &Arc<LoopThreads>,
    ) -> Self {
        Self::with(State::Unopened(Some(open)), Arc::default(), records_events, held, reading, threads)
    }

    fn with(
        state: State,
        cancel: Arc<AtomicBool>,
        records_events: bool,
        held: Held,
        reading: Option<Reading>,
        threads: &Arc<LoopThreads>,
    ) -> Self {
        Self {
            cancel: Mutex::new(cancel),
            records_events,
            state: Mutex::new(state),
            awaited: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            held,
            output: Mutex::default(),
            typed: TypedText::new(reading),
            threads: Arc::clone(threads),
            owner: OwnerPid::current(),
        }
    }

    /// The next token, or `None` at the end.
    fn next_token<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.check_process(py)?;
        // Loops in C, such as `list(stream)`, run no handlers between the tokens.
        py.check_signals()?;
        let Some(mut state) = self.state.try_lock() else {
            if self.closed.load(Ordering::Relaxed) {
                detached(py, || self.wait());
                return Ok(None);
            }
            return Err(Self::busy());
        };
        if matches!(&*state, State::Ended) {
            return self.check_generator(py).map(|()| None);
        }
        let reading: &mut State = &mut state;
        let next = interruptible(py, |interrupted| self.next_of(reading, interrupted));
        logging::flush(py);
        self.take_next(py, &mut state, next)
    }

    /// The event of this number, or `None` after the last one.
    pub(super) fn event(&self, py: Python<'_>, seq: usize) -> PyResult<Option<TimedEvent>> {
        self.check_process(py)?;
        py.check_signals()?;
        let Some(mut state) = self.state.try_lock() else { return Err(Self::busy()) };
        if matches!(&*state, State::Ended) {
            self.check_generator(py)?;
            let events = self.finished(py).and_then(|output| output.get().output.events.clone());
            return Ok(events.and_then(|events| events.into_iter().nth(seq)));
        }
        let reading: &mut State = &mut state;
        let next = interruptible(py, |interrupted| match self.opened(reading, interrupted)? {
            Some(stream) => Ok(stream.event(seq, interrupted)?.cloned()),
            None => Ok(None),
        });
        logging::flush(py);
        if !matches!(next, Ok(Some(_))) {
            self.end_state(py, &mut state)?;
        }
        next
    }

    pub(super) fn records_events(&self) -> bool {
        self.records_events
    }

    /// The next token, computed on a thread that is detached from Python.
    pub(super) fn compute(&self, interrupted: &mut Interrupt<'_>) -> Computed {
        let mut state = self.state.lock();
        caught(|| self.next_of(&mut state, interrupted)).flatten()
    }

    fn next_of(&self, state: &mut State, interrupted: &mut Interrupt<'_>) -> Computed {
        let Some(stream) = self.opened(state, interrupted)? else { return Ok(None) };
        let next = stream.next_token(interrupted)?;
        self.typed.add(next.as_ref());
        Ok(next)
    }

    /// The stream of the engine, which the first reader opens; `None` after the end.
    fn opened<'a>(
        &self,
        state: &'a mut State,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Option<&'a mut engine::TokenStream>> {
        if let State::Unopened(open) = state {
            let open = open.take().ok_or_else(Error::cancelled)?;
            let stopped = Arc::clone(&self.cancel.lock());
            let stream = open(self, &mut || stopped.load(Ordering::Relaxed) || interrupted())?;
            // From now on cancelling cancels the engine's stream.
            *self.cancel.lock() = stream.cancel_flag();
            if stopped.load(Ordering::Relaxed) {
                return Err(Error::cancelled());
            }
            *state = State::Running(Box::new(stream));
        }
        Ok(if let State::Running(stream) = state { Some(stream) } else { None })
    }

    /// The result of [`TokenStream::compute`] as a Python object.
    pub(super) fn take<'py>(
        &self,
        py: Python<'py>,
        computed: Computed,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let next = computed.map_err(|error| to_python(py, error));
        match self.state.try_lock() {
            Some(mut state) => self.take_next(py, &mut state, next),
            None => next?.map(|token| results::streamed_token(py, token)).transpose(),
        }
    }

    /// Cancels the work, immediately or at the end of the current step. Returns whether it has ended.
    pub(super) fn end(&self, py: Python<'_>) -> PyResult<bool> {
        if let Some(mut state) = self.state.try_lock() {
            self.closed.store(true, Ordering::Relaxed);
            return self.end_state(py, &mut state).map(|()| true);
        }
        self.cancel.lock().store(true, Ordering::Relaxed);
        // In a forked process no thread continues the step.
        Ok(!self.owner.is_current())
    }

    /// Waits for the current step. Callers must be detached from Python.
    pub(super) fn wait(&self) {
        drop(self.state.lock());
    }

    /// Whether the stream has ended or was cancelled.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.state.try_lock();
        state.map_or_else(
            || self.cancel.lock().load(Ordering::Relaxed),
            |state| matches!(&*state, State::Ended),
        )
    }

    /// Sets whether an event loop awaits the next token; returns the previous value.
    pub(super) fn set_awaited(&self, awaited: bool) -> bool {
        self.awaited.swap(awaited, Ordering::Relaxed)
    }

    pub(super) fn threads(&self) -> &Arc<LoopThreads> {
        &self.threads
    }

    pub(super) fn busy() -> PyErr {
        PyValueError::new_err(
            "the stream is being read already, by another thread or task or around this callback",
        )
    }

    /// The output, if there is one.
    pub(super) fn finished(&self, py: Python<'_>) -> Option<Py<GenerationOutput>> {
        self.output.lock().as_ref().map(|output| output.clone_ref(py))
    }

    fn or_stop<'py>(&self, py: Python<'py>, token: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        token.ok_or_else(|| PyStopIteration::new_err((self.finished(py),)))
    }

    /// Returns a token; the end or an error ends the stream.
    fn take_next<'py>(
        &self,
        py: Python<'py>,
        state: &mut State,
        next: PyResult<Option<engine::StreamedToken>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Ok(Some(token)) = next {
            return results::streamed_token(py, token).map(Some);
        }
        let ended = self.end_state(py, state);
        next?;
        ended.map(|()| None)
    }

    /// Ends the work and keeps the output, if there is one.
    fn end_state(&self, py: Python<'_>, state: &mut State) -> PyResult<()> {
        let output = match std::mem::replace(state, State::Ended) {
            State::Ended => return Ok(()),
            State::Unopened(open) => detached(py, || {
                drop(open);
                None
            }),
            State::Running(mut stream) => detached(py, || {
                stream.close();
                stream.into_output().ok()
            }),
        };
        self.held.clear();
        let made = |output| {
            logging::ended("stream", &output);
            Py::new(py, GenerationOutput::new(py, output, self.typed.reading(py))?)
        };
        *self.output.lock() = output.map(made).transpose()?;
        logging::flush(py);
        Ok(())
    }
}

#[guarded]
#[pymethods]
impl TokenStream {
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.output.try_lock().map_or(Ok(()), |output| visit.call(&*output))?;
        self.typed.traverse(&visit)?;
        self.held.traverse(visit)
    }

    fn __clear__(&self) {
        self.held.clear();
        let output = self.output.lock().take();
        drop(output);
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.or_stop(py, self.next_token(py)?)
    }

    /// Returns the next token, as a generator does.
    ///
    /// Args:
    ///     value (None): Must be None: a stream takes no values.
    ///
    /// Returns:
    ///     StreamedToken: The token.
    #[pyo3(signature = (value, /))]
    fn send<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if !value.is_none() {
            return Err(PyTypeError::new_err(
                "a TokenStream takes no values; send(None) gives the next token",
            ));
        }
        self.or_stop(py, self.next_token(py)?)
    }

    /// Closes the stream and raises the exception, as a generator does.
    ///
    /// Args:
    ///     typ (Any): An exception, or its class.
    ///     val (Any): The exception, or an argument for its class.
    ///     tb (Any): A traceback.
    ///
    /// Returns:
    ///     StreamedToken: Never: it raises.
    #[pyo3(signature = (typ, val=None, tb=None, /))]
    fn throw(
        &self,
        py: Python<'_>,
        typ: &Bound<'_, PyAny>,
        val: Option<&Bound<'_, PyAny>>,
        tb: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
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
    }

    /// Ends the work. Rows that have not ended are marked as "cancelled" in the output.
    ///
    /// Called from another thread while a token is computed, it ends that computation with
    /// `CancelledError`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py).map(|_| ())
    }

    /// Returns the stream, for `with`.
    ///
    /// Returns:
    ///     Self: The stream.
    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Closes the stream.
    ///
    /// Args:
    ///     exc_type (type[BaseException] | None): The class of the exception that ends the block.
    ///     exc_value (BaseException | None): The exception.
    ///     traceback (TracebackType | None): Its traceback.
    #[pyo3(signature = (exc_type=None, exc_value=None, traceback=None, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (exc_type, exc_value, traceback);
        self.end(py).map(|_| ())
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        astream::next(slf)
    }

    /// Ends the work and waits until it has ended.
    ///
    /// Returns:
    ///     Future[None]: Done when the work has ended.
    fn aclose<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        astream::close(slf)
    }

    /// Returns the stream, for `async with`.
    ///
    /// Returns:
    ///     Future[Self]: The stream.
    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        astream::ready(slf.as_any())
    }

    /// Closes the stream.
    ///
    /// Args:
    ///     exc_type (type[BaseException] | None): The class of the exception that ends the block.
    ///     exc_value (BaseException | None): The exception.
    ///     traceback (TracebackType | None): Its traceback.
    ///
    /// Returns:
    ///     Future[None]: Done when the work has ended.
    #[pyo3(signature = (exc_type=None, exc_value=None, traceback=None, /))]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        exc_type: Option<&Bound<'py, PyAny>>,
        exc_value: Option<&Bound<'py, PyAny>>,
        traceback: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (exc_type, exc_value, traceback);
        astream::close(slf)
    }

    /// GenerationOutput[_T_co] | None: The output of a stream that has ended, was closed or was interrupted.
    ///
    /// None before that, and after an error. It begins with the tokens that the stream gave; with
    /// beams it may go on beyond them.
    #[getter]
    fn output(&self, py: Python<'_>) -> Option<Py<GenerationOutput>> {
        // A task that was cancelled while it closed the stream did not await the end of the work. In a
        // callback of the stream the wait times out.
        if self.cancel.lock().load(Ordering::Relaxed) && self.owner.is_current() {
            let start = Instant::now();
            while !self.end(py)? && start.elapsed() < CLOSING_TIMEOUT {
                detached(py, || thread::sleep(Duration::from_millis(1)));
            }
        }
        self.finished(py)
    }

    /// Raises `TypeError`: a stream is work in progress.
    ///
    /// Returns:
    ///     NoReturn: Never.
    fn __reduce__(&self) -> PyResult<()> {
        let remedy = "pickle its output when it has ended, or the Generator and the arguments of the call";
        Err(pickle::refused("TokenStream", "is work in progress", remedy))
    }

    fn __repr__(&self) -> &'static str {
        match self.state.try_lock().as_deref() {
            Some(State::Ended) if self.output.lock().is_some() => "<TokenStream, ended>",
            Some(State::Ended) => "<TokenStream, failed>",
            Some(_) | None => "<TokenStream, running>",
        }
    }
}
