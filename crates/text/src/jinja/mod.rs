//! Jinja as transformers runs chat templates: in a sandbox, with Python's values, and within a budget.
//!
//! A template comes from a model folder or a request and is not trusted. `minijinja` runs it. Its fuel counts
//! instructions only, and its operators make strings of any size; so `source` rewrites the expressions of a template
//! to use our own filters, which charge a budget: see `docs/decisions/0008-chat-templates-on-minijinja.md`.

mod budget;
#[cfg(test)]
mod cost_tests;
mod expression;
mod filters;
mod lexer;
mod methods;
mod native;
mod operators;
mod print;
mod source;
mod tests;
mod text;
mod value;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Serde, ValueOrKwargs, from_args};
use minijinja::{Environment, ErrorKind, Output, State, Value};
use serde_json::Value as Json;

pub(super) use self::text::strip;
use self::value::{fail, int, is_dict, items, must_be_hashable, pairs};
use rsgen_core::error::{Error, Result};

/// The stack size, enough for the deepest nesting in an unoptimized build too. Reserved, not committed.
const STACK_BYTES: usize = 64 << 20;
const NAME: &str = "chat template";
/// How often a rendering is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The longest range, as in Jinja's sandbox.
const MAX_RANGE: i128 = 100_000;
/// The most attributes of a new namespace: minijinja copies their names on each access.
const MAX_FIELDS: usize = 100;

/// Prepares a template for rendering.
///
/// # Errors
/// `Input`, with the line of the error.
pub(super) fn prepare(source: &str) -> Result<String> {
    let prepared = source::prepare(source).map_err(|(line, message)| failure(line, &message))?;
    with_stack(&mut || false, || {
        environment()?.template_from_str(&prepared).map(drop).map_err(|error| from_native(&error))
    })?;
    Ok(prepared)
}

/// Renders a prepared template with these variables, until `interrupted` returns true.
///
/// # Errors
/// `Input` when it raises an exception, does what is an error in Python, or exceeds its budget; `Cancelled`.
pub(super) fn render(
    prepared: &str,
    variables: &[(&str, &Json)],
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<String> {
    with_stack(interrupted, || {
        let mut environment = environment()?;
        let context =
            Value::from_pairs(variables.iter().map(|(name, value)| (*name, Value::from(Serde(value)))));
        budget::begin(usize::MAX);
        let size = value::walk(&context).map_err(|error| from_native(&error))?;
        environment.set_fuel(Some(budget::begin(size)));
        environment.render_str(prepared, context).map_err(|error| from_native(&error))
    })
}

/// Runs on a large stack of its own: templates nest and recurse. Meanwhile this thread polls `interrupted`.
fn with_stack<T: Send>(
    interrupted: &mut dyn FnMut() -> bool,
    run: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let result = thread::scope(|scope| {
        let builder = thread::Builder::new().name(NAME.to_owned()).stack_size(STACK_BYTES);
        // The sender is dropped at the end of the thread.
        let (sender, receiver) = channel::<()>();
        let to_cancel = Arc::clone(&cancelled);
        let started = builder.spawn_scoped(scope, move || {
            let _sender = sender;
            budget::end_when(to_cancel);
            run()
        });
        let handle = started.map_err(|error| {
            Error::capacity("a thread for the chat template cannot be started").with_source(error)
        })?;
        while receiver.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            if interrupted() {
                cancelled.store(true, Ordering::Relaxed);
            }
        }
        handle.join().unwrap_or_else(|_| Err(Error::internal("the interpreter of chat templates panicked")))
    });
    if cancelled.load(Ordering::Relaxed) { Err(Error::cancelled()) } else { result }
}

/// Jinja with transformers' settings: a line that holds only a block tag leaves no line in the output.
fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::empty();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|error| from_native(&error))?);
    // Errors name what is undefined.
    environment.set_debug(true);
    environment.set_formatter(|out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value| {
        match value.as_str() {
            Some(text) => budget::bytes(text.len()).and_then(|()| Ok(out.write_str(text)?)),
            None => Ok(out.write_str(&print::str(value)?)?),
        }
    });
    filters::add_to(&mut environment);
    tests::add_to(&mut environment);
    environment.add_function("range", |args: Rest<Value>| range(&args));
    environment.add_function("dict", |args: Rest<ValueOrKwargs>| new_dict(&args.into_values()));
    environment.add_function("namespace", |args: Rest<ValueOrKwargs>| namespace(&args.into_values()));
    environment.add_function("raise_exception", |message: Value| fail::<Value>(print::str(&message)?));
    environment.add_function("strftime_now", strftime_now);
    Ok(environment)
}

fn range(args: &[Value]) -> value::Result<Value> {
    let numbers = args.iter().map(|number| int(number).filter(|number| i64::try_from(*number).is_ok()));
    let (start, stop, step) = match numbers.collect::<Option<Vec<_>>>().as_deref() {
        Some(&[stop]) => (0, stop, 1),
        Some(&[start, stop]) => (start, stop, 1),
        Some(&[start, stop, step]) if step != 0 => (start, stop, step),
        _ => return fail("range takes one to three whole numbers, and a step that is not 0"),
    };
    let len = ((stop - start + step - step.signum()) / step).max(0);
    if len > MAX_RANGE {
        return fail(format!("a range may have at most {MAX_RANGE} numbers, got {len}"));
    }
    budget::elements(len as usize)?;
    Ok((0..len).map(|index| start + index * step).collect())
}

/// Python's `dict` constructor.
fn new_dict(args: &[Value]) -> value::Result<Value> {
    let (positional, keywords) = from_args::<(&[Value], Kwargs)>(args)?;
    let mut entries = match positional {
        [] => Vec::new(),
        [dict] if is_dict(dict) => pairs(dict)?,
        [list] => {
            let pairs = items(list)?.into_iter().map(|pair| match <[Value; 2]>::try_from(items(&pair)?) {
                Ok([key, value]) => must_be_hashable(&key).map(|()| (key, value)),
                Err(_) => fail("dict takes pairs of a key and a value"),
            });
            pairs.collect::<value::Result<Vec<_>>>()?
        }
        _ => return fail("dict takes one argument"),
    };
    for name in keywords.args() {
        entries.push((Value::from(name), keywords.peek(name)?));
    }
    Ok(Value::from_pairs(entries))
}

fn namespace(args: &[Value]) -> value::Result<Value> {
    let dict = new_dict(args)?;
    if dict.len().is_some_and(|len| len > MAX_FIELDS) {
        return fail(format!("a namespace may begin with at most {MAX_FIELDS} attributes"));
    }
    for (key, _) in pairs(&dict)? {
        if key.as_str().is_none_or(|key| key.starts_with('_')) {
            return fail(format!("a namespace cannot have the attribute `{key}`: rename it"));
        }
    }
    value::must_be_plain(&dict)?;
    minijinja::functions::namespace(Some(dict.into()))
}

fn strftime_now(format: &str) -> value::Result<Value> {
    budget::bytes(format.len().saturating_mul(32))?;
    let text = jiff::fmt::strtime::format(format, &jiff::Zoned::now());
    text.map(Value::from).or_else(|error| fail(format!("strftime_now: {error}")))
}

fn failure(line: usize, message: &str) -> Error {
    let position = if line == 0 { String::new() } else { format!(", line {line}") };
    Error::input(format!("{NAME}{position}: {message}"))
}

fn from_native(error: &minijinja::Error) -> Error {
    let unknown = error.detail().and_then(|detail| detail.strip_suffix(" is unknown"));
    let message = match (error.kind(), unknown, error.detail()) {
        (ErrorKind::OutOfFuel, ..) => budget::exceeded("time"),
        (ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction, Some(what), _) => {
            let (kind, name) = what.split_once(' ').unwrap_or(("function", what));
            format!("there is no {kind} `{name}`")
        }
        (kind, _, detail) => detail.map_or_else(|| kind.to_string(), str::to_owned),
    };
    failure(error.line().unwrap_or(0), &message)
}
