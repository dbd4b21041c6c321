//! The options of a server, with their defaults and rules.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rsgen_core::error::{Error, Result};
use rsgen_core::message;
use rsgen_generation::TokenTrie;
use rsgen_text::{ReasoningForm, ToolForm};

/// A secret, such as an API key: it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    name: Option<String>,
    priority: i32,
}

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), name: None, priority: 0 }
    }

    /// The same with a name, which the log has in place of the secret.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The same with a priority: the requests of a key with a lower number have their turn first. It is 0 otherwise.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    /// A line of a file of keys: the key, and perhaps its settings, as in `sk-1234 name=batch priority=10`.
    ///
    /// # Errors
    /// The rule that a setting breaks.
    pub fn of_line(line: &str) -> std::result::Result<Self, String> {
        let mut words = line.split_whitespace();
        let mut secret = Self::new(words.next().unwrap_or_default());
        for word in words {
            secret = match word.split_once('=') {
                Some(("name", name)) if !name.is_empty() => secret.named(name),
                Some(("priority", number)) => {
                    let number = number.parse().map_err(|_| "`priority` must be an integer".to_owned())?;
                    secret.priority(number)
                }
                // What it is may be a part of a secret.
                _ => return Err("behind a key there may be name=NAME and priority=NUMBER alone".to_owned()),
            };
        }
        Ok(secret)
    }

    pub(super) fn expose(&self) -> &str {
        &self.text
    }

    /// Its name and its priority.
    pub(super) fn settings(&self) -> (Option<&str>, i32) {
        (self.name.as_deref(), self.priority)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How the log writes the line of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Words and numbers in a row.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// Which models are loaded before requests are answered. The others are loaded with their first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadOnStartup {
    /// The first one.
    #[default]
    First,
    /// All of them.
    All,
    /// None.
    None,
}

impl LoadOnStartup {
    /// That of a name: `first`, `all` or `none`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "first" => Some(Self::First),
            "all" => Some(Self::All),
            "none" => Some(Self::None),
            _ => None,
        }
    }

    /// Whether it loads model `index` of a list.
    pub fn loads(self, index: usize) -> bool {
        match self {
            Self::First => index == 0,
            Self::All => true,
            Self::None => false,
        }
    }
}

/// How a server is reached, what it accepts, and how long it waits.
///
/// ```
/// use rsgen::serve::ServeOptions;
///
/// let options = ServeOptions { port: 0, max_requests: 8, ..ServeOptions::default() };
/// assert_eq!(options.host, "127.0.0.1");
/// ```
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The address or the name to listen on.
    pub host: String,
    /// The port to listen on; 0 takes a free one.
    pub port: u16,
    /// The API keys, one of which each request must bear; if empty, no key is needed.
    pub api_keys: Vec<Secret>,
    /// Allows a server without a key to be reached from other machines.
    pub insecure_no_auth: bool,
    /// Further names by which browsers may call this server, in `Host` and `Origin`.
    pub allowed_hosts: Vec<String>,
    /// The origins, such as `http://localhost:3000`, whose pages may read answers (CORS); `*` is any.
    pub cors_origins: Vec<String>,
    /// The model's name in the API; by default the Hub id, or the name of its folder.
    pub served_model_name: Option<String>,
    /// The most models that are loaded at a time, of several; no limit if `None`.
    pub models_max: Option<usize>,
    /// The most bytes that the loaded models take by their estimates; if `None`, a model is loaded when the system has the
    /// memory for it, once others that are not in use are unloaded.
    pub models_memory: Option<u64>,
    /// How long a model stays loaded without a request; if `None`, until another one needs its memory.
    pub keep_alive: Option<Duration>,
    /// The form of tool calls in the model's answers, by its name; by default that of its chat template.
    pub tool_parser: Option<String>,
    /// The form of the thinking in the model's answers, by its name, or `none`; by default that of its chat
    /// template.
    pub reasoning_parser: Option<String>,
    /// The catalogues that requests may name as their `allowed_sequences`.
    pub catalogues: BTreeMap<String, Arc<TokenTrie>>,
    /// The most requests that are computed at a time; each takes a thread.
    pub max_requests: usize,
    /// The most requests of each key that run or wait at a time; no limit if `None`.
    pub max_requests_per_key: Option<usize>,
    /// The most requests of each key that wait for their turn; no limit but that of all if `None`.
    pub max_queue_per_key: Option<usize>,
    /// The most tokens a minute of the finished requests of each key, prompts included; no limit if `None`.
    pub max_tokens_per_key: Option<usize>,
    /// The most requests that wait for their turn.
    pub max_queue: usize,
    /// The most prompt tokens of the requests that wait, estimated as a quarter of their bytes.
    pub max_queued_tokens: usize,
    /// How long a request may wait for its turn.
    pub queue_timeout: Duration,
    /// The most bytes of a request's body.
    pub max_body_bytes: usize,
    /// The most bytes that the bodies of all requests take, as text and as values; beyond 64 KiB of each, which
    /// are always taken. At least 64 MiB, and two of the longest bodies.
    pub max_bodies_bytes: usize,
    /// The most connections; the one that has been idle for longest is closed for a further one.
    pub max_connections: usize,
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long a client may take to send the body of a request, and again as long as it has sent 8 KiB for
    /// each second.
    pub body_timeout: Duration,
    /// How long a connection may wait for its next request.
    pub idle_timeout: Duration,
    /// How long a client may read nothing of an answer.
    pub write_timeout: Duration,
    /// How long running requests may go on after the signal to stop.
    pub grace: Duration,
    /// The most responses of `/v1/responses` that are kept in memory to go on with; each API key has an equal part. Those that
    /// have not been used for longest go first; 0 keeps none.
    pub max_stored_responses: usize,
    /// The most bytes that they take.
    pub max_stored_bytes: usize,
    /// How the log writes the line of a request.
    pub log_format: LogFormat,
    /// Refuses requests with unknown fields, which are ignored otherwise.
    pub strict_api: bool,
    /// Shows the playground at `/`.
    pub ui: bool,
}

/// Parses how long a model stays loaded without a request, as Ollama does: seconds, or numbers with units, such as `1h30m`;
/// `None`, for ever, if it is negative.
///
/// # Errors
/// The rule that the text breaks.
pub fn idle_time(text: &str) -> std::result::Result<Option<Duration>, String> {
    let rule =
        || "it must be a number of seconds, or a time such as 5m or 1h30m; below 0: for ever".to_owned();
    let (is_negative, amount) = text.strip_prefix('-').map_or((false, text), |amount| (true, amount));
    let mut seconds = 0.0;
    let mut rest = amount;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, more) = rest.split_at(end);
        let end = more.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(more.len());
        let (unit, more) = more.split_at(end);
        let unit = match unit {
            "" if number.len() == amount.len() => 1.0,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(rule()),
        };
        seconds += number.parse::<f64>().map_err(|_| rule())? * unit;
        rest = more;
    }
    match (amount.is_empty(), is_negative && seconds > 0.0) {
        (true, _) => Err(rule()),
        (false, true) => Ok(None),
        (false, false) => Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| rule()),
    }
}

impl Default for ServeOptions {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8000,
            api_keys: Vec::new(),
            insecure_no_auth: false,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            served_model_name: None,
            models_max: None,
            models_memory: None,
            keep_alive: None,
            tool_parser: None,
            reasoning_parser: None,
            catalogues: BTreeMap::new(),
            max_requests: 64,
            max_requests_per_key: None,
            max_queue_per_key: None,
            max_tokens_per_key: None,
            max_queue: 256,
            max_queued_tokens: 1 << 20,
            queue_timeout: seconds(60),
            max_body_bytes: 2 << 20,
            max_bodies_bytes: 128 << 20,
            max_connections: 1024,
            header_timeout: seconds(10),
            body_timeout: seconds(30),
            idle_timeout: seconds(75),
            write_timeout: seconds(30),
            grace: seconds(30),
            max_stored_responses: 1024,
            max_stored_bytes: 64 << 20,
            log_format: LogFormat::Text,
            strict_api: false,
            ui: true,
        }
    }
}

impl ServeOptions {
    /// Whether nobody but programs on this machine can be meant: there is no key, no other name and no other page.
    pub(super) fn is_private(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        let is_loopback = || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let has_guests = [self.api_keys.len(), self.allowed_hosts.len(), self.cors_origins.len()]
            .iter()
            .any(|&count| count > 0);
        (host == "localhost" || is_loopback()) && !has_guests
    }

    /// Checks the rules that the types of the fields do not enforce.
    pub(super) fn check(&self) -> Result<()> {
        let at_least_one = [
            ("max_requests", self.max_requests),
            ("max_requests_per_key", self.max_requests_per_key.unwrap_or(1)),
            ("max_tokens_per_key", self.max_tokens_per_key.unwrap_or(1)),
            ("models_max", self.models_max.unwrap_or(1)),
            ("max_body_bytes", self.max_body_bytes),
            ("max_connections", self.max_connections),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(
                    Error::config("must be 1 or more, but is 0; leave it out for the default").about(name)
                );
            }
        }
        let waits = [
            ("header_timeout", self.header_timeout),
            ("body_timeout", self.body_timeout),
            ("idle_timeout", self.idle_timeout),
            ("write_timeout", self.write_timeout),
        ];
        for (name, value) in waits {
            if value.is_zero() {
                return Err(Error::config(
                    "must be more than 0 seconds, but is 0; leave it out for the default",
                )
                .about(name));
            }
        }
        let of_keys = [
            ("max_requests_per_key", self.max_requests_per_key),
            ("max_queue_per_key", self.max_queue_per_key),
            ("max_tokens_per_key", self.max_tokens_per_key),
        ];
        if let Some((name, _)) = of_keys.iter().find(|(_, limit)| limit.is_some() && self.api_keys.is_empty())
        {
            return Err(Error::config(message!(
                "limits the requests of each " {api_key} ", but there is none; set a key, or leave it out"
            ))
            .about(*name));
        }
        if self.api_keys.iter().any(|key| key.expose().trim().is_empty()) {
            return Err(Error::config(
                "must not be empty; give a text that is hard to guess, or leave it out",
            )
            .about("api_key"));
        }
        let is_origin = |origin: &str| match origin.split_once("://") {
            Some((scheme, host)) => !scheme.is_empty() && !host.is_empty() && !host.contains('/'),
            None => origin == "*",
        };
        if let Some(origin) = self.cors_origins.iter().find(|origin| !is_origin(origin)) {
            return Err(Error::config(format!(
                "must be an origin, such as http://localhost:3000, or * for any, but is {origin:?}"
            ))
            .about("cors_origin"));
        }
        if let Some(name) = &self.tool_parser {
            ToolForm::named(name)?;
        }
        if let Some(name) = &self.reasoning_parser {
            ReasoningForm::named(name)?;
        }
        match &self.served_model_name {
            Some(name) if name.is_empty() => {
                Err(Error::config("must not be empty; leave it out for the model's own name")
                    .about("served_model_name"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_have_a_name_and_a_priority_behind_it() {
        let settings = |line: &str| {
            let secret = Secret::of_line(line).unwrap();
            let (name, priority) = secret.settings();
            (secret.expose().to_owned(), name.map(str::to_owned), priority)
        };
        let of =
            |key: &str, name: Option<&str>, priority| (key.to_owned(), name.map(str::to_owned), priority);
        assert_eq!(settings("c2VjcmV0Cg=="), of("c2VjcmV0Cg==", None, 0));
        assert_eq!(settings("sk-1  name=batch priority=10"), of("sk-1", Some("batch"), 10));
        assert_eq!(settings("sk-1 priority=-1"), of("sk-1", None, -1));
        for (line, word) in
            [("sk-1 secret", "alone"), ("sk-1 priority=high", "integer"), ("sk-1 name=", "alone")]
        {
            let error = Secret::of_line(line).unwrap_err();
            assert!(error.contains(word) && !error.contains("secret"), "{line}: {error}");
        }
    }

    #[test]
    fn idle_times_are_those_of_ollama() {
        let seconds = |seconds| Ok(Some(Duration::from_secs_f64(seconds)));
        for (text, expected) in [
            ("300", seconds(300.0)),
            ("0", seconds(0.0)),
            ("0s", seconds(0.0)),
            ("2.5", seconds(2.5)),
            ("5m", seconds(300.0)),
            ("1h30m", seconds(5400.0)),
            ("250ms", seconds(0.25)),
            ("-1", Ok(None)),
            ("-5m", Ok(None)),
        ] {
            assert_eq!(idle_time(text), expected, "{text}");
        }
        for wrong in ["", "-", "m", "5d", "5 m", "1h30", "five", "1e99h", "99999999999999999999"] {
            assert!(idle_time(wrong).unwrap_err().contains("5m"), "{wrong}");
        }
    }
}
