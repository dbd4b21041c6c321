//! Compiles grammars, within limits: what would take long is refused before it begins, and what begins ends
//! soon, takes little memory, and panics at most in a thread of its own. No limit is a time: a computer that
//! sleeps changes no result.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use serde_json::Value;

use rsgen_core::error::{Error, Result};
use rsgen_core::sync::{Mutex, thread};

use super::super::config::JsonSchema;
use super::matcher::{Matcher, Stop};
use super::source::GrammarSource;
use super::tokens::GrammarTokens;
use super::{classes, cost, schema};

/// The longest text of a grammar, in bytes.
pub(super) const MAX_TEXT: usize = 128 << 10;
/// The deepest nesting of brackets in a grammar. Those of schemas and regular expressions are limited where
/// they are read.
const MAX_DEPTH: usize = 128;
/// The threads that may compile at the same time. Others wait; what compiles ends soon.
const MAX_COMPILING: usize = 8;
/// How often a caller that waits is asked whether it still does.
const POLL: Duration = Duration::from_millis(20);
/// Grammars are compiled by recursion: this is room for the deepest of the longest text.
const STACK_BYTES: usize = 256 << 20;

/// The most parts of a refused schema that are tried alone, to find which of them is the reason.
const MAX_PARTS: usize = 40;
/// What llguidance says of schemas that break its limits.
const LARGE: [&str; 2] = ["schema too large", "too big"];
/// What llguidance says of schemas, and what it means.
const REASONS: [(&str, &str); 10] = [
    ("Unsatisfiable schema", "no value satisfies it"),
    ("patternProperty regexes", "one name may match two of its `patternProperties`"),
    ("oneOf constraints", "a value may satisfy two of the schemas of its `oneOf`"),
    (
        "min/maxProperties",
        "`minProperties` and `maxProperties` are possible where all `properties` are required, or for 1 property in all",
    ),
    ("circular references", "its `$ref` leads back to itself beside other keywords"),
    ("lookarounds", "`^` or `$` stands within its pattern"),
    ("regex parse error", "its pattern names a class that is not known"),
    ("number too large to fit", "its bounds are too far apart"),
    ("JsonCompileOptions", "its `x-guidance` must be an object of llguidance's options"),
    ("unknown field", "its `x-guidance` has an option that is not known"),
];

static COMPILING: AtomicUsize = AtomicUsize::new(0);

/// Sets the limits of compiling and of each token.
pub(super) fn limit(limits: &mut ParserLimits) {
    // About 20 ms of work, and 20 MB.
    limits.initial_lexer_fuel = 1_000_000;
    limits.max_grammar_size = 200_000;
    // About 20 ms of work for a token, 30 MB for a request.
    limits.step_lexer_fuel = 200_000;
    limits.step_max_items = 50_000;
    limits.max_items_in_row = 1_000;
    limits.max_lexer_states = 20_000;
    limits.verbose_errors = false;
}

/// A grammar that is ready to use, at the beginning of a text.
pub(super) struct CompiledGrammar {
    /// The field that it comes from.
    pub(super) field: &'static str,
    pub(super) tokens: Arc<GrammarTokens>,
    first: Mutex<Matcher>,
}

impl CompiledGrammar {
    /// Compiles a grammar.
    ///
    /// # Errors
    /// `Config` that names the field and what is wrong with the grammar, or the limit that it breaks;
    /// `Cancelled` when `interrupted` returns true.
    pub(super) fn new(
        source: &GrammarSource,
        tokens: &Arc<GrammarTokens>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        let field = source.field();
        let grammar = checked(source)?;
        let schema = match source {
            GrammarSource::JsonSchema(schema) => Some(schema.clone()),
            _ => None,
        };
        let first = compiled(field, grammar, schema, Arc::clone(tokens), interrupted)?;
        Ok(Self { field, tokens: Arc::clone(tokens), first: Mutex::new(first) })
    }

    /// The same for a request: what it remembers is its own.
    pub(super) fn for_request(&self) -> Self {
        let first = self.first.lock().deep_clone();
        Self { field: self.field, tokens: Arc::clone(&self.tokens), first: Mutex::new(first) }
    }

    /// A matcher at the beginning of a text. Those of a request remember together what they have computed.
    pub(super) fn matcher(&self) -> Matcher {
        self.first.lock().clone()
    }
}

/// The text of a grammar as llguidance takes it.
fn checked(source: &GrammarSource) -> Result<TopLevelGrammar> {
    let (field, text) = (source.field(), source.text());
    if text.len() > MAX_TEXT {
        return Err(Error::config(format!(
            "must have at most {MAX_TEXT} bytes, but has {}; simplify it",
            text.len()
        ))
        .about(field));
    }
    // Before a text is written anew, which takes time too.
    let check = |cost: u64| {
        if cost <= cost::MAX_COST {
            return Ok(());
        }
        let message = format!(
            "must take at most {} steps to compile, but takes {cost}: it has too many optional parts in a row; simplify it",
            cost::MAX_COST
        );
        Err(Error::config(message).about(field))
    };
    match source {
        GrammarSource::JsonSchema(schema) => {
            check(cost::of_schema(schema.value()))?;
            Ok(TopLevelGrammar::from_json_schema(schema::checked(schema.value(), field)?))
        }
        GrammarSource::Regex(text) => {
            check(cost::of_regex(text))?;
            let text = classes::ascii(text).map_err(|why| refused(field, Stop::Other(why)))?;
            Ok(TopLevelGrammar::from_regex(&text))
        }
        GrammarSource::Lark(text) => {
            let depth = nesting(text);
            if depth > MAX_DEPTH {
                return Err(Error::config(format!(
                    "must nest brackets at most {MAX_DEPTH} deep, but nests them {depth} deep; simplify it"
                ))
                .about(field));
            }
            check(cost::of_lark(text))?;
            let text = classes::ascii_in_lark(text, field)?;
            Ok(TopLevelGrammar::from_lark(text))
        }
    }
}

/// How deep brackets are nested in a text, counted without regard to quotes.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Counts a thread as long as it runs.
struct Running;

impl Running {
    fn new() -> Option<Self> {
        let add = |running| (running < MAX_COMPILING).then_some(running + 1);
        COMPILING.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok().map(|_| Self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        COMPILING.fetch_sub(1, Ordering::AcqRel);
    }
}

fn compiled(
    field: &'static str,
    grammar: TopLevelGrammar,
    schema: Option<JsonSchema>,
    tokens: Arc<GrammarTokens>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Matcher> {
    let running = loop {
        match Running::new() {
            Some(running) => break running,
            None if interrupted() => return Err(Error::cancelled()),
            None => thread::sleep(POLL),
        }
    };
    let (done, receiver) = sync_channel(1);
    let compile = move || {
        let outcome = first(grammar, &tokens);
        let outcome = outcome.map_err(|stop| match &schema {
            Some(schema) => refused_part(field, schema.value(), &tokens, &stop),
            None => refused(field, stop),
        });
        drop(running);
        drop(done.send(outcome));
    };
    let spawned =
        thread::Builder::new().name("rsgen-grammar".to_owned()).stack_size(STACK_BYTES).spawn(compile);
    spawned.map_err(|error| {
        Error::capacity(": no thread could be started to compile it").about(field).with_source(error)
    })?;
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) if interrupted() => return Err(Error::cancelled()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(refused(field, Stop::Limit("the compiler of grammars failed on it")));
            }
        }
    }
}

/// A matcher at the beginning of a text. Its first mask finds what is wrong with the beginning.
fn first(grammar: TopLevelGrammar, tokens: &GrammarTokens) -> Result<Matcher, Stop> {
    let parser = tokens.factory.create_parser(grammar);
    let first = parser.map(Matcher::new).map_err(|error| Stop::Other(format!("{error:#}")))?;
    if first.has_ended() { Ok(first) } else { first.clone().mask().map(|_| first) }
}

/// The error of a grammar that llguidance does not take, now or at a later token.
pub(super) fn refused(field: &str, stop: Stop) -> Error {
    let why = match stop {
        Stop::DeadEnd => "it allows no text".to_owned(),
        Stop::Limit(limit) => limit.to_owned(),
        Stop::Other(message) if message.contains("lookarounds") => {
            "`^` or `$` stands within a regular expression".to_owned()
        }
        Stop::Other(message) => tidy(&message),
    };
    Error::config(format!("cannot be followed: {why}; simplify it")).about(field)
}

/// The error of a schema, with the place of its part that is the reason.
fn refused_part(field: &'static str, root: &Value, tokens: &GrammarTokens, stop: &Stop) -> Error {
    let why = schema_reason(stop);
    // What breaks a limit takes as long as that allows, and so would its parts.
    let place = match stop {
        Stop::Other(message) if !LARGE.iter().any(|large| message.contains(large)) => {
            smallest_part(field, root, tokens, why)
        }
        _ => "#".to_owned(),
    };
    Error::config(format!("cannot be followed at `{}`: {why}; simplify it", schema::shown_place(&place)))
        .about(field)
}

/// The place of the smallest part of a schema that cannot be followed for the same reason.
fn smallest_part(field: &'static str, root: &Value, tokens: &GrammarTokens, why: &str) -> String {
    let (mut place, mut seen) = ("#".to_owned(), HashSet::new());
    loop {
        let part = schema::places(root, &place).into_iter().find(|part| {
            let is_new = seen.len() < MAX_PARTS && seen.insert(part.clone());
            let is_false = root.pointer(&part[1..]) == Some(&Value::Bool(false));
            is_new && !is_false && {
                let schema = schema::part(root, part, field).ok().map(TopLevelGrammar::from_json_schema);
                let stop = schema.and_then(|schema| first(schema, tokens).err());
                stop.is_some_and(|stop| schema_reason(&stop) == why)
            }
        });
        match part {
            Some(part) => place = part,
            None => return place,
        }
    }
}

/// Why a schema is refused, in the words of JSON Schema.
fn schema_reason(stop: &Stop) -> &'static str {
    let Stop::Other(message) = stop else {
        return match stop {
            Stop::Limit(limit) => limit,
            _ => "it allows no text",
        };
    };
    let known = REASONS.iter().find(|(part, _)| message.contains(part));
    known.map_or("it is too complex", |(_, reason)| reason)
}

/// A message on one line: what follows a tag describes the parser, and lines of carets point into the text.
fn tidy(message: &str) -> String {
    let message = message.split("\n<").next().unwrap_or_default();
    let lines = message.lines().map(str::trim).filter(|line| !line.trim_matches('^').is_empty());
    lines.collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
