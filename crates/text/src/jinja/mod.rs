//! Jinja as transformers runs chat templates: in a sandbox, with Python's values, and within limits.
//!
//! A template is not trusted. `minijinja` runs it, on a worker thread with a stack of its own (`worker`). Its
//! fuel ends loops, recursion and long texts; `value::check_size` refuses lists that hold each other many
//! times, which fuel does not see. `source` and `expression` rewrite the little in which templates need more
//! than minijinja has; all other differences are filters, methods and a formatter of ours. See
//! `docs/decisions/0011-one-sandbox-for-text-of-strangers.md`.

mod expression;
mod filters;
mod lexer;
mod methods;
mod pprint;
mod print;
mod source;
mod text;
mod value;

use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Serde, ValueOrKwargs, from_args};
use minijinja::{AutoEscape, Environment, ErrorKind, Output, State, Value};
use serde_json::Value as Json;

pub(super) use self::text::strip;
use self::value::{INPUT_SIZE, check_size, exceeded, fail, is_dict, items, pairs};
use super::worker;
use rsgen_core::error::{Error, Result};

const NAME: &str = "chat template";
/// minijinja's fuel: instructions, or 64 bytes of text each. Each byte of the conversation adds some.
const FUEL: usize = 500_000;
const FUEL_PER_INPUT_BYTE: usize = 4;
/// The largest conversation, with 64 bytes for each value in it.
const MAX_INPUT_BYTES: usize = 64 << 20;
/// The most attributes of a new namespace: minijinja copies their names on each access.
const MAX_FIELDS: usize = 100;

/// Prepares a template for rendering.
///
/// # Errors
/// `Input`, with the line of the error.
pub(super) fn prepare(source: &str) -> Result<Arc<str>> {
    // Expressions are read by recursion: not on the caller's stack, which may be small.
    let source = source.to_owned();
    worker::run(&mut || false, NAME, source.len(), move || {
        let prepared = source::prepare(&source).map_err(|(line, message)| failure(line, &message))?;
        let prepared: Arc<str> = prepared.into();
        environment()?.template_from_str(&prepared).map_err(|error| from_native(&error))?;
        Ok(prepared)
    })
}

/// Renders a prepared template with these variables, until `interrupted` returns true.
///
/// # Errors
/// `Input` when it raises an exception, does what is an error in Python, or exceeds its limits; `Cancelled`.
pub(super) fn render(
    prepared: Arc<str>,
    variables: Vec<(String, Json)>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<String> {
    worker::run(interrupted, NAME, 0, move || {
        let mut environment = environment()?;
        let context =
            Value::from_pairs(variables.iter().map(|(name, value)| (&**name, Value::from(Serde(value)))));
        let size = value::size(&context).map_err(|error| from_native(&error))?;
        if size > MAX_INPUT_BYTES {
            return Err(failure(
                0,
                &format!("a conversation may have at most {MAX_INPUT_BYTES} bytes, found {size}"),
            ));
        }
        environment.add_global(INPUT_SIZE, size);
        environment.set_fuel(Some((FUEL + size * FUEL_PER_INPUT_BYTE) as u64));
        environment.render_str(&prepared, context).map_err(|error| from_native(&error))
    })
}

/// Jinja with transformers' settings: a line that holds only a block tag leaves no line in the output.
fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|error| from_native(&error))?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // Errors name what is undefined.
    environment.set_debug(true);
    environment.set_formatter(|out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value| {
        worker::check().or_else(|_| fail("it was cancelled"))?;
        // A block of `{% autoescape true %}`.
        if *state.auto_escape() != AutoEscape::None {
            return Ok(out.write_str(filters::escaped(state, value)?.as_str().unwrap_or_default())?);
        }
        match value.as_str() {
            Some(text) => Ok(out.write_str(text)?),
            None => Ok(out.write_str(&print::str(state, value)?)?),
        }
    });
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("filesizeformat", minijinja_contrib::filters::filesizeformat);
    environment.add_filter("striptags", minijinja_contrib::filters::striptags);
    filters::add_to(&mut environment);
    environment.remove_global("debug");
    environment.add_function("dict", new_dict);
    environment.add_function("namespace", namespace);
    environment.add_function("raise_exception", |state: &State<'_, '_>, message: Value| {
        fail::<Value>(print::str(state, &message)?)
    });
    environment.add_function("strftime_now", strftime_now);
    Ok(environment)
}

/// Python's `dict` constructor.
fn new_dict(state: &State<'_, '_>, args: Rest<ValueOrKwargs>) -> value::Result<Value> {
    let args = args.into_values();
    let (positional, keywords) = from_args::<(&[Value], Kwargs)>(&args)?;
    let mut entries = match positional {
        [] => Vec::new(),
        [dict] if is_dict(dict) => pairs(dict),
        [list] => {
            let pairs = items(list)?.into_iter().map(|pair| match <[Value; 2]>::try_from(items(&pair)?) {
                Ok([key, value]) => Ok((key, value)),
                Err(_) => fail("dict takes pairs of a key and a value"),
            });
            pairs.collect::<value::Result<Vec<_>>>()?
        }
        _ => return fail("dict takes one argument"),
    };
    for name in keywords.args() {
        entries.push((Value::from(name), keywords.peek(name)?));
    }
    let dict = Value::from_pairs(entries);
    check_size(state, &dict, false).map(|()| dict)
}

fn namespace(state: &State<'_, '_>, args: Rest<ValueOrKwargs>) -> value::Result<Value> {
    let dict = new_dict(state, args)?;
    if dict.len().is_some_and(|len| len > MAX_FIELDS) {
        return fail(format!("a namespace may begin with at most {MAX_FIELDS} attributes"));
    }
    for (key, _) in pairs(&dict) {
        if key.as_str().is_none_or(|key| key.starts_with('_')) {
            return fail(format!("a namespace cannot have the attribute `{key}`: rename it"));
        }
    }
    check_size(state, &dict, true)?;
    minijinja::functions::namespace(Some(dict.into()))
}

fn strftime_now(state: &State<'_, '_>, format: &str) -> value::Result<Value> {
    value::pay(state, format.len().saturating_mul(32))?;
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
        (ErrorKind::OutOfFuel, ..) => exceeded("time"),
        (ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction, Some(what), _) => {
            let (kind, name) = what.split_once(' ').unwrap_or(("function", what));
            format!("there is no {kind} `{name}`")
        }
        (kind, _, detail) => detail.map_or_else(|| kind.to_string(), str::to_owned),
    };
    failure(error.line().unwrap_or(0), &message)
}
