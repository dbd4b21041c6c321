//! `rsgen.serve`: the server of the command, from a program in Python.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::time::Duration;

use super::errors::{guarded, to_python};
use super::generator::Generator;
use super::logging;
use super::signals::polled;
use super::walk::Walk;
use rsgen::serve::{Secret, ServeOptions, Server};

/// Serves a model over HTTP, as OpenAI's API does, until Ctrl-C.
///
/// Ctrl-C ends it in an orderly way: it takes no more requests and finishes those that run, for at most `grace` seconds; a
/// second one ends it at once. In another thread than the main one it serves until the process ends.
///
/// Args:
///     model (Generator | str | None): A generator, a folder, or the id of a model in the Hub cache; the bundled story
///         model if `None`.
///     host (str): The address to listen on; one that other machines reach needs an `api_key`.
///     port (int): The port; 0 takes a free one.
///     api_key (str | Sequence[str] | None): The key, or keys, of which clients must send one.
///     insecure_no_auth (bool): Lets other machines in without a key.
///     allowed_hosts (Sequence[str]): Further names by which browsers may call the server.
///     cors_origin (str | Sequence[str] | None): The origins whose pages may read answers (CORS); `"*"` is any.
///     served_model_name (str | None): The model's name in the API.
///     max_requests (int): How many requests run at a time.
///     max_requests_per_key (int | None): How many of each key run or wait at a time; no limit if `None`.
///     max_queue (int): How many wait for their turn.
///     queue_timeout (float): Seconds that a request may wait.
///     grace (float): Seconds that requests may go on at the end.
///     strict_api (bool): Refuses unknown fields.
///     ui (bool): Shows the playground at the address: a page for browsers.
///     on_start (Callable[[str], object] | None): Gets the address once the server listens; it is printed if `None`.
///
/// Raises:
///     ConfigError: An option breaks its rule, or the port is in use.
///     LoadError: The model cannot be loaded.
///     InternalError: The server ended itself after many defects of rsgen; start it in a new process.
#[guarded]
#[pyfunction]
#[pyo3(
    name = "serve",
    signature = (
        model=None, *, host="127.0.0.1", port=8000, api_key=None, insecure_no_auth=false, allowed_hosts=None,
        cors_origin=None, served_model_name=None, max_requests=64, max_requests_per_key=None, max_queue=256, queue_timeout=60.0, grace=30.0,
        strict_api=false, ui=true, on_start=None
    ),
    text_signature = "(model=None, *, host='127.0.0.1', port=8000, api_key=None, insecure_no_auth=False, allowed_hosts=(), \
                      cors_origin=None, served_model_name=None, max_requests=64, max_requests_per_key=None, max_queue=256, \
                      queue_timeout=60.0, grace=30.0, strict_api=False, ui=True, on_start=None)"
)]
#[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the function")]
pub(super) fn serve(
    py: Python<'_>,
    model: Option<&Bound<'_, PyAny>>,
    host: &str,
    port: i64,
    api_key: Option<&Bound<'_, PyAny>>,
    insecure_no_auth: bool,
    allowed_hosts: Option<&Bound<'_, PyAny>>,
    cors_origin: Option<&Bound<'_, PyAny>>,
    served_model_name: Option<String>,
    max_requests: i64,
    max_requests_per_key: Option<i64>,
    max_queue: i64,
    queue_timeout: f64,
    grace: f64,
    strict_api: bool,
    ui: bool,
    on_start: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    logging::install();
    let one_or_many = |given: Option<&Bound<'_, PyAny>>| match given {
        None => Ok(Vec::new()),
        Some(one) if one.is_instance_of::<PyString>() => Ok(vec![one.extract()?]),
        Some(many) => Walk::default().list::<String>(many),
    };
    let (keys, origins) = (one_or_many(api_key)?, one_or_many(cors_origin)?);
    let names = allowed_hosts.map(|names| Walk::default().list(names)).transpose()?;
    let port =
        u16::try_from(port).map_err(|_| config_error!(py, "`port` must be from 0 to 65535, got {port}"))?;
    let options = ServeOptions {
        host: host.to_owned(),
        port,
        api_keys: keys.into_iter().map(Secret::new).collect(),
        insecure_no_auth,
        allowed_hosts: names.unwrap_or_default(),
        cors_origins: origins,
        served_model_name,
        max_requests: count(py, "max_requests", max_requests)?,
        max_requests_per_key: max_requests_per_key
            .map(|most| count(py, "max_requests_per_key", most))
            .transpose()?,
        max_queue: count(py, "max_queue", max_queue)?,
        queue_timeout: seconds(py, "queue_timeout", queue_timeout)?,
        grace: seconds(py, "grace", grace)?,
        strict_api,
        ui,
        ..ServeOptions::default()
    };
    let loading = Server::bind(options).and_then(Server::listen).map_err(|error| to_python(py, error))?;
    let generator = match model {
        Some(model) if model.is_instance_of::<Generator>() => model.clone(),
        model => py.get_type::<Generator>().call1((model,))?,
    };
    let generator = generator.cast::<Generator>()?.get().inner().clone();
    let running = loading.start(generator);
    match on_start {
        Some(call) => call.call1((running.url(),)).map(drop)?,
        None => py
            .import("builtins")?
            .getattr("print")?
            .call1((format!("{} on {}; Ctrl-C ends it", running.model(), running.url()),))
            .map(drop)?,
    }
    match polled(py, |interrupted| running.wait(interrupted)) {
        Err(raised) if raised.is_instance_of::<PyKeyboardInterrupt>(py) => {}
        ended => return ended,
    }
    running.stop();
    polled(py, |interrupted| running.wait(interrupted))
}

fn count(py: Python<'_>, name: &str, given: i64) -> PyResult<usize> {
    usize::try_from(given).map_err(|_| config_error!(py, "`{name}` must be 0 or more, got {given}"))
}

fn seconds(py: Python<'_>, name: &str, given: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(given)
        .map_err(|_| config_error!(py, "`{name}` must be a number of seconds, 0 or more, got {given}"))
}
