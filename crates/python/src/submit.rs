//! Calls that run on a thread of the generator's: `submit` as a future, and `agenerate`, `achat` and `ascore` for
//! event loops. `rsgen._calls` makes the futures, and `rsgen._signatures` gives them the signatures of the plain methods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::errors::{guarded, to_python};
use super::exit::attached;
use super::generator::Generator;
use super::signals::cancellable;

/// Ends the work of a call, from any thread.
#[pyclass(module = "rsgen._rsgen", name = "_End", frozen)]
pub(super) struct End(Arc<AtomicBool>);

#[guarded]
#[pymethods]
impl End {
    fn __call__(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Generator {
    /// A call of a method on another thread, as a function of `rsgen._calls` gives it.
    fn called<'py>(
        slf: &Bound<'py, Self>,
        made: &str,
        method: &str,
        arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import("rsgen._calls")?.getattr(made)?.call1((slf, method, arguments.into_pyobject(py)?, keywords))
    }
}

#[guarded]
#[pymethods]
impl Generator {
    /// Generates on another thread, and returns a future at once.
    ///
    /// Takes the arguments of `generate()`. `cancel()` of the future ends the work, also in the middle of a
    /// prompt. Calls that run at the same time share their passes.
    ///
    /// Returns:
    ///     concurrent.futures.Future[GenerationOutput[_T]]: The output, once it is there.
    ///
    /// Example:
    ///     >>> from concurrent.futures import as_completed
    ///     >>> calls = [gen.submit(prompt, max_new_tokens=60) for prompt in ("One day", "Tom had")]
    ///     >>> for call in as_completed(calls):
    ///     ...     print(call.result().text)
    #[pyo3(
        signature = (prompt=None, generation_config=None, **keywords),
        text_signature = "($self, prompt=None, generation_config=None, **fields)"
    )]
    fn submit<'py>(
        slf: &Bound<'py, Self>,
        prompt: Option<Bound<'py, PyAny>>,
        generation_config: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::called(slf, "Call", "generate", (prompt, generation_config), keywords)
    }

    /// Generates while the event loop goes on: `generate()` for `await`.
    ///
    /// Cancelling the task that waits for it ends the work.
    ///
    /// Returns:
    ///     Coroutine[Any, Any, GenerationOutput[_T]]: The output.
    ///
    /// Example:
    ///     >>> async def tell(prompt):
    ///     ...     return (await gen.agenerate(prompt, max_new_tokens=60)).text
    #[pyo3(
        signature = (prompt=None, generation_config=None, **keywords),
        text_signature = "($self, prompt=None, generation_config=None, **fields)"
    )]
    fn agenerate<'py>(
        slf: &Bound<'py, Self>,
        prompt: Option<Bound<'py, PyAny>>,
        generation_config: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::called(slf, "awaited", "generate", (prompt, generation_config), keywords)
    }

    /// Replies to a conversation while the event loop goes on: `chat()` for `await`.
    ///
    /// Cancelling the task that waits for it ends the work.
    ///
    /// Args:
    ///     messages (Conversation | Sequence[Conversation]): A list of messages, or of conversations.
    ///
    /// Returns:
    ///     Coroutine[Any, Any, GenerationOutput[_T]]: The replies.
    #[pyo3(
        signature = (messages, generation_config=None, **keywords),
        text_signature = "($self, messages, generation_config=None, **fields)"
    )]
    fn achat<'py>(
        slf: &Bound<'py, Self>,
        messages: Bound<'py, PyAny>,
        generation_config: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::called(slf, "awaited", "chat", (messages, generation_config), keywords)
    }

    /// Scores texts while the event loop goes on: `score()` for `await`.
    ///
    /// Cancelling the task that waits for it ends the work.
    ///
    /// Args:
    ///     text (Prompt): A text, its ids, or a list of those.
    ///     target (Prompt | None): What follows from the text, of a model with an encoder.
    ///     cache (KeptCache | Sequence[KeptCache] | None): What the texts continue.
    ///     adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
    ///         names with weights.
    ///     top_logprobs (int | None): How many of the most probable tokens are returned in each place.
    ///     progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's texts.
    ///
    /// Returns:
    ///     Coroutine[Any, Any, Any]: What `score()` returns.
    #[pyo3(
        signature = (text, target=None, **keywords),
        text_signature = "($self, text, target=None, **keywords)"
    )]
    fn ascore<'py>(
        slf: &Bound<'py, Self>,
        text: Bound<'py, PyAny>,
        target: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::called(slf, "awaited", "score", (text, target), keywords)
    }

    /// Calls a function, which reports its own failures, on a thread of the generator's.
    #[pyo3(signature = (function))]
    fn _start(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<End> {
        self.inner(py)?.engine().check_process().map_err(|error| to_python(py, error))?;
        let ended = Arc::new(AtomicBool::new(false));
        let (end, mut function) = (End(Arc::clone(&ended)), Some(function));
        let call = move || {
            attached(|py| {
                cancellable(&ended, || function.take().map(|function| function.call0(py).map(drop)))
            });
            // It must not be dropped detached.
            std::mem::forget(function.take());
        };
        self.threads().add(Box::new(call)).map_err(|error| to_python(py, error))?;
        Ok(end)
    }
}
