//! `rsgen serve`: the model over HTTP. The routes are in the module `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::args::{AssistantArguments, LoadingArguments, OutputArguments, bytes, positive};

const EXAMPLES: &str = "\
Examples:
  rsgen serve path/to/llama --port 8080
  rsgen serve small=path/to/small big=path/to/big
  rsgen serve path/to/llama --host 0.0.0.0 --api-key-file keys.txt";

const SERVER: &str = "Server";
const LIMITS: &str = "Limits";
const MODELS: &str = "Several models";

/// Answer requests over HTTP, as OpenAI's API does
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ServeArguments {
    /// A folder, GGUF file or Hub id [default: bundled]; several as NAME=PATH
    #[arg(env = "RSGEN_MODEL")]
    pub(super) model: Vec<String>,

    /// The address to listen on
    #[arg(long, value_name = "HOST", env = "RSGEN_HOST", default_value = "127.0.0.1", help_heading = SERVER)]
    host: String,
    /// The port; 0: a free one
    #[arg(long, value_name = "PORT", env = "RSGEN_PORT", default_value = "8000", help_heading = SERVER)]
    port: u16,
    /// A key that clients must send; may repeat
    #[arg(long, value_name = "KEY", env = "RSGEN_API_KEY", help_heading = SERVER)]
    api_key: Vec<String>,
    /// A file with a key on each line, perhaps with name=NAME and priority=N behind it
    #[arg(long, value_name = "FILE", env = "RSGEN_API_KEY_FILE", help_heading = SERVER, hide_short_help = true)]
    api_key_file: Option<PathBuf>,
    /// Let other machines in without a key
    #[arg(long, env = "RSGEN_INSECURE_NO_AUTH", help_heading = SERVER, hide_short_help = true)]
    insecure_no_auth: bool,
    /// Further names of the server for browsers
    #[arg(long, value_name = "NAMES", env = "RSGEN_ALLOWED_HOSTS", value_delimiter = ',')]
    #[arg(help_heading = SERVER, hide_short_help = true)]
    allowed_hosts: Vec<String>,
    /// An origin whose pages may read answers (CORS), or *; may repeat
    #[arg(long, value_name = "ORIGIN", env = "RSGEN_CORS_ORIGIN", value_delimiter = ',')]
    #[arg(help_heading = SERVER, hide_short_help = true)]
    cors_origin: Vec<String>,
    /// The model's name in the API
    #[arg(long, value_name = "NAME", env = "RSGEN_SERVED_MODEL_NAME", help_heading = SERVER, hide_short_help = true)]
    pub(super) served_model_name: Option<String>,
    /// The form of tool calls, such as hermes [default: that of the chat template]
    #[arg(long, value_name = "NAME", env = "RSGEN_TOOL_PARSER", help_heading = SERVER, hide_short_help = true)]
    tool_parser: Option<String>,
    /// The form of the model's thinking, such as qwen3, or none [default: that of the chat template]
    #[arg(long, value_name = "NAME", env = "RSGEN_REASONING_PARSER", help_heading = SERVER, hide_short_help = true)]
    reasoning_parser: Option<String>,
    /// A catalogue for `allowed_sequences`; may repeat
    #[arg(long, value_name = "NAME=PATH", env = "RSGEN_CATALOGUE", value_delimiter = ',')]
    #[arg(help_heading = SERVER, hide_short_help = true)]
    catalogue: Vec<String>,
    /// LoRA adapters beside the model, which `model` of a request may name; of several models MODEL:NAME=PATH
    #[arg(long, value_name = "NAME=PATH", env = "RSGEN_LORA_MODULES", value_delimiter = ',', num_args = 1..)]
    #[arg(help_heading = SERVER, hide_short_help = true)]
    pub(super) lora_modules: Vec<String>,
    /// Refuse unknown fields
    #[arg(long, env = "RSGEN_STRICT_API", help_heading = SERVER, hide_short_help = true)]
    strict_api: bool,
    /// No playground at /
    #[arg(long, env = "RSGEN_NO_UI", help_heading = SERVER)]
    no_ui: bool,

    /// Which models are loaded before the first request: first, all or none
    #[arg(long, value_name = "WHICH", env = "RSGEN_LOAD_ON_STARTUP", default_value = "first")]
    #[arg(value_parser = ["first", "all", "none"], help_heading = MODELS)]
    #[arg(hide_short_help = true, hide_possible_values = true)]
    pub(super) load_on_startup: String,
    /// How many models are loaded at a time [default: no limit]
    #[arg(long, value_name = "N", env = "RSGEN_MODELS_MAX", value_parser = positive)]
    #[arg(help_heading = MODELS, hide_short_help = true)]
    pub(super) models_max: Option<usize>,
    /// The memory for loaded models, as in 8G [default: what is available]
    #[arg(long, value_name = "BYTES", env = "RSGEN_MODELS_MEMORY", value_parser = bytes)]
    #[arg(help_heading = MODELS, hide_short_help = true)]
    pub(super) models_memory: Option<usize>,
    /// How long a model stays loaded without a request, as in 5m [default: for ever]
    #[arg(long, value_name = "TIME", env = "RSGEN_KEEP_ALIVE", allow_hyphen_values = true)]
    #[arg(help_heading = MODELS, hide_short_help = true)]
    pub(super) keep_alive: Option<String>,

    /// How many requests run at a time
    #[arg(long, value_name = "N", env = "RSGEN_MAX_REQUESTS", value_parser = positive, default_value = "64")]
    #[arg(help_heading = LIMITS)]
    max_requests: usize,
    /// How many of each key run or wait [default: no limit]
    #[arg(long, value_name = "N", env = "RSGEN_MAX_REQUESTS_PER_KEY", value_parser = positive)]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    max_requests_per_key: Option<usize>,
    /// How many of each key wait [default: no limit]
    #[arg(long, value_name = "N", env = "RSGEN_MAX_QUEUE_PER_KEY")]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    max_queue_per_key: Option<usize>,
    /// How many tokens a minute each key has, prompts included [default: no limit]
    #[arg(long, value_name = "N", env = "RSGEN_MAX_TOKENS_PER_KEY", value_parser = positive)]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    max_tokens_per_key: Option<usize>,
    /// How many wait for their turn
    #[arg(long, value_name = "N", env = "RSGEN_MAX_QUEUE", default_value = "256", help_heading = LIMITS)]
    max_queue: usize,
    /// How many prompt tokens wait
    #[arg(long, value_name = "N", env = "RSGEN_MAX_QUEUED_TOKENS", default_value = "1048576")]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    max_queued_tokens: usize,
    /// Seconds that a request may wait
    #[arg(long, value_name = "SECONDS", env = "RSGEN_QUEUE_TIMEOUT", value_parser = seconds, default_value = "60")]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    queue_timeout: Duration,
    /// How many connections
    #[arg(long, value_name = "N", env = "RSGEN_MAX_CONNECTIONS", value_parser = positive, default_value = "1024")]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    max_connections: usize,
    /// How many responses of /v1/responses are kept
    #[arg(long, value_name = "N", env = "RSGEN_MAX_STORED_RESPONSES", default_value = "1024")]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    max_stored_responses: usize,
    /// The memory for the responses of /v1/responses that are kept
    #[arg(long, value_name = "BYTES", env = "RSGEN_MAX_STORED_BYTES", value_parser = bytes, default_value = "64M")]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    max_stored_bytes: usize,
    /// Seconds for running requests at the end
    #[arg(long, value_name = "SECONDS", env = "RSGEN_GRACE", value_parser = seconds, default_value = "30")]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    grace: Duration,

    #[command(flatten)]
    pub(super) loading: LoadingArguments,
    #[command(flatten)]
    pub(super) assistant: AssistantArguments,
    #[command(flatten)]
    output: OutputArguments,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "it must be a number of seconds, 0 or more".to_owned())
}

#[cfg(feature = "serve")]
pub(super) use with_server::run;

#[cfg(feature = "serve")]
mod with_server {
    use std::fs;
    use std::io::{Write as _, stdout};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde::Serialize;

    use super::super::Shell;
    use super::super::catalogue::open_named;
    use super::super::failure::Failure;
    use super::super::output::write_report;
    use super::super::prompt::without_mark;
    use super::super::served_models;
    use super::ServeArguments;
    use crate::serve::{LogFormat, Running, Secret, ServeOptions, Server, idle_time};
    use rsgen_core::{Error, ErrorKind, refuse_if};

    /// What `--json` writes when the server listens.
    #[derive(Serialize)]
    struct Report<'a> {
        model: &'a str,
        /// If there are several.
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        models: &'a [String],
        url: &'a str,
    }

    pub(in super::super) fn run(arguments: &ServeArguments, shell: Shell<'_>) -> Result<(), Failure> {
        let Shell { bundled, terminal, interrupted, .. } = shell;
        let mut options = arguments.options()?;
        options.catalogues = open_named(&arguments.catalogue, interrupted)?;
        let server = Server::bind(options.clone())?.listen()?;
        let models = served_models::open(arguments, &options, bundled, terminal, interrupted)?;
        let running = server.start_models(models)?;
        let terminated = on_signals();
        let mut interrupted = || terminated.swap(false, Ordering::Relaxed) || interrupted();
        // The first poll installs the handler of Ctrl-C.
        if interrupted() {
            return Err(Failure::Interrupted);
        }
        arguments.announce(&running)?;
        match running.wait(&mut interrupted) {
            Err(error) if error.kind() == ErrorKind::Cancelled => {}
            ended => return Ok(ended?),
        }
        terminal.note("finishing the requests that run; a second signal ends the server at once");
        running.stop();
        Ok(running.wait(&mut interrupted)?)
    }

    impl ServeArguments {
        fn options(&self) -> Result<ServeOptions, Error> {
            let mut api_keys: Vec<Secret> = self.api_key.iter().map(Secret::new).collect();
            if let Some(file) = &self.api_key_file {
                let unreadable = |error| {
                    let file = file.display();
                    Error::config(format!("must be a readable file, but {file} is none: {error}"))
                        .about("api_key_file")
                };
                let text = fs::read_to_string(file).map(without_mark).map_err(unreadable)?;
                let before = api_keys.len();
                let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
                for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
                    let wrong = |rule: String| {
                        Error::config(format!("has a wrong line {number}: {rule}")).about("api_key_file")
                    };
                    api_keys.push(Secret::of_line(line).map_err(wrong)?);
                }
                refuse_if(
                    api_keys.len() == before,
                    "api_key_file",
                    || "holds no key; write one on each line",
                )?;
            }
            let keep_alive = self.keep_alive.as_deref().map(|given| {
                idle_time(given)
                    .map_err(|rule| Error::config(format!("{rule}; but is {given:?}")).about("keep_alive"))
            });
            let keep_alive = keep_alive.transpose()?.flatten();
            Ok(ServeOptions {
                host: self.host.clone(),
                port: self.port,
                api_keys,
                insecure_no_auth: self.insecure_no_auth,
                allowed_hosts: self.allowed_hosts.clone(),
                cors_origins: self.cors_origin.clone(),
                served_model_name: self.served_model_name.clone(),
                models_max: self.models_max,
                models_memory: self.models_memory.map(|bytes| bytes as u64),
                keep_alive,
                tool_parser: self.tool_parser.clone(),
                reasoning_parser: self.reasoning_parser.clone(),
                max_requests: self.max_requests,
                max_requests_per_key: self.max_requests_per_key,
                max_queue_per_key: self.max_queue_per_key,
                max_tokens_per_key: self.max_tokens_per_key,
                max_stored_responses: self.max_stored_responses,
                max_stored_bytes: self.max_stored_bytes,
                log_format: if self.output.json { LogFormat::Json } else { LogFormat::Text },
                max_queue: self.max_queue,
                max_queued_tokens: self.max_queued_tokens,
                queue_timeout: self.queue_timeout,
                max_connections: self.max_connections,
                grace: self.grace,
                strict_api: self.strict_api,
                ui: !self.no_ui,
                ..ServeOptions::default()
            })
        }

        /// Prints the server's address and how to try it.
        fn announce(&self, running: &Running) -> std::io::Result<()> {
            let (model, models, url) = (running.model(), running.models(), running.url());
            let mut out = stdout().lock();
            if self.output.json {
                return write_report(
                    &mut out,
                    &Report { model, models: if models.len() > 1 { models } else { &[] }, url },
                );
            }
            let has_key = !self.api_key.is_empty() || self.api_key_file.is_some();
            let key = if has_key { " -H \"authorization: Bearer $RSGEN_API_KEY\"" } else { "" };
            writeln!(out, "{} on {url}; Ctrl-C ends it", models.join(", "))?;
            let body = if running.has_encoder() {
                r#"{"prompt": "The house is small.", "max_tokens": 40, "temperature": 0}"#
            } else {
                r#"{"prompt": "Once upon a time", "max_tokens": 40}"#
            };
            writeln!(out, "try: curl {url}/v1/completions{key} --json '{body}'")?;
            if !self.no_ui {
                writeln!(out, "or open {url}/ in a browser: the playground shows how text is found")?;
            }
            out.flush()
        }
    }

    /// A flag that SIGTERM sets. SIGHUP, which closing a terminal sends, changes nothing from here on.
    fn on_signals() -> Arc<AtomicBool> {
        let terminated = Arc::new(AtomicBool::new(false));
        #[cfg(unix)]
        {
            use signal_hook::{consts::SIGHUP, consts::SIGTERM, flag};
            // Without the handlers the signals end the process at once.
            let _ = flag::register(SIGTERM, Arc::clone(&terminated))
                .and_then(|_| flag::register(SIGHUP, Arc::default()));
        }
        terminated
    }
}

#[cfg(not(feature = "serve"))]
pub(super) fn run(_: &ServeArguments, _: super::Shell<'_>) -> Result<(), super::failure::Failure> {
    Err(without_server())
}

/// The error of a subcommand that needs the server, in a build without it.
#[cfg(not(feature = "serve"))]
pub(super) fn without_server() -> super::failure::Failure {
    rsgen_core::error::Error::config(
        "this program was built without the server; install it with `pip install rsgen`, or build it with `cargo install \
         --path . --features serve`",
    )
    .into()
}
