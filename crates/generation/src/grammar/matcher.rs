//! llguidance's parser of a text, with the reasons why it stops as data.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;

use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;
use llguidance::{TokenParser, panic_utils};

use rsgen_core::types::TokenId;

/// Follows a text through a grammar.
#[derive(Clone)]
pub(super) struct Matcher {
    parser: TokenParser,
    failed: Option<Stop>,
}

/// Why a grammar cannot be followed.
#[derive(Debug, Clone)]
pub(super) enum Stop {
    /// Nothing can follow.
    DeadEnd,
    /// It breaks a limit, as the end of a sentence about it.
    Limit(&'static str),
    /// Anything else, in llguidance's words.
    Other(String),
}

impl Matcher {
    /// Stands at the beginning of a text.
    pub(super) fn new(mut parser: TokenParser) -> Self {
        if parser.is_fresh() {
            parser.start_without_prompt();
        }
        Self { parser, failed: None }
    }

    /// The same with a memory of its own.
    pub(super) fn deep_clone(&self) -> Self {
        Self { parser: self.parser.deep_clone(), failed: self.failed.clone() }
    }

    /// Whether the grammar has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.failed.is_none() && self.parser.stopped()
    }

    /// Reads a token; tells whether the grammar allows it.
    pub(super) fn read(&mut self, token: TokenId) -> Result<bool, Stop> {
        self.run(|parser| match parser.validate_token(token.0) {
            Ok(true) => parser.consume_token(token.0).and_then(|_| parser.check_stop()).map(|_| true),
            refused => refused,
        })
    }

    /// The tokens that may follow.
    pub(super) fn mask(&mut self) -> Result<SimpleVob, Stop> {
        self.run(TokenParser::compute_mask)
    }

    /// Runs a step of the parser. One that has failed, or panicked, runs no other.
    fn run<T, E: Display>(&mut self, step: impl FnOnce(&mut TokenParser) -> Result<T, E>) -> Result<T, Stop> {
        if let Some(stop) = &self.failed {
            return Err(stop.clone());
        }
        let parser = &mut self.parser;
        // The outer one keeps the panic from being printed.
        let outcome = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            Ok(std::panic::catch_unwind(AssertUnwindSafe(|| step(parser))))
        }));
        let stop = match outcome {
            Ok(Ok(Ok(value))) => return Ok(value),
            Ok(Ok(Err(error))) => self.reason(&error),
            _ => Stop::Limit("the compiler of grammars failed on it"),
        };
        self.failed = Some(stop.clone());
        Err(stop)
    }

    fn reason(&self, error: &dyn Display) -> Stop {
        let of_parser = self.parser.parser.get_error().map(|error| error.stop_reason());
        match of_parser.unwrap_or(self.parser.stop_reason()) {
            StopReason::NoExtensionBias => Stop::DeadEnd,
            StopReason::LexerTooComplex => {
                Stop::Limit("it takes too many states of the lexer (20000 at most)")
            }
            StopReason::ParserTooComplex => {
                Stop::Limit("it is too ambiguous (1000 ways at most to read a text)")
            }
            _ => Stop::Other(error.to_string()),
        }
    }
}
