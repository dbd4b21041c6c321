//! Jinja as transformers runs chat templates: in a sandbox, with Python's values, and within a budget.
//!
//! A template comes out of a model folder or a request and is not trusted. `minijinja` reads it; it is run here, because
//! every operation has to be paid for before it is done: one operator may otherwise make a text of any size, and no count
//! of instructions tells. There is no file, no other template and no Python behind it.

mod arguments;
mod budget;
mod call;
mod checks;
mod expression;
mod failure;
mod filters;
mod interpreter;
mod json;
mod methods;
mod numbers;
mod operators;
mod printf;
mod show;
mod slices;
mod sorting;
mod source;
mod strformat;
mod text;
mod value;

use std::thread;

use serde_json::Value as Json;

use self::budget::Budget;
use self::interpreter::Interpreter;
use crate::error::{Error, Result};

/// Room for everything that may be nested, in a build without optimization too. It is reserved, not used.
const STACK_BYTES: usize = 64 << 20;
const NAME: &str = "chat template";

/// A text without Python's white space at the sides that are asked for.
pub(super) fn strip(text: &str, left: bool, right: bool) -> &str {
    text::strip(text, None, left, right)
}

/// Checks that a template can be read.
///
/// # Errors
/// `Input`, with the line and what is wrong there.
pub(super) fn check(source: &str) -> Result<()> {
    with_stack(|| {
        let source = source::prepare(source)?;
        let parsed = minijinja::machinery::parse(&source, NAME, source::syntax()?);
        parsed.map(|_| ()).map_err(|error| source::syntax_failure(&error))
    })
}

/// What a template prints when it is given these variables.
///
/// # Errors
/// `Input` when it cannot be read, raises an exception, does what Python would not, or is beyond its budget.
pub(super) fn render(source: &str, variables: &[(&str, &Json)]) -> Result<String> {
    with_stack(|| {
        let size = variables.iter().map(|(name, value)| name.len() + json::size(value)).sum();
        let budget = Budget::for_input(size);
        let source = source::prepare(source)?;
        let parsed = minijinja::machinery::parse(&source, NAME, source::syntax()?);
        let template = parsed.map_err(|error| source::syntax_failure(&error))?;
        let values = variables.iter().map(|(name, value)| Ok((*name, json::from_json(&budget, value)?)));
        let values = values.collect::<failure::Result<Vec<_>>>()?;
        Interpreter::new(&source, budget, values).run(&template)
    })
}

/// Runs on a stack of its own, whatever the caller's: templates nest and recurse.
fn with_stack<T: Send>(run: impl FnOnce() -> failure::Result<T> + Send) -> Result<T> {
    let run = || run().map_err(failure::Failure::into_error);
    thread::scope(|scope| {
        let builder = thread::Builder::new().name(NAME.to_owned()).stack_size(STACK_BYTES);
        let started = builder.spawn_scoped(scope, run);
        let handle = started.map_err(|error| {
            Error::capacity("a thread for the chat template cannot be started").with_source(error)
        })?;
        handle.join().unwrap_or_else(|_| Err(Error::internal("the interpreter of chat templates panicked")))
    })
}

#[cfg(test)]
mod tests;
