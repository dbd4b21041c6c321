//! Compiles grammars, within limits: whatever a request asks for ends soon, takes little memory, and panics at most in a thread
//! of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use llguidance::Matcher;
use llguidance::api::{ParserLimits, TopLevelGrammar};

use rsgen_core::error::{Error, ErrorKind, Result};
use rsgen_core::sync::{Mutex, thread};

use super::keywords;
use super::source::GrammarSource;
use super::tokens::GrammarTokens;

/// The longest text of a grammar, in bytes.
pub(super) const MAX_TEXT: usize = 128 << 10;
/// The deepest nesting of brackets in a grammar. Those of schemas and regular expressions are limited where they are read.
const MAX_DEPTH: usize = 128;
/// The time that compiling may take. Large schemas of real services take a tenth of it.
const MAX_TIME: Duration = Duration::from_secs(2);
/// The threads that may compile at the same time, those included whose time is over.
const MAX_COMPILING: usize = 8;
/// Grammars are compiled by recursion: this is room for the deepest of the longest text.
const STACK_BYTES: usize = 256 << 20;

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
    /// `Config` that names the field and what is wrong with the grammar, or the limit that it breaks. `Capacity` when too many
    /// others are being compiled.
    pub(super) fn new(source: &GrammarSource, tokens: &Arc<GrammarTokens>) -> Result<Self> {
        let field = source.field();
        let grammar = checked(source)?;
        let first = compiled(field, grammar, Arc::clone(tokens))?;
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
            "`{field}` must have at most {MAX_TEXT} bytes, but has {}; simplify it",
            text.len()
        )));
    }
    match source {
        GrammarSource::JsonSchema(schema) => {
            Ok(TopLevelGrammar::from_json_schema(keywords::checked(schema.value())?))
        }
        GrammarSource::Regex(text) => Ok(TopLevelGrammar::from_regex(text)),
        GrammarSource::Lark(text) => match nesting(text) {
            0..=MAX_DEPTH => Ok(TopLevelGrammar::from_lark(text.clone())),
            depth => Err(Error::config(format!(
                "`{field}` must nest brackets at most {MAX_DEPTH} deep, but nests them {depth} deep; simplify it"
            ))),
        },
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

fn compiled(field: &'static str, grammar: TopLevelGrammar, tokens: Arc<GrammarTokens>) -> Result<Matcher> {
    let running = Running::new().ok_or_else(|| {
        Error::capacity(format!("`{field}`: {MAX_COMPILING} grammars are being compiled; try again later"))
    })?;
    let (done, receiver) = mpsc::sync_channel(1);
    let compile = move || {
        let matcher = Matcher::new(tokens.factory.create_parser(grammar));
        // The first mask finds what is wrong with the beginning.
        let first = match matcher.get_error() {
            Some(error) => Err(error),
            None => matcher.clone().compute_mask_or_eos().map(|_| ()).map_err(|error| error.to_string()),
        };
        drop(done.send(first.map(|()| matcher)));
        drop(running);
    };
    let spawned =
        thread::Builder::new().name("rsgen-grammar".to_owned()).stack_size(STACK_BYTES).spawn(compile);
    spawned.map_err(|error| {
        Error::capacity(format!("`{field}`: no thread could be started to compile it")).with_source(error)
    })?;
    match receiver.recv_timeout(MAX_TIME) {
        Ok(Ok(matcher)) => Ok(matcher),
        Ok(Err(message)) => Err(refused(field, &message)),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(Error::config(format!(
            "`{field}` must compile within {} seconds, but takes longer; simplify it",
            MAX_TIME.as_secs()
        ))),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(refused(field, "panic")),
    }
}

/// The error of a grammar that llguidance does not take, now or at a later token; `message` is its own.
pub(super) fn refused(field: &str, message: &str) -> Error {
    const KNOWN: [(&str, &str); 7] = [
        ("NoExtensionBias", "it allows no text"),
        ("lexer_too_complex", "it takes too many states of the lexer (20000 at most)"),
        ("Lexer state limit", "it takes too many states of the lexer (20000 at most)"),
        ("too many items", "it is too ambiguous (1000 ways at most to read a text)"),
        ("grammar size (number of symbols)", "it has too many symbols (200000 at most)"),
        (
            "initial lexer configuration",
            "its regular expressions are too large (limit of the lexer's fuel: 1000000)",
        ),
        ("panic", "the compiler of grammars failed on it"),
    ];
    let known = KNOWN.iter().find(|(part, _)| message.contains(part)).map(|(_, text)| (*text).to_owned());
    let own = || tidy(message);
    Error::new(
        ErrorKind::Config,
        format!("`{field}` cannot be followed: {}; simplify it", known.unwrap_or_else(own)),
    )
}

/// A message on one line: what follows a tag describes the parser, and lines of carets point into the text.
fn tidy(message: &str) -> String {
    let message = message.split("\n<").next().unwrap_or_default();
    let lines = message.lines().map(str::trim).filter(|line| !line.trim_matches('^').is_empty());
    lines.collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
