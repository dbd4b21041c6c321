//! `rsgen.serve`: the server of the command, from a program in Python.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::abc::is_mapping;
use super::built_in::argument;
use super::errors::{guarded, to_python};
use super::field_values::count;
use super::generator::Generator;
use super::prompts::shown;
use super::signals::polled;
use super::token_trie::TokenTrie;
use super::walk::Walk;
use super::{logging, options};
use rsgen::serve::{Secret, ServeOptions, Server};

/// The keyword arguments.
const NAMES: [&str; 18] = [
    "host",
    "port",
    "api_key",
    "insecure_no_auth",
    "allowed_hosts",
    "cors_origin",
    "served_model_name",
    "tool_parser",
    "reasoning_parser",
    "catalogues",
    "max_requests",
    "max_requests_per_key",
    "max_queue",
    "queue_timeout",
    "grace",
    "strict_api",
    "ui",
    "on_start",
];

/// Serves a model over HTTP, as OpenAI's API does, until Ctrl-C.
///
/// Ctrl-C ends it in an orderly way: it takes no more requests and finishes those that run, for at most
/// `grace` seconds; a second one ends it at once. In another thread than the main one it serves until the
/// process ends.
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
///     tool_parser (ToolParser | None): The form of tool calls, such as `"hermes"`; by default that of the chat template.
///     reasoning_parser (ReasoningParser | None): The form of the model's thinking, such as `"qwen3"`, or `"none"`; by
///         default that of the chat template.
///     catalogues (Mapping[str, TokenTrie] | None): The catalogues that requests may name as their
///         `allowed_sequences`.
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
    signature = (model=None, **options),
    text_signature = "(model=None, *, host='127.0.0.1', port=8000, api_key=None, insecure_no_auth=False, allowed_hosts=(), \
                      cors_origin=None, served_model_name=None, tool_parser=None, reasoning_parser=None, catalogues=None, max_requests=64, max_requests_per_key=None, max_queue=256, \
                      queue_timeout=60.0, grace=30.0, strict_api=False, ui=True, on_start=None)"
)]
pub(super) fn serve(
    py: Python<'_>,
    model: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    logging::install();
    let given = &options.map_or_else(|| PyDict::new(py), Bound::clone);
    options::refuse_unknown("serve", &NAMES, given)?;
    let object = |name: &str| argument::<Bound<'_, PyAny>>(given, name);
    let flag = |name: &str, default| Ok::<_, PyErr>(argument(given, name)?.unwrap_or(default));
    let one_or_many = |name: &str| match object(name)? {
        None => Ok(Vec::new()),
        Some(one) if one.is_instance_of::<PyString>() => Ok(vec![one.extract()?]),
        Some(many) => Walk::default().list::<String>(&many),
    };
    let names = object("allowed_hosts")?.map(|names| Walk::default().list(&names)).transpose()?;
    let number = |name: &str| object(name)?.map(|given| count(&given, name)).transpose();
    let default = ServeOptions::default();
    let port = number("port")?.unwrap_or(default.port.into());
    let rule = |_| config_error!(py, "`port` must be from 0 to 65535, got {port}");
    let options = ServeOptions {
        host: argument(given, "host")?.unwrap_or_else(|| default.host.clone()),
        port: u16::try_from(port).map_err(rule)?,
        api_keys: one_or_many("api_key")?.into_iter().map(Secret::new).collect(),
        insecure_no_auth: flag("insecure_no_auth", false)?,
        allowed_hosts: names.unwrap_or_default(),
        cors_origins: one_or_many("cors_origin")?,
        served_model_name: argument(given, "served_model_name")?,
        tool_parser: argument(given, "tool_parser")?,
        reasoning_parser: argument(given, "reasoning_parser")?,
        catalogues: object("catalogues")?.map(|given| catalogues(&given)).transpose()?.unwrap_or_default(),
        max_requests: number("max_requests")?.unwrap_or(default.max_requests),
        max_requests_per_key: number("max_requests_per_key")?,
        max_queue: number("max_queue")?.unwrap_or(default.max_queue),
        queue_timeout: seconds(given, "queue_timeout", default.queue_timeout)?,
        grace: seconds(given, "grace", default.grace)?,
        strict_api: flag("strict_api", false)?,
        ui: flag("ui", true)?,
        ..default
    };
    let loading = Server::bind(options).and_then(Server::listen).map_err(|error| to_python(py, error))?;
    let generator = match model {
        Some(model) if model.is_instance_of::<Generator>() => model.clone(),
        model => py.get_type::<Generator>().call1((model,))?,
    };
    let generator = (*generator.cast::<Generator>()?.get().inner(py)?).clone();
    let running = loading.start(generator);
    match object("on_start")? {
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

fn seconds(arguments: &Bound<'_, PyDict>, name: &str, default: Duration) -> PyResult<Duration> {
    let Some(given) = argument::<f64>(arguments, name)? else { return Ok(default) };
    Duration::try_from_secs_f64(given).map_err(|_| {
        let rule = "must be a number of seconds, 0 or more";
        config_error!(arguments.py(), "`{name}` {rule}, got {given}")
    })
}

fn catalogues(given: &Bound<'_, PyAny>) -> PyResult<BTreeMap<String, Arc<rsgen_generation::TokenTrie>>> {
    let wrong = || type_error!("`catalogues` must be a dict of names to TokenTrie, got {}", shown(given));
    if !is_mapping(given)? {
        return Err(wrong());
    }
    let (walk, mut catalogues) = (Walk::default(), BTreeMap::new());
    for item in walk.items(&given.call_method0("items")?)? {
        let (name, trie): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
        let (Ok(name), Ok(trie)) = (name.cast::<PyString>(), trie.cast::<TokenTrie>()) else {
            return Err(wrong());
        };
        catalogues.insert(walk.text(name)?, Arc::clone(trie.get().inner()));
    }
    Ok(catalogues)
}
