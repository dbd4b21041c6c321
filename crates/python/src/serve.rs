//! `rsgen.serve`: the server of the command, from a program in Python.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::abc::is_mapping;
use super::built_in::argument;
use super::config::warn;
use super::errors::{guarded, to_python};
use super::field_values::count;
use super::generator::Generator;
use super::prompts::shown;
use super::signals::{interruptible, polled};
use super::token_trie::TokenTrie;
use super::walk::Walk;
use super::{logging, options};
use rsgen::serve::{
    LoadOnStartup, LogFormat, ModelPath, Secret, ServeOptions, ServedModel, Server, check_loaded_on_startup,
    idle_time,
};

/// The keyword arguments that say how models are opened, which are those of `Generator`.
const LOADING: [&str; 9] = [
    "dtype",
    "compute_dtype",
    "kv_dtype",
    "num_threads",
    "kv_cache_bytes",
    "prefix_caching",
    "generation_config",
    "revision",
    "cache_dir",
];

/// The other keyword arguments.
const NAMES: [&str; 28] = [
    "load_on_startup",
    "models_max",
    "models_memory",
    "keep_alive",
    "lora_modules",
    "max_queue_per_key",
    "max_tokens_per_key",
    "max_stored_responses",
    "max_stored_bytes",
    "log_format",
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
///     model (Generator | StrPath | Mapping[str, Generator | StrPath] | None): A generator, a path of a
///         folder, or the id of a model in the Hub cache; the bundled story model if `None`. Several models are a dict of
///         names, by which requests choose one.
///     host (str): The address to listen on; one that other machines reach needs an `api_key`.
///     port (int): The port; 0 takes a free one.
///     api_key (str | Sequence[str] | Mapping[str, str] | None): The key, or keys, of which clients must send one; a dict has
///         them by the names that the log gives them.
///     insecure_no_auth (bool): Lets other machines in without a key.
///     allowed_hosts (Sequence[str]): Further names by which browsers may call the server.
///     cors_origin (str | Sequence[str] | None): The origins whose pages may read answers (CORS); `"*"` is any.
///     served_model_name (str | None): The model's name in the API.
///     load_on_startup (Literal["first", "all", "none"]): Which of the models that are given as paths are loaded before the
///         first request. The others are loaded with their first request.
///     models_max (int | None): How many models are loaded at a time; no limit if `None`.
///     models_memory (int | None): The bytes for all loaded models; if `None`, what the system has left.
///     keep_alive (float | str | None): How long a model stays loaded without a request, in seconds or as in `"5m"`; until
///         another one needs its memory if `None`.
///     lora_modules (Mapping[str, str | os.PathLike[str]] | None): LoRA adapters beside the first model, which `model` of a
///         request may name, by their names; beside another model as `"model:name"`.
///     tool_parser (ToolParser | None): The form of tool calls, such as `"hermes"`; by default that of the chat template.
///     reasoning_parser (ReasoningParser | None): The form of the model's thinking, such as `"qwen3"`, or `"none"`; by
///         default that of the chat template.
///     catalogues (Mapping[str, TokenTrie] | None): The catalogues that requests may name as their
///         `allowed_sequences`.
///     max_requests (int): How many requests run at a time.
///     max_requests_per_key (int | None): How many of each key run or wait at a time; no limit if `None`.
///     max_queue (int): How many wait for their turn.
///     max_queue_per_key (int | None): How many of each key wait; no limit if `None`.
///     max_tokens_per_key (int | None): How many tokens a minute each key has, prompts included; no limit if `None`.
///     max_stored_responses (int): How many responses of `/v1/responses` are kept.
///     max_stored_bytes (int): The memory for them.
///     queue_timeout (float): Seconds that a request may wait.
///     grace (float): Seconds that requests may go on at the end.
///     log_format (Literal["text", "json"]): How the logger `rsgen.serve.request` writes the line of a request.
///     strict_api (bool): Refuses unknown fields.
///     ui (bool): Shows the playground at the address: a page for browsers.
///     on_start (Callable[[str], object] | None): Gets the address once the server listens; it is printed if `None`.
///     dtype (DType): As for `Generator`, for the models that are given as paths, like the arguments that follow.
///     compute_dtype (DType): As for `Generator`.
///     kv_dtype (DType): As for `Generator`.
///     num_threads (int | None): As for `Generator`; several models share the threads.
///     kv_cache_bytes (int | None): As for `Generator`, for each model.
///     prefix_caching (bool): As for `Generator`.
///     generation_config (str): As for `Generator`.
///     revision (str | None): As for `Generator`.
///     cache_dir (str | os.PathLike[str] | None): As for `Generator`.
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
                      cors_origin=None, served_model_name=None, load_on_startup='first', models_max=None, models_memory=None, keep_alive=None, \
                      lora_modules=None, tool_parser=None, reasoning_parser=None, catalogues=None, max_requests=64, \
                      max_requests_per_key=None, max_queue=256, max_queue_per_key=None, max_tokens_per_key=None, max_stored_responses=1024, \
                      max_stored_bytes=67108864, queue_timeout=60.0, grace=30.0, log_format='text', strict_api=False, ui=True, on_start=None, \
                      dtype='auto', compute_dtype='float32', kv_dtype='auto', num_threads=None, kv_cache_bytes=None, \
                      prefix_caching=True, generation_config='auto', revision=None, cache_dir=None)"
)]
pub(super) fn serve(
    py: Python<'_>,
    model: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    logging::install();
    let given = &options.map_or_else(|| PyDict::new(py), Bound::clone);
    options::refuse_unknown("serve", &[&NAMES[..], &LOADING].concat(), given)?;
    let object = |name: &str| argument::<Bound<'_, PyAny>>(given, name);
    let flag = |name: &str, default| Ok::<_, PyErr>(argument(given, name)?.unwrap_or(default));
    let one_or_many = |name: &str| match object(name)? {
        None => Ok(Vec::new()),
        Some(one) if one.is_instance_of::<PyString>() => Ok(vec![one.extract()?]),
        Some(many) => Walk::default().list::<String>(&many),
    };
    let names = object("allowed_hosts")?.map(|names| Walk::default().list(&names)).transpose()?;
    let number = |name: &str| object(name)?.map(|given| count(&given, name)).transpose();
    let models = Given::read(py, model, given)?;
    let api_keys = match object("api_key")? {
        Some(named) if is_mapping(&named)? => secrets(&named)?,
        _ => one_or_many("api_key")?.into_iter().map(Secret::new).collect(),
    };
    let log_format = match argument::<String>(given, "log_format")?.as_deref() {
        None | Some("text") => LogFormat::Text,
        Some("json") => LogFormat::Json,
        Some(other) => {
            return Err(config_error!(py, "`log_format` must be \"text\" or \"json\", got {other:?}"));
        }
    };
    let default = ServeOptions::default();
    let port = number("port")?.unwrap_or(default.port.into());
    let rule = |_| config_error!(py, "`port` must be from 0 to 65535, got {port}");
    let options = ServeOptions {
        host: argument(given, "host")?.unwrap_or_else(|| default.host.clone()),
        port: u16::try_from(port).map_err(rule)?,
        api_keys,
        insecure_no_auth: flag("insecure_no_auth", false)?,
        allowed_hosts: names.unwrap_or_default(),
        cors_origins: one_or_many("cors_origin")?,
        served_model_name: argument(given, "served_model_name")?,
        models_max: number("models_max")?,
        models_memory: number("models_memory")?.map(|bytes| bytes as u64),
        keep_alive: keep_alive(given)?,
        tool_parser: argument(given, "tool_parser")?,
        reasoning_parser: argument(given, "reasoning_parser")?,
        catalogues: object("catalogues")?.map(|given| catalogues(&given)).transpose()?.unwrap_or_default(),
        max_requests: number("max_requests")?.unwrap_or(default.max_requests),
        max_requests_per_key: number("max_requests_per_key")?,
        max_queue: number("max_queue")?.unwrap_or(default.max_queue),
        max_queue_per_key: number("max_queue_per_key")?,
        max_tokens_per_key: number("max_tokens_per_key")?,
        max_stored_responses: number("max_stored_responses")?.unwrap_or(default.max_stored_responses),
        max_stored_bytes: number("max_stored_bytes")?.unwrap_or(default.max_stored_bytes),
        log_format,
        queue_timeout: seconds(given, "queue_timeout", default.queue_timeout)?,
        grace: seconds(given, "grace", default.grace)?,
        strict_api: flag("strict_api", false)?,
        ui: flag("ui", true)?,
        ..default
    };
    let refused = |error| to_python(py, error);
    let loading = Server::bind(options.clone()).and_then(Server::listen).map_err(refused)?;
    let running = loading.start_models(models.open(py, &options)?).map_err(refused)?;
    match object("on_start")? {
        Some(call) => call.call1((running.url(),)).map(drop)?,
        None => py
            .import("builtins")?
            .getattr("print")?
            .call1((format!("{} on {}; Ctrl-C ends it", running.models().join(", "), running.url()),))
            .map(drop)?,
    }
    let wait = || {
        polled(py, |interrupted| {
            running.wait(&mut || {
                logging::flush_detached();
                interrupted()
            })
        })
    };
    match wait() {
        Err(raised) if raised.is_instance_of::<PyKeyboardInterrupt>(py) => {}
        ended => return ended,
    }
    running.stop();
    wait()
}

/// The models that are given, and how those of paths are opened.
struct Given<'py> {
    models: Vec<(Option<String>, GivenModel<'py>)>,
    options: rsgen::GeneratorOptions,
    load_on_startup: LoadOnStartup,
    is_several: bool,
}

enum GivenModel<'py> {
    Open(Bound<'py, Generator>),
    Path(ModelPath),
}

impl<'py> Given<'py> {
    fn read(
        py: Python<'py>,
        model: Option<&Bound<'py, PyAny>>,
        given: &Bound<'py, PyDict>,
    ) -> PyResult<Self> {
        let load_on_startup = match argument::<String>(given, "load_on_startup")? {
            None => LoadOnStartup::default(),
            Some(name) => LoadOnStartup::named(&name).ok_or_else(|| {
                config_error!(py, "`load_on_startup` must be \"first\", \"all\" or \"none\", got {name:?}")
            })?,
        };
        let of_loading = PyDict::new(py);
        for name in LOADING {
            if let Some(value) = given.get_item(name)? {
                of_loading.set_item(name, value)?;
            }
        }
        let (options, _) = options::read(py, "serve", &LOADING, Some(&of_loading))?;
        let name = argument::<String>(given, "served_model_name")?;
        let mut models = Vec::new();
        let walk = Walk::default();
        let is_dict = model.map(is_mapping).transpose()?.unwrap_or(false);
        match model.filter(|_| is_dict) {
            Some(named) => {
                for item in walk.items(&named.call_method0("items")?)? {
                    let (name, model): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
                    let Ok(name) = name.cast::<PyString>() else {
                        return Err(type_error!("`model` must have names as its keys, got {}", shown(&name)));
                    };
                    models.push((Some(walk.text(name)?), GivenModel::read(py, Some(&model))?));
                }
            }
            None => models.push((name.clone(), GivenModel::read(py, model)?)),
        }
        if models.is_empty() {
            return Err(config_error!(py, "`model` must name at least one model, but is empty"));
        }
        let is_several = models.len() > 1;
        if is_dict && name.is_some() {
            return Err(config_error!(
                py,
                "`served_model_name` names a model that has no name, but the keys of `model` are names; leave it out"
            ));
        }
        let mut given_models = Self { models, options, load_on_startup, is_several };
        if let Some(modules) = argument::<Bound<'_, PyAny>>(given, "lora_modules")? {
            given_models.add_adapters(&modules)?;
        }
        let has_paths = given_models.models.iter().any(|(_, model)| matches!(model, GivenModel::Path(_)));
        if let Some((option, _)) = of_loading.iter().next().filter(|_| !has_paths) {
            return Err(config_error!(
                py,
                "`{option}` says how a path is opened, but each model is a Generator; leave it out"
            ));
        }
        Ok(given_models)
    }

    /// Reads the adapters beside the models.
    fn add_adapters(&mut self, modules: &Bound<'py, PyAny>) -> PyResult<()> {
        let wrong =
            || type_error!("`lora_modules` must be a dict of names to folders, got {}", shown(modules));
        if !is_mapping(modules)? {
            return Err(wrong());
        }
        let walk = Walk::default();
        for item in walk.items(&modules.call_method0("items")?)? {
            let (name, folder): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
            let (Ok(name), folder) = (name.cast::<PyString>(), options::folder("lora_modules", &folder)?)
            else {
                return Err(wrong());
            };
            let name = walk.text(name)?;
            let own = |model: &Option<String>| {
                let rest = name.strip_prefix(model.as_deref()?)?.strip_prefix(':')?;
                (!rest.is_empty()).then(|| rest.to_owned())
            };
            let found =
                self.models.iter().enumerate().find_map(|(index, (model, _))| Some((index, own(model)?)));
            let (index, name) = found.unwrap_or((0, name));
            let GivenModel::Path(model) = &mut self.models[index].1 else {
                return Err(config_error!(
                    modules.py(),
                    "`lora_modules` has the adapter {name:?} for a Generator; load it with `load_adapter`, or give the model's path"
                ));
            };
            model.adapters.push((name, folder));
        }
        Ok(())
    }

    /// The models for the server, of which the first or all are loaded.
    fn open(self, py: Python<'py>, serve: &ServeOptions) -> PyResult<Vec<ServedModel>> {
        let refused = |error| to_python(py, error);
        let paths = self.models.iter().filter_map(|(name, model)| match model {
            GivenModel::Path(path) => Some(ModelPath { name: name.clone(), ..path.clone() }),
            GivenModel::Open(_) => None,
        });
        let paths: Vec<ModelPath> = paths.collect();
        let mut of_paths = ServedModel::of_paths(&paths, self.options, serve).map_err(refused)?.into_iter();
        let mut models = Vec::new();
        for (index, (name, model)) in self.models.iter().enumerate() {
            let model = match model {
                GivenModel::Open(generator) => {
                    let generator = (*generator.get().inner(py)?).clone();
                    Some(ServedModel::loaded(name.as_deref(), generator))
                }
                GivenModel::Path(_) => of_paths.next(),
            };
            models.extend(model.map(|model| (model, self.load_on_startup.loads(index))));
        }
        if self.load_on_startup == LoadOnStartup::All && self.is_several {
            let all: Vec<ServedModel> = models.iter().map(|(model, _)| model.clone()).collect();
            check_loaded_on_startup(&all, serve).map_err(refused)?;
        }
        let open = |(model, is_loaded): (ServedModel, bool)| {
            if !is_loaded {
                return Ok(model);
            }
            let model = interruptible(py, |interrupted| model.load(interrupted))?;
            logging::flush(py);
            let warnings = model.generator().map(|generator| generator.warnings().to_vec());
            warn(py, warnings.unwrap_or_default())?;
            Ok(model)
        };
        models.into_iter().map(open).collect()
    }
}

impl<'py> GivenModel<'py> {
    fn read(py: Python<'py>, model: Option<&Bound<'py, PyAny>>) -> PyResult<Self> {
        if let Some(Ok(generator)) = model.map(|model| model.cast::<Generator>()) {
            return Ok(Self::Open(generator.clone()));
        }
        let path = options::model_path(py, "model", model)?;
        Ok(Self::Path(ModelPath { path, ..ModelPath::default() }))
    }
}

/// Keys by their names.
fn secrets(named: &Bound<'_, PyAny>) -> PyResult<Vec<Secret>> {
    let walk = Walk::default();
    let secret = |item: PyResult<Bound<'_, PyAny>>| {
        let (name, key): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
        match (name.cast::<PyString>(), key.cast::<PyString>()) {
            (Ok(name), Ok(key)) => Ok(Secret::new(walk.text(key)?).named(walk.text(name)?)),
            _ => Err(type_error!("`api_key` must be a text, a list of texts, or a dict of names to texts")),
        }
    };
    walk.items(&named.call_method0("items")?)?.map(secret).collect()
}

/// How long a model stays without a request.
fn keep_alive(arguments: &Bound<'_, PyDict>) -> PyResult<Option<Duration>> {
    let Some(given) = argument::<Bound<'_, PyAny>>(arguments, "keep_alive")? else { return Ok(None) };
    let text = match given.cast::<PyString>() {
        Ok(text) => Walk::default().text(text)?,
        Err(_) => argument::<f64>(arguments, "keep_alive")?.unwrap_or_default().to_string(),
    };
    idle_time(&text)
        .map_err(|rule| config_error!(arguments.py(), "`keep_alive` is wrong: {rule}, got {}", shown(&given)))
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
